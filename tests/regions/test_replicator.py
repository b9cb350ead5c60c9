"""The replicator of local stacks: what a global table does between its regions."""

import time
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest

from countledger.infra.local.replication import Copy, Version
from tests.e2e.command import eventually
from tests.regions.world import HOME, OTHERS, World, open_world

OTHER, THIRD = OTHERS


@pytest.fixture
def world(url: str) -> Iterator[World]:
    """Three regions."""
    with open_world(url, 3, seed=2) as world:
        yield world


def put(world: World, region: str, value: str | None, name: str = "item") -> None:
    """Write an item there, or delete it."""
    key = {"counter": {"S": name}, "entry": {"S": "x"}}
    client, table = world.clients[region], world.replicator.copies[HOME].table
    if value is None:
        client.delete_item(TableName=table, Key=key)
    else:
        client.put_item(TableName=table, Item={**key, "value": {"S": value}})


def shown(world: World, name: str = "item") -> list[str | None]:
    """What each region shows of it."""
    found: list[str | None] = []
    for region in world.regions:
        key = {"counter": {"S": name}, "entry": {"S": "x"}}
        table = world.replicator.copies[HOME].table
        answer = world.clients[region].get_item(TableName=table, Key=key, ConsistentRead=True)
        found.append(answer.get("Item", {}).get("value", {}).get("S"))
    return found


def settle(world: World) -> None:
    """Note everything and let it arrive."""
    for region in world.replicator.copies:
        world.replicator.note(region)
    world.replicator.catch_up()


@pytest.mark.parametrize("last", ["c", None])
def test_the_last_writer_wins_in_every_region(world: World, last: str | None) -> None:
    """A deletion as well; and what was written before does not bring it back."""
    for region, value in ((THIRD, "0"), (HOME, "a"), (OTHER, "b"), (THIRD, last)):
        put(world, region, value)
        time.sleep(0.002)

    settle(world)

    assert shown(world) == [last, last, last]


def test_a_write_that_arrives_is_not_replicated_again(world: World) -> None:
    """Else two regions would send each other the same item for ever."""
    put(world, HOME, "a")
    settle(world)
    for region in world.regions:
        world.replicator.note(region)

    assert world.replicator.settled
    assert [len(world.records[region]) for region in (OTHER, THIRD)] == [
        len(world.records[HOME])
    ] * 2


def test_a_later_local_write_stays_though_nobody_noted_it_yet(world: World) -> None:
    """The engine compares when the write arrives, not the replicator before it sends."""
    put(world, HOME, "earlier")
    world.replicator.note(HOME)
    time.sleep(0.002)
    put(world, OTHER, "later")

    world.replicator.catch_up()
    assert shown(world)[1] == "later"

    settle(world)
    assert shown(world) == ["later"] * 3


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_writes_of_one_millisecond_end_alike_everywhere(world: World, order: Any) -> None:  # noqa: ANN401 - a permutation
    """Of equal times the later region's name wins, whatever arrives first."""
    key = ("item", "x")
    regions = sorted(world.regions)
    now_ms = int(time.time() * 1_000)
    versions = [
        Version((now_ms, region, 9 - n), key, _image(key, region))
        for n, region in enumerate(regions)
    ]
    for shift, region in enumerate(world.regions):
        turned = order[shift:] + order[:shift]
        for n in turned:
            world.replicator.copies[region].arrive([versions[n]])

    assert shown(world) == [regions[-1]] * 3


def _image(key: tuple[str, str], value: str) -> dict[str, Any]:
    return {"counter": {"S": key[0]}, "entry": {"S": key[1]}, "value": {"S": value}}


def test_a_cut_may_be_one_way_and_healed_for_one_region(world: World) -> None:
    world.replicator.cut_off(HOME, one_way=True)
    world.replicator.cut_off(THIRD)
    put(world, HOME, "home's", "a")
    put(world, OTHER, "other's", "b")
    settle(world)

    assert shown(world, "a") == ["home's", None, None]
    assert shown(world, "b") == ["other's", "other's", None]

    world.replicator.heal(HOME)
    settle(world)
    # The way between the first and the third region is one of both, and open.
    assert shown(world, "a") == ["home's", "home's", "home's"]
    assert shown(world, "b") == ["other's", "other's", None]
    world.replicator.heal()
    settle(world)
    assert shown(world, "b") == ["other's"] * 3


def test_a_region_that_joins_gets_what_was_written_before(world: World) -> None:
    copy = world.replicator.copies[THIRD]
    world.replicator.leave(THIRD)
    put(world, HOME, "a")
    settle(world)
    assert shown(world) == ["a", "a", None]

    world.replicator.join(Copy(copy.region, copy.url, copy.table, copy.stream_arn))
    settle(world)

    assert shown(world) == ["a", "a", "a"]


def test_in_the_background_everything_arrives(world: World) -> None:
    world.replicator.start()
    for n in range(40):
        put(world, world.regions[n % 3], str(n), f"item{n % 7}")

    last = {f"item{n % 7}": str(n) for n in range(40)}
    eventually(lambda: all(shown(world, name) == [v] * 3 for name, v in last.items()))
