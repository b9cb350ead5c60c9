"""Operations on unique claims, and their account: a value has one owner, until that lets it go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import AlreadyClaimed, NotClaimed
from countledger.producers.claims.claim import Claim
from tests.simulation.compaction.world import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.client import Client, Memory
    from tests.simulation.table import Change
    from tests.simulation.world import World

SCOPE: Final = "seat"
_VALUES: Final = ("1a", "1b", "1c")
_PREFIX: Final = f"unique#{SCOPE}#"


@dataclass
class ClaimAccounts:
    """All claims.

    Attributes:
        freeing: values that their owners ever set out to free, or to change.
        held: values that an owner was told to have, and has not set out to free since.
    """

    freeing: set[tuple[str, str]] = field(default_factory=set)
    held: dict[str, str] = field(default_factory=dict)

    def changed(self, change: Change) -> None:
        """A claim was written.

        Raises:
            Wrong: it was taken from its owner, or freed by somebody else.
        """
        counter = change.key[0]
        if not counter.startswith(_PREFIX):
            return
        value, before, after = counter.removeprefix(_PREFIX), change.before, change.after
        if before is None:
            return
        if after is not None and after["owner"] != before["owner"]:
            raise Wrong(f"{value} was {before['owner']}'s, and became {after['owner']}'s")
        if after is None and (value, before["owner"]) not in self.freeing:
            raise Wrong(f"{value} was {before['owner']}'s, and somebody else freed it")

    def took(self, value: str, owner: str) -> None:
        """An owner was told that it has a value."""
        if (value, owner) not in self.freeing:
            self.held[value] = owner

    def check(self, world: World) -> None:
        """Who was told to have a value, and never let it go, has it.

        Raises:
            Wrong: it has not.
        """
        items = world.copies[world.home]["counters"].items
        for value, owner in self.held.items():
            there = items.get((_PREFIX + value, "claim"))
            if there is None or there["owner"] != owner:
                raise Wrong(f"{owner} was told to have {value}, and it is {there}")


def take(client: Client) -> None:
    """A value, or two at once, for this client."""
    values = client.random.sample(_VALUES, client.random.choice([1, 1, 2]))
    _refusable(client, values, lambda claims: client.product.claims.take(*claims))


def change(client: Client) -> None:
    """Another value instead of the one that it has, or thinks that it has."""
    old = _known(client)
    new = client.random.choice([value for value in _VALUES if value != old])
    _frees(client, [old])
    claim = Claim(SCOPE, old, client.name)
    try:
        client.product.claims.change(claim, new)
    except (AlreadyClaimed, NotClaimed) as error:
        client.tell(f"change {old} to {new}: {error}")
        return
    client.tell(f"changed {old} to {new}")
    client.auditor.claims.took(new, client.name)


def release(client: Client) -> None:
    """A value is free again, if it was this client's."""
    value = _known(client)
    _frees(client, [value])
    try:
        client.product.claims.release(Claim(SCOPE, value, client.name))
    except (AlreadyClaimed, NotClaimed) as error:
        client.tell(f"release {value}: {error}")
    else:
        client.tell(f"released {value}")


def _known(client: Client) -> str:
    """A value that it was told to have; or now and then any."""
    held = client.auditor.claims.held
    mine = [value for value in _VALUES if held.get(value) == client.name]
    return client.random.choice(mine if mine and client.random.random() < 0.8 else _VALUES)


def _refusable(client: Client, values: list[str], act: Callable[[list[Claim]], bool]) -> None:
    try:
        act([Claim(SCOPE, value, client.name) for value in values])
    except AlreadyClaimed as error:
        client.tell(f"take {values}: {error}")
        return
    client.tell(f"took {values}")
    for value in values:
        client.auditor.claims.took(value, client.name)
    client.auditor.claims.check(client.world)


def _frees(client: Client, values: list[str]) -> None:
    """From now on they may go at any time, by this owner's own hand."""
    account = client.auditor.claims
    for value in values:
        there = client.world.copies[client.world.home]["counters"].items.get(
            (_PREFIX + value, "claim")
        )
        if there is None or there["owner"] == client.name:
            account.freeing.add((value, client.name))
        if account.held.get(value) == client.name:
            del account.held[value]
    account.check(client.world)


def check_claims(world: World, memory: Memory) -> None:  # noqa: ARG001 - as the others
    """Whoever was told to have a value has it."""
    world.auditor.claims.check(world)
