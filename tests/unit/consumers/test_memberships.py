"""A membership is deleted by its id: a late request takes none that was added since."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from countledger.consumers.rankings import Rankings
from countledger.ledger import keys
from countledger.ledger.errors import AlreadyRanked, ConditionFailed, NoSuchGroup
from countledger.ledger.operations import Put
from tests.unit.compaction.world import COUNTER, World
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import Plan, afterwards, at, meanwhile

GROUP = "posts"
OTHER = "others"
_MEMBERSHIP = keys.member_key(GROUP, COUNTER)["part"]


def _world(*ranked: str) -> World:
    """A group that has no members, and ranked ones."""
    world = World()
    groups = world.groups()
    groups.add(GROUP, [])
    for group in ranked:
        groups.add(group, [])
        groups.switch_ranking(group, on=True)
    return world


@pytest.mark.parametrize("ranked", [(), (GROUP,)], ids=["a group", "a ranked group"])
def test_a_deletion_that_lands_late_takes_no_membership_that_was_added_since(
    ranked: tuple[str, ...],
) -> None:
    """It was sent again, and was answered; then the counter was added again."""
    world, late = _world(*ranked), list[Callable[[], object]]()
    groups = world.groups()
    groups.add(GROUP, [COUNTER])

    def twice(_kind: str, _what: object, request: Callable[[], object]) -> object:
        late.append(request)
        return request()

    world.dynamo.plans.append(at(twice, "put", times=1, where=_removal))
    assert groups.remove(GROUP, [COUNTER]) == [COUNTER]
    assert groups.add(GROUP, [COUNTER]) == [COUNTER]
    with pytest.raises(ConditionFailed):
        late[0]()

    assert [*groups.of(COUNTER)] == [GROUP]
    assert [one.counter for one in groups.top(GROUP)] == [COUNTER]


def test_an_addition_that_is_refused_takes_no_membership_of_somebody_else_back() -> None:
    """The counter left the other ranked group meanwhile, so that another call could add it."""
    world = _world(OTHER, GROUP)
    groups = world.groups()
    groups.add(OTHER, [COUNTER])

    def meanwhile() -> None:
        groups.remove(OTHER, [COUNTER])
        groups.add(GROUP, [COUNTER])

    world.before_removal(_MEMBERSHIP, meanwhile)
    with pytest.raises(AlreadyRanked):
        groups.add(GROUP, [COUNTER])

    assert [*groups.of(COUNTER)] == [GROUP]
    assert [one.counter for one in groups.top(GROUP)] == [COUNTER]


def test_deleting_what_is_no_member_deletes_nothing() -> None:
    assert _world().groups().remove(GROUP, [COUNTER]) == []


def _makes_again(world: World, *, ranked: bool) -> Callable[[], None]:
    """Another call deletes the group, and makes it again with the same member."""
    other = world.groups()

    def act() -> None:
        with suppress(NoSuchGroup):
            other.delete(GROUP)
        other.add(GROUP, [COUNTER])
        if ranked:
            other.switch_ranking(GROUP, on=True)

    return act


def _of_group(put: Put) -> bool:
    return keys.group_key(GROUP).items() <= put.item.items()


def _removal(put: Put) -> bool:
    return "removed" in put.item


def _removal_of_group(put: Put) -> bool:
    return _removal(put) and put.item["counter"] == keys.GROUP_PREFIX


_SUSPENDED = {
    "before it lists the members": lambda act: meanwhile(act, "query", times=1),
    "after it listed the members": lambda act: afterwards(act, "query", times=1),
    "before it deletes a member": lambda act: meanwhile(act, "put", where=_removal),
    "before it deletes the group": lambda act: meanwhile(act, "put", where=_removal_of_group),
    "after it deleted the group": lambda act: afterwards(act, "put", where=_removal_of_group),
}


@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize("suspended", _SUSPENDED.values(), ids=_SUSPENDED)
def test_a_deletion_of_a_group_takes_no_member_of_the_next_group(
    suspended: Callable[[Callable[[], object]], Plan], *, ranked: bool
) -> None:
    """It was suspended; meanwhile the group was deleted, and made again with the same member."""
    world = _world(GROUP) if ranked else _world()
    groups = world.groups()
    groups.add(GROUP, [COUNTER])

    world.dynamo.plans.append(suspended(_makes_again(world, ranked=ranked)))
    groups.delete(GROUP)

    assert [*groups.of(COUNTER)] == [GROUP]
    assert [one.counter for one in groups.top(GROUP)] == [COUNTER]


def test_a_switch_that_lands_late_does_not_rank_the_next_group() -> None:
    """It would be ranked, and its members would have no place."""
    world = _world()
    groups = world.groups()
    groups.add(GROUP, [COUNTER])

    again = _makes_again(world, ranked=False)
    world.dynamo.plans.append(meanwhile(again, "put", times=1, where=_of_group))
    with pytest.raises(NoSuchGroup, match="deleted meanwhile"):
        groups.switch_ranking(GROUP, on=True)

    assert [one.counter for one in groups.top(GROUP)] == [COUNTER]


def test_a_switch_that_the_network_delivers_again_does_not_undo_a_later_one() -> None:
    world = _world()
    groups, late = world.groups(), []
    groups.add(GROUP, [COUNTER])

    def twice(_kind: str, _what: object, request: Callable[[], object]) -> object:
        late.append(request)
        return request()

    world.dynamo.plans.append(at(twice, "put", times=1, where=_of_group))
    groups.switch_ranking(GROUP, on=True)
    groups.switch_ranking(GROUP, on=False)
    with pytest.raises(ConditionFailed):
        late[0]()

    assert not groups.get(GROUP).ranked


def test_a_switch_whose_answer_was_lost_was_carried_out() -> None:
    """The SDK sends it again, and meets the first attempt."""
    world = _world()
    groups = world.groups()
    groups.add(GROUP, [COUNTER])

    def again(_kind: str, _what: object, request: Callable[[], object]) -> object:
        request()
        return request()

    world.dynamo.plans.append(at(again, "put", times=1, where=_of_group))
    groups.switch_ranking(GROUP, on=True)

    assert [one.counter for one in groups.top(GROUP)] == [COUNTER]


def test_a_ranking_of_a_namespace_is_not_switched_by_a_request_that_lands_late() -> None:
    world, late = World(), []
    rankings = Rankings(connection_on(world.dynamo, world.clock))

    def twice(_kind: str, _what: object, request: Callable[[], object]) -> object:
        late.append(request)
        return request()

    world.dynamo.plans.append(at(twice, "put", times=1))
    rankings.switch_on("likes", wait=False)
    rankings.switch_off("likes")
    rankings.switch_on("likes", wait=False)
    rankings.switch_off("likes")
    with pytest.raises(ConditionFailed):
        late[0]()

    assert not rankings.is_on("likes")


def test_a_switch_of_a_namespace_whose_answer_was_lost_was_carried_out() -> None:
    """The SDK sends it again, and meets the first attempt."""
    world = World()
    rankings = Rankings(connection_on(world.dynamo, world.clock))

    def again(_kind: str, _what: object, request: Callable[[], object]) -> object:
        request()
        return request()

    world.dynamo.plans.append(at(again, "put", times=1))
    rankings.switch_on("likes", wait=False)

    assert world.dynamo.calls[-4:] == ["put", "put", "scan", "get"]
    assert rankings.is_on("likes")
