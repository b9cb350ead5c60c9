"""What a deletion refuses, and what it leaves to a later call."""

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from countledger.compaction import deletion
from countledger.compaction.deletion import (
    Deletion,
    DeletionMark,
    DeletionStage,
    deleted,
    plan_deletion,
)
from countledger.ledger import keys
from countledger.ledger.errors import ConditionFailed, Reason, TransactionCancelled, Unclear
from countledger.ledger.exact import ExactReader, Head, encode_head
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.ledger.operations import Put, Write
from countledger.testing import MemoryStack
from tests.unit.compaction.parts import COUNTERS, HOME, LEDGER
from tests.unit.compaction.world import COUNTER, World

_MARKED_WAIT_MS = 30 * HOUR_MS + MINUTE_MS


def test_what_a_late_evaluator_left_is_tidied_before_the_name_is_forgotten() -> None:
    world = World()
    world.record()
    world.delete(DeletionStage.MARKED)
    deleted_ms = world.clock.at_ms
    world.delete(DeletionStage.DELETED, DeletionStage.FORGOTTEN)

    # Clocks, the wait of a membership, the life of a request, and a whole second.
    assert world.tidied == [deleted_ms - MINUTE_MS - MINUTE_MS - 15 * MINUTE_MS - 1_000] * 2


def test_one_counter_that_cannot_be_read_stops_no_other() -> None:
    world = World()
    names = [f"likes:{n}" for n in "abc"]
    for name in names:
        world.record(name)
    own = {"incarnation": "m", "revision": 1}
    corrupt = {**keys.deletion_key("likes:b"), **own, "at": "yesterday"}
    world.dynamo.put(Put(LEDGER, corrupt))

    made = {one.counter: one for one in world.deletions(world.deleter(), names).delete_all("likes")}

    stages = [made[name].stage for name in names]
    assert stages == [DeletionStage.MARKED, DeletionStage.SKIPPED, DeletionStage.MARKED]
    assert "yesterday" in made["likes:b"].detail


@pytest.mark.parametrize("merged", [False, True], ids=["after an empty page", "merged"])
def test_an_entry_made_after_the_mark_stops_a_deletion(*, merged: bool) -> None:
    """Of a merged entry only the head tells when it was made."""
    world = World(hesitant=not merged)
    world.record()
    world.deleter().delete(COUNTER)
    if merged:
        world.record()
    world.later()
    if not merged:
        world.use(1)

    world.delete(DeletionStage.IN_USE)

    assert bool(world.entries()) is not merged
    assert world.total is not None


@pytest.mark.parametrize(
    ("after_ms", "stage"), [(0, DeletionStage.WAITING), (1, DeletionStage.DELETED)]
)
def test_a_deletion_waits_until_no_record_of_its_total_can_come_again(
    after_ms: int, stage: DeletionStage
) -> None:
    """For 30 hours since the total last changed, and not only since the mark."""
    world = World()
    world.record()
    assert world.deleter().delete(COUNTER).stage is DeletionStage.MARKED
    world.later(20 * HOUR_MS)
    world.stack.total(COUNTER, updated_at=world.clock.at_ms)
    world.later(_MARKED_WAIT_MS + after_ms)

    assert world.deleter().delete(COUNTER).stage is stage


# ---- the transaction ----

_HEAD = Head(generation=4, run="run", incarnation="first", sum=5)
_MARK = DeletionMark(counter=COUNTER, id="mark", at_ms=1)


def _put_mark(world: World, mark: DeletionMark) -> None:
    own = {"incarnation": mark.id, "revision": mark.revision, "changed_by": "call"}
    world.dynamo.put(Put(LEDGER, {**deletion.new_mark(mark.counter, mark.at_ms), **own}))


def _planned(world: World, *, with_total: bool) -> tuple[Write, ...]:
    """A deletion as it is planned, of a counter whose head is stored."""
    _put_mark(world, _MARK)
    world.dynamo.put(Put(LEDGER, encode_head(COUNTER, _HEAD)))
    item = world.stack.total(COUNTER) if with_total else None
    after = deleted(_MARK, _HEAD, 2, HOME)
    return plan_deletion((LEDGER, COUNTERS), (_MARK, after), _HEAD, item, "call")


