"""What the last run of a schedule came to can be seen, and noting it never stands in the way."""

from __future__ import annotations

import pytest

from countledger.compaction.dispatcher import CompactCounter, Dispatcher, encode_work
from countledger.compaction.due import Sweeper
from countledger.compaction.report import CompactionReport, LastRunStore, RunOutcome, WorkDone
from countledger.compaction.worker import WorkBatch
from countledger.ledger import keys
from countledger.ledger.due import bucket_of
from countledger.ledger.errors import CorruptItem, ServiceFailed
from countledger.ledger.limits import HOUR_MS
from tests.unit.compaction.parts import COUNTERS, HOME, ListedQueue, Stack
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import Fault


@pytest.fixture
def stack() -> Stack:
    """A stack with a schedule, swept already, and two counters that are due."""
    made = Stack()
    made.namespace("likes")
    made.schedules.create("likes", every_ms=HOUR_MS, min_entries=3)
    made.dynamo.tables[COUNTERS]["namespace#likes", "schedule"].pop("unswept_since")
    for name in ("likes:a", "likes:b"):
        made.total(name, entries=5, due_at=NOW_MS, due_bucket=bucket_of(name))
    return made


def _book(stack: Stack) -> LastRunStore:
    return LastRunStore(stack.dynamo, COUNTERS, stack.clock)


def _tick(stack: Stack) -> None:
    Dispatcher(stack.index, stack.queue, stack.region, HOME, stack.clock).dispatch("likes")


def _work(stack: Stack, *counters: str) -> list[str]:
    sweeper = Sweeper(stack.dynamo, COUNTERS, stack.clock)
    batch = WorkBatch(stack.worker(), sweeper, stack.queue, stack.clock, lambda _: None)
    messages = {name: encode_work(CompactCounter(name)) for name in counters}
    return batch.run(messages, NOW_MS + HOUR_MS).again


def test_a_tick_and_its_work_are_noted(stack: Stack) -> None:
    """When it was, what was due, and what became of it."""
    stack.compactor.compacted["likes:a"] = 5
    stack.compactor.outcomes["likes:b"] = RunOutcome.FAILED

    _tick(stack)
    _work(stack, "likes:a", "likes:b")

    last = _book(stack).last("likes")
    assert last is not None
    assert (last.ticked_at_ms, last.due, last.sent, last.worked_at_ms) == (NOW_MS, 2, 2, NOW_MS)
    work = last.work
    assert (work.counters, work.merged, work.failed, work.tampered) == (2, 5, 1, 0)
    assert work.trouble.startswith("likes:b: failed")


def test_each_tick_begins_a_new_page(stack: Stack) -> None:
    """What the one before came to is over, its trouble as well."""
    stack.compactor.outcomes["likes:a"] = RunOutcome.TAMPERED
    _tick(stack)
    _work(stack, "likes:a")
    stack.clock.at_ms += HOUR_MS

    _tick(stack)

    last = _book(stack).last("likes")
    assert last is not None
    assert (last.ticked_at_ms, last.worked_at_ms) == (NOW_MS + HOUR_MS, None)
    assert last.work == WorkDone()


def test_the_end_of_a_tick_does_not_spoil_the_next_ones_page(stack: Stack) -> None:
    """A tick that took longer than its interval ends behind the beginning of the next."""
    book = _book(stack)
    slow = book.begin("likes")
    stack.clock.at_ms += HOUR_MS
    book.begin("likes")

    book.end("likes", slow, 7, 7)

    last = book.last("likes")
    assert last is not None
    assert (last.due, last.sent) == (None, None)


def test_a_tick_that_never_ended_can_be_told(stack: Stack) -> None:
    """The queue failed: the page has a beginning and no end."""
    stack.queue = ListedQueue(takes=0)
    stack.dynamo.tables[COUNTERS]["namespace#likes", "schedule"]["unswept_since"] = 0
    with pytest.raises(ServiceFailed):
        _tick(stack)

    last = _book(stack).last("likes")
    assert last is not None
    assert last.due is None


@pytest.mark.parametrize("applied", [False, True])
def test_a_note_that_fails_stops_nobody(stack: Stack, applied: bool) -> None:  # noqa: FBT001 - a case
    """Counters are sent and worked off all the same, and no message comes again."""
    failing = Fault(ServiceFailed("the note failed"), applied)
    stack.dynamo.faults.extend([failing, failing])
    _tick(stack)
    assert not stack.dynamo.faults, "a tick makes two notes"
    stack.dynamo.faults.extend([None, None, failing])

    assert _work(stack, "likes:a", "likes:b") == []

    assert not stack.dynamo.faults, "two settlements, and the note"
    assert len(stack.queue.sent) == 2
    assert (_book(stack).last("likes") is not None) == applied


def test_what_was_corrupt_by_hand_is_said() -> None:
    """And is no number."""
    stack = Stack()
    stack.dynamo.tables[COUNTERS] = {
        ("namespace#likes", "run"): {**keys.run_key("likes"), "ticked_at": 1, "merged": "many"}
    }
    with pytest.raises(CorruptItem, match="merged"):
        _book(stack).last("likes")


def test_a_long_reason_is_cut() -> None:
    """The page stays below a KB, which is one write unit."""
    work = WorkDone()
    work.take(CompactionReport(counter="c" * 512, outcome=RunOutcome.FAILED, detail="x" * 5000))

    assert len(work.trouble) == 500
