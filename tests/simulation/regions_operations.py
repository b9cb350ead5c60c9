"""Operations on strict counters over regions, which every region of the table may change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import (
    BadBounds,
    CounterExists,
    NamespaceUnknown,
    NoSuchCounter,
    Refused,
)
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from tests.simulation import strict_operations as strict

if TYPE_CHECKING:
    from tests.simulation.client import Client, Memory
    from tests.simulation.product import Product
    from tests.simulation.world import World

NAMESPACE: Final = "r"
METHODS: Final = ("atomic", "occ", "history", "set")


def counter_of(method: str) -> str:
    """The counter of a method."""
    return f"{NAMESPACE}:{method}"


def make_all(world: World, product: Product, memory: Memory) -> None:
    """One each of some methods; and the accidents of their table."""
    for method in world.random.sample(METHODS, world.random.randint(1, len(METHODS))):
        counter = counter_of(method)
        memory.strict[counter] = method, 1
        world.auditor.strict.accounts[counter].opening = strict.OPENING
        strict.make(product, counter, method, 1)


def _methods(client: Client) -> list[str]:
    return [one for one in METHODS if counter_of(one) in client.memory.strict]


def lose(world: World) -> None:
    """A region of the strongly consistent table answers nothing for a while."""
    if len(world.regions) == 1 or world.strong.lost or world.faults.calm:
        return  # the others are a majority with at most one of three lost
    region = world.random.choice(world.regions)
    world.strong.lost.add(region)
    world.tell(f"lost: {region}")

    def come_back() -> None:
        world.strong.lost.discard(region)
        world.tell(f"back: {region}")

    world.schedule.at(world.random.random() ** 2 * HOUR_MS, come_back)


def change(client: Client) -> None:
    """A change from the region of the client."""
    method = client.random.choice(_methods(client))
    try:
        strict.change(client, counter_of(method), method)
    except NamespaceUnknown:
        client.tell("the namespace has not arrived yet")


def move_bounds(client: Client) -> None:
    """The upper bound moves while the counter is in use."""
    counter = counter_of(client.random.choice(_methods(client)))
    if counter == counter_of("set"):
        return
    upper = client.random.randint(strict.UPPER - 4, strict.UPPER + 4)
    try:
        client.product.strict.set_bounds(counter, upper=upper)
    except (BadBounds, NoSuchCounter, NamespaceUnknown) as error:
        client.tell(f"bound of {counter}: {error}")


def withdraw(client: Client) -> None:
    """The fate of a change of the `set` that nobody heard the end of is settled for good."""
    mine = [one for one in client.memory.open if one[0] == counter_of("set")]
    if mine:
        try:
            strict.settle(client, *client.random.choice(mine))
        except NamespaceUnknown:
            client.tell("the namespace has not arrived yet")


def remake(client: Client) -> None:
    """A counter is deleted, as soon as that is allowed, and made again under its name."""
    counter = counter_of(client.random.choice(_methods(client)))
    shape = client.world.shape
    try:
        with client.auditor.strict.accounts[counter].deleted.one(NoSuchCounter):
            try:
                client.product.strict.delete(counter)
            except Refused as error:
                client.tell(f"{counter}: {error}")
                client.world.schedule.pause(MINUTE_MS + shape.life_ms + 2 * shape.skew_ms + 1)
                client.product.strict.delete(counter)
        client.tell(f"{counter} deleted")
        if client.random.random() < 0.5:
            client.world.schedule.pause(client.random.random() * shape.gap_ms)
        strict.make(client.product, counter, *client.memory.strict[counter])
    except (NoSuchCounter, CounterExists, NamespaceUnknown, Refused) as error:
        client.tell(f"{counter} made again: {type(error).__name__}")
    else:
        client.tell(f"{counter} made again")
