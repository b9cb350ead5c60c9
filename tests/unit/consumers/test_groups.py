"""Groups beside each other's calls, and of counters that cannot be ranked."""

from collections.abc import Callable

import pytest

from countledger.consumers.groups import GroupItems
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.errors import (
    BadCounterName,
    NoSuchCounter,
    NotRanked,
    ServiceFailed,
)
from countledger.ledger.limits import FORMAT, MEMBERSHIP_LEAVES_MS
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Assign, Drop, Put, Update
from tests.unit.compaction.parts import COUNTERS
from tests.unit.compaction.world import COUNTER, World
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import Plan, afterwards, meanwhile

GROUP = "posts"
NEXT = "likes:next"
_MEMBER, _GROUP = keys.member_key(GROUP, COUNTER), keys.group_key(GROUP)


def _of(key: Item) -> Callable[[Put], bool]:
    """Puts of the item at this key."""
    return lambda put: key.items() <= put.item.items()


def _ranked(*members: str) -> World:
    world = World()
    groups = world.groups()
    groups.add(GROUP, members)
    groups.switch_ranking(GROUP, on=True)
    return world


def _items(world: World) -> GroupItems:
    return GroupItems(connection_on(world.dynamo, world.clock))


def _stored(world: World, key: Item) -> Item:
    return world.dynamo.get(COUNTERS, key, consistent=True) or {}


def _on_board(world: World) -> set[str]:
    return set(world.groups().board(GROUP).strays(()))


# ---- calls at the same time ----


def test_a_ranking_that_another_call_switches_off_meanwhile_is_off() -> None:
    """The call that ends last applies the setting that is stored."""
    world = World()
    groups = world.groups()
    groups.add(GROUP, [COUNTER, NEXT])

    def switch_off(done: int) -> None:
        if done == 1:
            groups.switch_ranking(GROUP, on=False)

    assert groups.switch_ranking(GROUP, on=True, on_member=switch_off) == 2

    assert not groups.get(GROUP).ranked
    assert _on_board(world) == set()


def test_of_two_switches_at_once_the_later_one_is_stored() -> None:
    world = World()
    groups = world.groups()
    groups.add(GROUP, [COUNTER])
    other = meanwhile(lambda: groups.switch_ranking(GROUP, on=True), "put", times=1)
    world.dynamo.plans.append(other)

    groups.switch_ranking(GROUP, on=False)

    assert not groups.get(GROUP).ranked
    assert _on_board(world) == set()


def test_a_group_that_goes_while_a_counter_is_added_is_made_again() -> None:
    """The deletion had listed its members before."""
    world = World()
    groups, items = world.groups(), _items(world)
    groups.add(GROUP, [])
    delete = afterwards(
        lambda: items.delete(GROUP, items.existing(GROUP)), "put", where=_of(_MEMBER)
    )
    world.dynamo.plans.append(delete)

    assert groups.add(GROUP, [COUNTER]) == [COUNTER]

    assert [one.name for one in groups.list()] == [GROUP]
    assert [one.counter for one in groups.top(GROUP)] == [COUNTER]


def test_a_process_that_was_suspended_adds_nothing() -> None:
    """The clean-up of what it left would not find a membership that comes later."""
    world = World()
    groups = world.groups()
    groups.add(GROUP, [])

    def suspended(ms: int) -> Plan:
        return meanwhile(lambda: world.later(ms), "put", where=_of(_MEMBER))

    world.dynamo.plans.append(suspended(MEMBERSHIP_LEAVES_MS + 1))
    with pytest.raises(ServiceFailed, match="was suspended; add the counter to the group again"):
        groups.add(GROUP, [COUNTER])
    assert [*groups.of(COUNTER)] == []

    world.dynamo.plans.append(suspended(MEMBERSHIP_LEAVES_MS))
    assert groups.add(GROUP, [COUNTER]) == [COUNTER]


# ---- counters that cannot be ranked ----


def test_a_member_that_cannot_be_ranked_any_more_stays_a_member() -> None:
    """A later release wrote its total; only an addition that is new is taken back."""
    world = _ranked(COUNTER)
    groups = world.groups()
    clauses = (Assign("v", FORMAT + 1), Drop("ranked_group"))
    newer = Update(COUNTERS, keys.total_key(COUNTER), clauses)
    world.dynamo.update(newer)

    with pytest.raises(NotRanked, match="or its item was written by a later release"):
        groups.add(GROUP, [COUNTER])
    assert [*groups.of(COUNTER)] == [GROUP]

    world.dynamo.put(Put(COUNTERS, {**keys.total_key(NEXT), "v": FORMAT + 1, "total": 1}))
    with pytest.raises(NotRanked):
        groups.add(GROUP, [NEXT])
    assert [*groups.of(NEXT)] == []


@pytest.mark.parametrize(
    ("counter", "item", "error", "reason"),
    [
        ("seats:none", {}, NoSuchCounter, "'seats:none' does not exist, so group 'posts'"),
        ("seats:a", {"bins": 4, "total": 1}, NotRanked, "its value is spread over bins"),
        ("world:a", {}, NotRanked, "is of kind strict-regions, which is not ranked"),
    ],
)
def test_what_cannot_be_ranked_is_refused_with_the_reason(
    counter: str, item: Item, error: type[Exception], reason: str
) -> None:
    world = _ranked(COUNTER)
    world.namespaces.create("seats", kind=Kind.STRICT)
    world.namespaces.create("world", kind=Kind.STRICT_REGIONS)
    if item:
        world.dynamo.put(Put(COUNTERS, {**keys.total_key(counter), **item}))

    with pytest.raises(error, match=reason):
        world.groups().add(GROUP, [counter])

    assert [*world.groups().of(counter)] == []
    assert _on_board(world) == {COUNTER}


def test_a_name_to_go_on_after_is_a_name() -> None:
    world = _ranked(COUNTER, NEXT)

    assert [one.counter for one in world.groups().show(GROUP, after=NEXT)] == [COUNTER]
    with pytest.raises(BadCounterName):
        world.groups().show(GROUP, after="a#b")
