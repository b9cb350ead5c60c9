"""Members and places on a board agree, in whichever gap between two requests another call runs.

A counter is on the board of a group if it is a member and the group is ranked, and on no other.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import product

import pytest

from countledger import errors
from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.connection import POLICY
from countledger.testing import MemoryStack

_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
_X = "likes:x"
_GROUP = "top"
_GAPS = 40
_FEW_GAPS = 8
Call = Callable[[MemoryStack], object]


def _stack(*, ranked: bool, member: bool) -> MemoryStack:
    made = MemoryStack(at=_AT)
    made.ledger.record(_X, 1)
    made.ledger.groups.add(_GROUP, [_X] if member else [])
    if ranked:
        made.ledger.groups.switch_ranking(_GROUP, on=True)
    return made


def _add(stack: MemoryStack) -> object:
    return stack.ledger.groups.add(_GROUP, [_X])


def _remove(stack: MemoryStack) -> object:
    return stack.ledger.groups.remove(_GROUP, [_X])


def _delete(stack: MemoryStack) -> object:
    return stack.ledger.groups.delete(_GROUP)


def _rank(stack: MemoryStack) -> object:
    return stack.ledger.groups.switch_ranking(_GROUP, on=True)


def _unrank(stack: MemoryStack) -> object:
    return stack.ledger.groups.switch_ranking(_GROUP, on=False)


def _in_turn(*calls: Call) -> Call:
    def act(stack: MemoryStack) -> None:
        for call in calls:
            with suppress(errors.NoSuchGroup):
                call(stack)

    return act


def _gaps(begin: Callable[[], MemoryStack], first: Call, other: Call) -> Iterator[MemoryStack]:
    """The stack after both calls: the other one ran in each gap of the first one."""
    for skip in range(_GAPS):
        stack, ran = begin(), list[int]()

        def meanwhile(stack: MemoryStack = stack, ran: list[int] = ran) -> None:
            ran.append(1)
            other(stack)

        stack.before_next_request(meanwhile, skip=skip)
        with suppress(errors.NoSuchGroup):
            first(stack)
        if not ran:
            assert skip > 1
            return
        yield stack
    raise AssertionError("the call never ends")


def _assert_agrees(stack: MemoryStack) -> None:
    groups = stack.ledger.groups
    is_member = _GROUP in groups.of(_X)
    ranked = any(one.ranked for one in groups.list() if one.name == _GROUP)
    item = stack.ledger.connection.dynamo("standard").get(COUNTERS, keys.total_key(_X))
    place = (item or {}).get("ranked_group", "")
    assert place.startswith(f"group#{_GROUP}#") is (is_member and ranked)
    if ranked:
        assert [one.counter for one in groups.top(_GROUP)] == ([_X] if is_member else [])


@pytest.mark.parametrize("member", [True, False], ids=["member", "none"])
@pytest.mark.parametrize(
    "other",
    [
        _in_turn(_remove, _add),
        _in_turn(_add, _remove),
        _in_turn(_delete, _add),
        _in_turn(_delete, _add, _rank),
        _in_turn(_unrank, _rank),
    ],
    ids=["remove, add", "add, remove", "delete, add", "delete, add, rank", "unrank, rank"],
)
@pytest.mark.parametrize("first", [_add, _remove, _delete, _rank, _unrank])
def test_members_and_places_agree_when_both_calls_have_ended(
    first: Call, other: Call, *, member: bool
) -> None:
    for stack in _gaps(lambda: _stack(ranked=True, member=member), first, other):
        _assert_agrees(stack)


def test_a_member_that_is_removed_and_added_while_it_is_placed_keeps_its_place() -> None:
    """The call that placed it finds it gone, and must take no later place of it away."""
    ended = set[int]()
    for first, second in product(range(_FEW_GAPS), repeat=2):
        stack = _stack(ranked=True, member=False)
        stack.before_next_request(partial(_remove, stack), skip=first)
        stack.before_next_request(partial(_add, stack), skip=second)
        _add(stack)
        ended.add(stack.planned_faults)
        if stack.planned_faults == 0:
            _assert_agrees(stack)
    assert ended == {0, 1, 2}


@pytest.mark.parametrize("ranked", [True, False], ids=["ranked", "unranked"])
@pytest.mark.parametrize(
    "second", [_add, _remove, _delete, _rank, _unrank, _in_turn(_delete, _add)]
)
@pytest.mark.parametrize("first", [_add, _remove, _delete, _rank, _unrank])
def test_members_and_places_agree_when_a_late_write_of_an_earlier_call_has_landed(
    first: Call, second: Call, *, ranked: bool
) -> None:
    for skip in range(_GAPS):
        stack, ran = _stack(ranked=ranked, member=True), list[int]()
        stack.before_next_request(partial(ran.append, 1), skip=skip)
        stack.delay_next()
        with suppress(errors.NoSuchGroup):
            first(stack)
        if not ran:
            assert skip > 1
            return
        with suppress(errors.NoSuchGroup, errors.Unclear):
            second(stack)
        stack.land()
        _assert_agrees(stack)
    raise AssertionError("the call never ends")


def _placed_late(method: str, bins: int = 1) -> MemoryStack:
    """A strict counter and a ranked group, whose next addition writes its place late."""
    stack = MemoryStack(at=_AT)
    stack.ledger.strict.create("seats:a", method=method, bins=bins)
    stack.ledger.groups.add(_GROUP, [])
    stack.ledger.groups.switch_ranking(_GROUP, on=True)
    stack.before_next_request(stack.delay_next, skip=4)
    return stack


def _delayed(stack: MemoryStack, call: Call, skip: int) -> bool:
    """Run a call whose write after so many requests gets no answer: whether it ended `Unclear`."""

    def delay() -> None:
        for _ in range(POLICY.attempts):
            stack.delay_next()

    stack.before_next_request(delay, skip=skip)
    try:
        call(stack)
    except errors.Unclear:
        return True
    return False


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "not recorded"])
@pytest.mark.parametrize("removed", [_remove, _delete, _unrank])
@pytest.mark.parametrize(("placed", "member"), [(_add, False), (_add, True), (_rank, True)])
def test_a_placement_that_lands_after_a_removal_gives_no_place(
    placed: Call, removed: Call, *, member: bool, recorded: bool
) -> None:
    """The removal finds no place, and the call that wrote one does not know it."""
    unclear = 0
    for skip in range(_FEW_GAPS):
        stack = MemoryStack(at=_AT)
        stack.ledger.namespaces.create("likes")
        if recorded:
            stack.ledger.record(_X, 1)
        stack.ledger.groups.add(_GROUP, [_X] if member else [])
        if placed is _add:
            _rank(stack)
        stack.advance(minutes=20)  # what matters is when the placement was sent
        if not _delayed(stack, placed, skip):
            continue
        unclear += 1
        removed(stack)

        stack.land()

        item = stack.ledger.connection.dynamo("standard").get(COUNTERS, keys.total_key(_X))
        assert "ranked_group" not in (item or {}), skip
        if removed is not _delete:
            assert [one.counter for one in stack.ledger.groups.top(_GROUP)] in ([], [_X])
    assert unclear


@pytest.mark.parametrize("removed", [_remove, _delete, _unrank])
def test_a_placement_of_a_group_that_is_first_ranked_during_a_removal_gives_no_place(
    removed: Call,
) -> None:
    """The removal read before it that the group was never ranked."""
    unclear = 0
    for gap, skip in product(range(_GAPS), range(_FEW_GAPS)):
        stack, ended = _stack(ranked=False, member=True), list[bool]()

        def meanwhile(stack: MemoryStack = stack, ended: list[bool] = ended, n: int = skip) -> None:
            ended.append(_delayed(stack, _rank, n))

        stack.before_next_request(meanwhile, skip=gap)
        with suppress(errors.NoSuchGroup, errors.Unclear):
            removed(stack)
        if not any(ended):
            continue
        unclear += 1
        stack.land()

        item = stack.ledger.connection.dynamo("standard").get(COUNTERS, keys.total_key(_X))
        groups = stack.ledger.groups
        ranked = any(one.ranked for one in groups.list())
        if _GROUP not in groups.of(_X) or not ranked:
            assert "ranked_group" not in (item or {}), (gap, skip)
    assert unclear


def test_a_late_placement_gives_no_place_to_the_next_strict_counter_of_that_name() -> None:
    stack = _placed_late("occ")
    strict, groups = stack.ledger.strict, stack.ledger.groups

    groups.add(_GROUP, ["seats:a"])
    strict.delete("seats:a")
    strict.create("seats:a", method="occ")

    (refused,) = stack.land()

    assert isinstance(refused, errors.ConditionFailed)
    assert groups.top(_GROUP) == []


def test_a_refused_placement_is_never_applied_later() -> None:
    """Also one whose first attempt got no answer."""
    stack = _placed_late("atomic", bins=4)

    with pytest.raises(errors.NotRanked, match="bins"):
        stack.ledger.groups.add(_GROUP, ["seats:a"])

    (refused,) = stack.land()
    assert isinstance(refused, errors.ConditionFailed)
    assert stack.ledger.groups.top(_GROUP) == []


def test_no_placement_is_sent_for_a_strict_counter_that_does_not_exist() -> None:
    """No removal could refuse it when it arrives after the counter was created."""
    stack = MemoryStack(at=_AT)
    strict, groups = stack.ledger.strict, stack.ledger.groups
    strict.create("seats:other", method="occ")
    groups.add(_GROUP, [])
    groups.switch_ranking(_GROUP, on=True)
    written = stack.ledger.connection.meter.write_units

    with pytest.raises(errors.NoSuchCounter):
        groups.add(_GROUP, ["seats:a"])

    assert stack.ledger.connection.meter.write_units - written == 4  # the membership, and its end
    strict.create("seats:a", method="occ")
    assert groups.top(_GROUP) == []


@pytest.mark.parametrize("again", [_add, _in_turn(_add, _rank)])
def test_a_deletion_whose_answer_was_lost_leaves_no_place_in_the_group_that_is_made_again(
    again: Call,
) -> None:
    """Its second request meets the new group, and cannot tell whether the first one was applied."""
    lost = 0
    for early, late in product((2, 3, 5), range(6, 18)):
        stack = _stack(ranked=True, member=True)

        def lose(stack: MemoryStack = stack) -> None:
            stack.lose_next_answer()
            stack.before_next_request(partial(again, stack))

        stack.before_next_request(partial(_add, stack), skip=early)
        stack.before_next_request(lose, skip=late)
        with suppress(errors.NoSuchGroup):
            _delete(stack)
        if stack.planned_faults:
            continue
        lost += 1
        _assert_agrees(stack)
    assert lost


@pytest.mark.parametrize(
    ("ranked", "lost", "units"), [(False, 1, (2, 3)), (True, 1, (4, 4)), (True, 4, (4, 4))]
)
def test_a_removal_costs_a_write_unit_more_if_an_answer_is_lost(
    lost: int, units: tuple[float, float], *, ranked: bool
) -> None:
    """Of the membership or of the place: the same request is sent again, and refused."""
    stack = _stack(ranked=ranked, member=True)
    groups, meter = stack.ledger.groups, stack.ledger.connection.meter
    before = meter.write_units, meter.read_units
    stack.before_next_request(stack.lose_next_answer, skip=lost)

    assert groups.remove(_GROUP, [_X]) == [_X]

    assert (meter.write_units - before[0] - 1, meter.read_units - before[1]) == units
    assert groups.top(_GROUP) == []


class _Died(Exception):
    """The process of a call has died before one of its requests."""


def _die() -> None:
    raise _Died


def _dies(stack: MemoryStack, call: Call, skip: int) -> bool:
    """Run a call whose process dies before a request, after so many: whether it died."""
    running = [True]

    def die() -> None:
        if running:
            _die()

    stack.before_next_request(die, skip=skip)
    try:
        call(stack)
    except _Died:
        return True
    running.clear()
    return False


@pytest.mark.parametrize("again", [_add, _remove])
def test_the_same_call_again_completes_one_that_died_while_its_group_was_deleted(
    again: Call,
) -> None:
    """The deletion has looked for members and places before."""
    died = 0
    for gap, skip in product(range(_GAPS), range(_FEW_GAPS)):
        stack, ended = _stack(ranked=True, member=True), list[bool]()

        def meanwhile(stack: MemoryStack = stack, ended: list[bool] = ended, n: int = skip) -> None:
            if again is _remove:
                _add(stack)
            ended.append(_dies(stack, again, n))

        stack.before_next_request(meanwhile, skip=gap)
        with suppress(errors.NoSuchGroup):
            _delete(stack)
        if not any(ended):
            continue
        died += 1
        with suppress(errors.NoSuchGroup):
            again(stack)
        _assert_agrees(stack)
    assert died


@pytest.mark.parametrize("member", [True, False], ids=["member", "none"])
def test_a_removal_takes_off_whom_an_addition_placed_that_died_after_its_group_was_deleted(
    *, member: bool
) -> None:
    """The membership may be gone as well, so that nothing but the place is left."""
    died = 0
    for gap, skip in product(range(_FEW_GAPS), repeat=2):
        stack = _stack(ranked=True, member=member)

        def meanwhile(stack: MemoryStack = stack, n: int = skip) -> None:
            _delete(stack)
            stack.before_next_request(_die, skip=n)

        stack.before_next_request(meanwhile, skip=gap)
        try:
            _add(stack)
        except _Died:
            died += 1
            with suppress(errors.NoSuchGroup):
                _remove(stack)
            _assert_agrees(stack)
    assert died


@pytest.mark.parametrize("ranked", [True, False], ids=["ranked", "unranked"])
def test_a_group_that_another_call_deletes_while_it_is_to_be_made_again_stays_deleted(
    *, ranked: bool
) -> None:
    """The first deletion finds who was added, and the second one deletes both before it goes on."""
    deleted = 0
    for gap, later in product(range(_GAPS), range(_FEW_GAPS)):
        stack, ended = _stack(ranked=ranked, member=True), list[object]()

        def second(stack: MemoryStack = stack, ended: list[object] = ended) -> None:
            with suppress(errors.NoSuchGroup):
                ended.append(_delete(stack))

        def meanwhile(
            stack: MemoryStack = stack, call: Callable[[], None] = second, n: int = later
        ) -> None:
            _add(stack)
            stack.before_next_request(call, skip=n)

        stack.before_next_request(meanwhile, skip=gap)
        with suppress(errors.NoSuchGroup):
            _delete(stack)
        if stack.planned_faults or not ended:
            continue
        deleted += 1
        assert [*stack.ledger.groups.list()] == [], (gap, later)
        _assert_agrees(stack)
    assert deleted


def test_an_addition_makes_no_group_again_that_is_deleted_before_it() -> None:
    """It finds its group gone and itself a member; then others make the group and delete it."""
    deleted = 0
    for first, second in product(range(_FEW_GAPS), repeat=2):
        stack, ended = _stack(ranked=False, member=False), list[int]()

        def later(stack: MemoryStack = stack, ended: list[int] = ended) -> None:
            _add(stack)
            ended.append(_delete(stack) == 1)

        def meanwhile(
            stack: MemoryStack = stack, call: Callable[[], None] = later, n: int = second
        ) -> None:
            _delete(stack)
            stack.before_next_request(call, skip=n)

        stack.before_next_request(meanwhile, skip=first)
        _add(stack)
        if stack.planned_faults or _GROUP in stack.ledger.groups.of(_X):
            continue
        deleted += 1
        assert [*stack.ledger.groups.list()] == [], (first, second)
    assert deleted