_SINCE: dict[str, tuple[bool, dict[str, object], dict[str, object]]] = {
    "nothing": (True, {}, {}),
    "a later head": (True, {"generation": 5}, {}),
    "a head of another run": (True, {"run": "another run"}, {}),
    "a total that changed": (True, {}, {"version": 7}),
    "a total that was absent": (False, {}, {"version": 1}),
}


@pytest.mark.parametrize(("read", "head", "total"), _SINCE.values(), ids=_SINCE)
def test_numbers_go_only_as_they_were_read(
    head: dict[str, object], total: dict[str, object], *, read: bool
) -> None:
    goes = not head and not total
    world = World()
    writes = _planned(world, with_total=read)
    world.dynamo.tables[LEDGER][COUNTER, keys.HEAD] |= head
    if total:
        world.stack.total(COUNTER, **total)

    with nullcontext() if goes else pytest.raises(TransactionCancelled):
        world.dynamo.transact(writes, "token")

    assert world.head.sum == (0 if goes else 5)
    assert (world.total is None) is goes


def test_a_mark_that_another_deletion_made_is_not_this_one() -> None:
    """It was taken off and made again in the same millisecond: nothing goes, nothing is undone."""
    world = World()
    writes = _planned(world, with_total=True)
    _put_mark(world, replace(_MARK, id="another"))

    with pytest.raises(TransactionCancelled):
        world.dynamo.transact(writes, "token")
    with pytest.raises(ConditionFailed):
        world.dynamo.delete(deletion.unmark_of(LEDGER, _MARK))
    with pytest.raises(ConditionFailed):
        world.dynamo.update(deletion.tidied_of(LEDGER, _MARK))


# ---- late requests ----


@pytest.fixture
def stack() -> MemoryStack:
    """A stack with a counter."""
    made = MemoryStack(at=datetime(2026, 3, 1, 12, tzinfo=UTC))
    made.ledger.record(COUNTER, 5)
    return made


def test_a_late_request_does_not_mark_a_counter_again_that_is_kept(stack: MemoryStack) -> None:
    """The mark was written by the second request; the first one lands after the cancellation."""
    deletions = stack.ledger.deletions
    stack.delay_next()
    assert deletions.delete(COUNTER).stage is DeletionStage.MARKED
    assert deletions.cancel(COUNTER)
    stack.advance(minutes=12)

    (refused,) = stack.land()

    assert isinstance(refused, ConditionFailed)
    assert [*deletions.pending("likes")] == []
    assert not deletions.cancel(COUNTER)


@pytest.mark.parametrize("minutes", [0, 5])
def test_a_counter_that_was_kept_is_marked_again(stack: MemoryStack, minutes: int) -> None:
    """At once, and later: the tombstone of the mark before is in nobody's way."""
    deletions = stack.ledger.deletions
    deletions.delete(COUNTER)
    deletions.cancel(COUNTER)
    stack.advance(minutes=minutes)

    assert deletions.delete(COUNTER).stage is DeletionStage.MARKED
    assert deletions.delete(COUNTER).stage is DeletionStage.WAITING
    assert [*deletions.pending("likes")] == [COUNTER]


def test_a_late_cancellation_leaves_the_next_mark(stack: MemoryStack) -> None:
    deletions = stack.ledger.deletions
    deletions.delete(COUNTER)
    stack.delay_next()
    assert deletions.cancel(COUNTER)
    deletions.delete(COUNTER)

    (refused,) = stack.land()

    assert isinstance(refused, ConditionFailed)
    assert [*deletions.pending("likes")] == [COUNTER]


def test_a_cancellation_that_the_whole_deletion_overtakes_says_that_nothing_was_kept(
    stack: MemoryStack,
) -> None:
    """Its process stood still for two days: neither numbers nor mark are there any more."""
    deletions = stack.ledger.deletions
    deletions.delete(COUNTER)

    def meanwhile() -> None:
        for stage in (DeletionStage.DELETED, DeletionStage.FORGOTTEN):
            stack.advance(hours=31)
            assert deletions.delete(COUNTER).stage is stage

    stack.before_next_request(meanwhile, skip=1)

    assert not deletions.cancel(COUNTER)


