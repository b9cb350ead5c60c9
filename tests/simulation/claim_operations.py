"""Operations on unique claims, and their account: a value has one owner, until that lets it go."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from countledger.infra.memory.tables import Change
from countledger.ledger.errors import AlreadyClaimed, NotClaimed
from countledger.producers.claims.claim import Claim, claim_in
from tests.simulation.client import Client, Memory
from tests.simulation.sums import Removals, Wrong
from tests.simulation.world import World

SCOPE: Final = "seat"
_VALUES: Final = ("1a", "1b", "1c")
_PREFIX: Final = f"unique#{SCOPE}#"
# An owner that all clients are: its claims are taken and released by several of them at once.
_SHARED: Final = "the shop"


@dataclass
class ClaimAccounts:
    """All claims.

    Attributes:
        freeing: values that their owners ever set out to free, or to change.
        held: values that an owner was told to have, and has not set out to free since.
        named: the ids of claims that somebody set out to free by their ids.
        freed: of values and owners, what calls have freed that were given no id.
        gone: the ids of all claims that were freed.
    """

    freeing: set[tuple[str, str]] = field(default_factory=set)
    held: dict[str, str] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    freed: dict[tuple[str, str], Removals] = field(default_factory=lambda: defaultdict(Removals))
    gone: set[str] = field(default_factory=set)

    def changed(self, change: Change) -> None:
        """A claim was written."""
        counter = change.key[0]
        if not counter.startswith(_PREFIX):
            return
        value = counter.removeprefix(_PREFIX)
        before, after = claim_in(change.before), claim_in(change.after)
        if before is None:
            if after is not None and after["id"] in self.gone:
                raise Wrong(f"the claim {after['id']} of {value} was freed, and is there again")
            return
        if after is not None and after["owner"] != before["owner"]:
            raise Wrong(f"{value} was {before['owner']}'s, and became {after['owner']}'s")
        if after is not None and after["id"] != before["id"]:
            raise Wrong(f"the claim {before['id']} of {value} became {after['id']}")
        if after is None and (value, before["owner"]) not in self.freeing:
            raise Wrong(f"{value} was {before['owner']}'s, and somebody else freed it")
        if after is None:
            self.gone.add(before["id"])
        if after is None and before["id"] not in self.named:
            self.freed[value, before["owner"]].note(value, before["id"])

    def took(self, value: str, owner: str) -> None:
        """An owner was told that it has a value."""
        if (value, owner) not in self.freeing:
            self.held[value] = owner

    def check(self, world: World) -> None:
        """Who was told to have a value, and never let it go, has it."""
        items = world.copies[world.home]["counters"].items
        for value, owner in self.held.items():
            there = claim_in(items.get((_PREFIX + value, "claim")))
            if there is None or there["owner"] != owner:
                raise Wrong(f"{owner} was told to have {value}, and it is {there}")


def take(client: Client) -> None:
    """A value, or two at once, for this client or for the owner that all of them are."""
    values = client.random.sample(_VALUES, client.random.choice([1, 1, 2]))
    owner = _owner(client)
    _refusable(client, values, owner, lambda claims: client.product.claims.take(*claims))


def change(client: Client) -> None:
    """Another value instead of the one that it has, or thinks that it has."""
    claim = _known(client, _owner(client))
    old, owner = str(claim.value), claim.owner
    new = client.random.choice([value for value in _VALUES if value != old])
    try:
        with _frees(client, claim):
            client.product.claims.change(claim, new)
    except (AlreadyClaimed, NotClaimed) as error:
        client.tell(f"change {old} to {new}: {error}")
        return
    client.tell(f"changed {old} to {new} for {owner}")
    client.auditor.claims.took(new, owner)


def release(client: Client) -> None:
    """A value is free again, if it was this owner's; of a claim that was looked up, that alone."""
    claim = _known(client, _owner(client))
    try:
        with _frees(client, claim):
            client.product.claims.release(claim)
    except (AlreadyClaimed, NotClaimed) as error:
        client.tell(f"release {claim}: {error}")
    else:
        client.tell(f"released {claim}")


def look(client: Client) -> None:
    """A claim is looked up; somebody will release it by its id, now or late, and again."""
    found = client.product.claims.find(SCOPE, client.random.choice(_VALUES))
    if found is not None:
        client.memory.claims.append(found)


def _owner(client: Client) -> str:
    return client.random.choice([client.name, _SHARED])


def _known(client: Client, owner: str) -> Claim:
    """A claim that was looked up; or a value that it was told to have; or now and then any."""
    looked_up = [one for one in client.memory.claims if one.owner == owner]
    if looked_up and client.random.random() < 0.5:
        return client.random.choice(looked_up)
    held = client.auditor.claims.held
    mine = [value for value in _VALUES if held.get(value) == owner]
    value = client.random.choice(mine if mine and client.random.random() < 0.8 else _VALUES)
    return Claim(SCOPE, value, owner)


def _refusable(
    client: Client, values: list[str], owner: str, act: Callable[[list[Claim]], bool]
) -> None:
    try:
        act([Claim(SCOPE, value, owner) for value in values])
    except AlreadyClaimed as error:
        client.tell(f"take {values}: {error}")
        return
    client.tell(f"took {values} for {owner}")
    for value in values:
        client.auditor.claims.took(value, owner)
    client.auditor.claims.check(client.world)


@contextmanager
def _frees(client: Client, claim: Claim) -> Iterator[None]:
    """From now on it may go at any time, by this owner's own hand: the one named, or one."""
    account = client.auditor.claims
    value, owner = str(claim.value), claim.owner
    items = client.world.copies[client.world.home]["counters"].items
    there = claim_in(items.get((_PREFIX + value, "claim")))
    if there is None or there["owner"] == owner:
        account.freeing.add((value, owner))
    if account.held.get(value) == owner:
        del account.held[value]
    account.check(client.world)
    if claim.claim_id is not None:
        account.named.add(claim.claim_id)
        yield
    else:
        with account.freed[value, owner].one(AlreadyClaimed, NotClaimed):
            yield


def check_claims(world: World, memory: Memory) -> None:  # noqa: ARG001 - as the others
    """Whoever was told to have a value has it."""
    world.auditor.claims.check(world)
