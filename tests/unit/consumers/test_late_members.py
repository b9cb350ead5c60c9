"""A request of a group that arrives after a removal brings nothing back."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.errors import ConditionFailed, NoSuchGroup
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    SECOND_MS,
    SIGNED_REQUEST_LIFE_MS,
    TOKEN_LIFE_MS,
)
from countledger.ledger.operations import Put
from tests.unit.compaction.parts import COUNTERS
from tests.unit.compaction.world import COUNTER, World
from tests.unit.ledger.memory import Plan, at

GROUP = "posts"
_MEMBER, _GROUP = keys.member_key(GROUP, COUNTER), keys.group_key(GROUP)
Late = list[Callable[[], Any]]


def _also_late(late: Late, key: Item, number: int = 1) -> Plan:
    """The SDK has no answer to these puts, and sends each again; the first attempts come later."""

    def planned(_kind: str, _what: object, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        late.append(request)
        return request()

    def fits(put: Put) -> bool:
        return key.items() <= put.item.items()

    return at(planned, "put", times=number, where=fits)


def _arrive(late: Late) -> None:
    for request in late:
        with suppress(ConditionFailed):
            request()


def _stored(world: World, key: Item) -> Item | None:
    return world.dynamo.get(COUNTERS, key, consistent=True)


@pytest.mark.parametrize("added", [1, 2])
def test_a_late_addition_brings_no_membership_back(added: int) -> None:
    """A membership that was new, and one that was renewed."""
    world, late = World(), Late()
    groups = world.groups()
    groups.add(GROUP, [])
    world.dynamo.plans.append(_also_late(late, _MEMBER, 3))
    for _ in range(added):
        groups.add(GROUP, [COUNTER])
    assert groups.remove(GROUP, [COUNTER]) == [COUNTER]

    _arrive(late)

    assert len(late) == 3 if added > 1 else late
    assert list(groups.of(COUNTER)) == []
    assert list(groups.show(GROUP)) == []


def test_a_late_renewal_replaces_no_later_membership() -> None:
    """The removal of the later one would not find it."""
    world, late = World(), Late()
    groups = world.groups()
    groups.add(GROUP, [COUNTER])
    world.dynamo.plans.append(_also_late(late, _MEMBER, 2))
    groups.add(GROUP, [COUNTER])
    (later, _) = groups.memberships.join(GROUP, COUNTER)

    _arrive(late)

    assert [one.item for one in groups.memberships.of(COUNTER)] == [later]


def test_a_late_creation_brings_no_group_back() -> None:
    world, late = World(), Late()
    groups = world.groups()
    world.dynamo.plans.append(_also_late(late, _GROUP))
    groups.add(GROUP, [COUNTER])
    groups.delete(GROUP)

    _arrive(late)

    assert len(late) == 1
    assert list(groups.list()) == []
    with pytest.raises(NoSuchGroup):
        groups.get(GROUP)


def test_a_group_and_its_members_leave_tombstones_that_nobody_sees() -> None:
    world = World()
    groups = world.groups()
    groups.add(GROUP, [COUNTER])
    groups.switch_ranking(GROUP, on=True)
    (member, group) = (_stored(world, key) for key in (_MEMBER, _GROUP))
    assert groups.delete(GROUP) == 1

    now_ms = world.clock.now_ms()
    token_life_ms = TOKEN_LIFE_MS - CLOCK_SKEW_DEFAULT_MS
    until_ms = now_ms + SIGNED_REQUEST_LIFE_MS + token_life_ms + 2 * CLOCK_SKEW_DEFAULT_MS
    for key, was in ((_MEMBER, member), (_GROUP, group)):
        assert was is not None
        removed = {"removed": was["incarnation"], "removed_at": now_ms}
        removed["revision"] = was["revision"] + 1
        left = _stored(world, key)
        assert left is not None
        assert left.pop("removal")
        assert left == {**key, **removed, "expires_at": -(-until_ms // SECOND_MS)}
    assert (list(groups.list()), groups.memberships.of(COUNTER)) == ([], [])
    assert list(groups.board(GROUP).members()) == []
    for call in (groups.get, groups.delete, groups.show, groups.top):
        with pytest.raises(NoSuchGroup):
            call(GROUP)
    with pytest.raises(NoSuchGroup):
        groups.switch_ranking(GROUP, on=True)


@pytest.mark.parametrize(
    ("after_ms", "puts"), [(CLOCK_SKEW_DEFAULT_MS, 2), (CLOCK_SKEW_DEFAULT_MS + 1, 1)]
)
def test_a_group_and_a_member_come_again_in_place_of_their_tombstones(
    after_ms: int, puts: int
) -> None:
    world = World()
    groups = world.groups()
    groups.add(GROUP, [COUNTER])
    groups.delete(GROUP)
    world.clock.at_ms += after_ms
    world.dynamo.calls.clear()

    assert groups.add(GROUP, [COUNTER]) == [COUNTER]

    assert world.dynamo.calls.count("put") == 1 + puts
    assert [*groups.of(COUNTER)] == [GROUP]
    member, group = (_stored(world, key) or {} for key in (_MEMBER, _GROUP))
    of_a_record = {"counter", "part", "incarnation", "revision", "changed_by"}
    assert set(member) == {*of_a_record, "member", "at"}
    assert set(group) == {*of_a_record, "on"}


def test_an_addition_whose_answer_was_lost_was_carried_out() -> None:
    """The SDK sends it again, and meets the first attempt."""
    world = World()
    groups = world.groups()
    groups.add(GROUP, [])

    def again(_kind: str, _what: object, request: Callable[[], object]) -> object:
        request()
        return request()

    world.dynamo.plans.append(at(again, "put", times=1))

    assert groups.add(GROUP, [COUNTER]) == [COUNTER]