def test_a_cancellation_keeps_a_counter_whose_wait_begins_again_at_the_same_time(
    stack: MemoryStack,
) -> None:
    deletions = stack.ledger.deletions
    deletions.delete(COUNTER)
    stack.advance(hours=31)

    def meanwhile() -> None:
        stack.ledger.record(COUNTER, 1)
        stack.advance(hours=31)
        assert deletions.delete(COUNTER).stage is DeletionStage.IN_USE

    stack.before_next_request(meanwhile, skip=1)

    assert deletions.cancel(COUNTER)
    assert [*deletions.pending("likes")] == []


def test_a_cancellation_without_an_answer_is_unclear_once_the_counter_is_marked_again(
    stack: MemoryStack,
) -> None:
    """Its first attempt may have cancelled the deletion, and may not: the mark is another one."""
    deletions = stack.ledger.deletions
    deletions.delete(COUNTER)
    stack.lose_next_answer()
    stack.before_next_request(lambda: deletions.delete(COUNTER))

    with pytest.raises(Unclear):
        deletions.cancel(COUNTER)

    assert [*deletions.pending("likes")] == [COUNTER]


def test_a_deletion_without_an_answer_does_not_say_that_it_was_skipped(stack: MemoryStack) -> None:
    """Its second request does not leave any more; the first one has deleted the counter."""
    stack.ledger.deletions.delete(COUNTER)
    stack.advance(hours=31)
    stack.compact(COUNTER)
    stack.lose_next_answer()
    stack.before_next_request(lambda: stack.advance(minutes=14))

    with pytest.raises(Unclear):
        stack.ledger.deletions.delete(COUNTER)

    assert stack.ledger.deletions.delete(COUNTER).stage is DeletionStage.DELETED


def test_a_deletion_that_may_still_be_applied_does_not_say_that_it_was_skipped(
    stack: MemoryStack,
) -> None:
    """Its second request meets another transaction; the first one lands after the answer."""
    stack.ledger.deletions.delete(COUNTER)
    stack.advance(hours=31)
    stack.compact(COUNTER)
    stack.delay_next()
    stack.fail_next(TransactionCancelled((Reason("TransactionConflict"),)))

    with pytest.raises(Unclear):
        stack.ledger.deletions.delete(COUNTER)

    assert stack.land() == [None]
    assert stack.ledger.exact(COUNTER).value == 0


def test_a_deletion_that_was_kept_is_not_one_that_emptied_the_counter(stack: MemoryStack) -> None:
    """A counter without a head and the tombstone of a mark have no id, which is not the same."""
    stack.ledger.deletions.delete(COUNTER)
    stack.ledger.deletions.cancel(COUNTER)

    exact = ExactReader(stack.ledger.connection)

    assert not exact.is_emptied(COUNTER)


def test_a_late_note_that_nothing_was_deleted_leaves_what_was_noted_since() -> None:
    world = World()
    _put_mark(world, _MARK)
    emptied = deleted(_MARK, _HEAD, 7, HOME)
    world.dynamo.update(deletion.emptied_of(LEDGER, _MARK, emptied, "first"))
    late = deletion.reopened_of(LEDGER, emptied, "late")
    world.dynamo.update(late)
    pending = replace(_MARK, revision=3)
    since = deleted(pending, _HEAD, 8, HOME)
    world.dynamo.update(deletion.emptied_of(LEDGER, pending, since, "second"))

    with pytest.raises(ConditionFailed):
        world.dynamo.update(late)
    assert world.deleter().mark(COUNTER) == since


def test_a_caller_whose_mark_came_second_waits_from_the_one_that_is_there() -> None:
    """Entries were allowed until then, however early the other caller had begun."""
    world = World()
    world.use(1)
    first: list[Deletion] = []

    def earlier() -> None:
        world.clock.at_ms += 1_000
        first.append(world.deleter().delete(COUNTER))

    world.before_write(earlier)
    second = world.deleter().delete(COUNTER)

    assert [one.stage for one in (*first, second)] == [DeletionStage.MARKED] * 2
    assert second.next_at_ms == first[0].next_at_ms
