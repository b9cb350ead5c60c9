"""From a tick to work, from work to rescheduled counters, through failures of any part."""

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from countledger.compaction.dispatcher import (
    CompactCounter,
    Dispatched,
    batches,
    encode_work,
    parse_work,
)
from countledger.compaction.due import SEGMENTS, SWEEP_AFTER_MS, SweepSegment
from countledger.compaction.functions import log_report
from countledger.compaction.report import (
    CompactionReport,
    LastRun,
    LastRunStore,
    RunOutcome,
    WorkDone,
)
from countledger.compaction.worker import WorkBatch
from countledger.ledger import keys
from countledger.ledger.errors import BadPayload, CorruptItem, ServiceFailed, WrongRegion
from countledger.ledger.limits import HOUR_MS
from countledger.ledger.records import write_of
from tests.unit.compaction.parts import COUNTERS, HOME, Stack, dispatcher_in, scheduled
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import Fault, meanwhile

_LATER_MS = NOW_MS + HOUR_MS


@pytest.fixture
def stack() -> Stack:
    """A stack with a schedule, swept already."""
    return scheduled()


def _tick(stack: Stack, region: str = HOME, deadline_ms: int | None = None) -> Dispatched:
    """A tick of the trigger of the stored schedule."""
    revision = write_of(stack.schedule)
    return dispatcher_in(stack, region).dispatch("likes", revision, deadline_ms=deadline_ms)


def _batch(
    stack: Stack, notes: list[CompactionReport] | None = None, page_size: int = 100
) -> WorkBatch:
    kept: list[CompactionReport] = [] if notes is None else notes
    return WorkBatch(stack.connection, kept.append, stack.worker(), page_size=page_size)


def _bodies(*counters: str) -> dict[str, str]:
    return {counter: encode_work(CompactCounter(counter)) for counter in counters}


# ---- the dispatcher ----


def _limited(**limits: int) -> Callable[[Stack], object]:
    def limit(stack: Stack) -> None:
        for name, value in limits.items():
            setattr(stack.queue, name, value)

    return limit


_TICKS: dict[str, tuple[Callable[[Stack], object], int, int, str]] = {
    "all that is due is sent": (lambda _: None, 57, 57, ""),
    "nothing while the workers are late": (_limited(waiting=10_001), 0, 0, "late"),
    "what the queue does not take stays due": (_limited(takes=12), 57, 12, ""),
    "nothing without a schedule": (lambda s: s.schedules.delete("likes"), 0, 0, "no schedule"),
}


@pytest.mark.parametrize(("prepare", "due", "sent", "detail"), _TICKS.values(), ids=_TICKS)
def test_a_tick_sends_what_is_due(
    stack: Stack, prepare: Callable[[Stack], object], due: int, sent: int, detail: str
) -> None:
    counters = [f"likes:{number}" for number in range(57)]
    for counter in counters:
        stack.due(counter)
    stack.due("likes:later", due_at=NOW_MS + 1)
    stack.due("other:x")
    stack.total("likes:idle", entries=2)
    prepare(stack)

    done = _tick(stack)

    assert (done.due, done.sent, done.swept) == (due, sent, False)
    assert detail in done.detail
    assert {str(work) for work in stack.queue.sent} <= {str(CompactCounter(c)) for c in counters}


def test_a_dispatcher_stops_at_its_deadline(stack: Stack) -> None:
    for number in range(3_000):
        stack.due(f"likes:{number}")

    assert 0 < _tick(stack, deadline_ms=NOW_MS).sent < 3_000


_WRONG: dict[str, tuple[str, dict[str, object], type[Exception]]] = {
    "a dispatcher abroad": ("abroad-1", {}, WrongRegion),
    "a schedule from elsewhere": (HOME, {"region": "far-1"}, WrongRegion),
    "a corrupt schedule": (HOME, {"min_entries": "many"}, CorruptItem),
}


@pytest.mark.parametrize(("region", "changed", "error"), _WRONG.values(), ids=_WRONG)
def test_a_tick_that_cannot_be_right_is_an_error(
    stack: Stack, region: str, changed: dict[str, object], error: type[Exception]
) -> None:
    stack.schedule.update(changed)

    with pytest.raises(error):
        _tick(stack, region)


def test_a_sweep_is_sent_whole_and_once_when_all_materializers_know(stack: Stack) -> None:
    stack.schedule["unswept_since"] = NOW_MS
    assert not _tick(stack).swept
    stack.clock.at_ms += SWEEP_AFTER_MS
    _limited(takes=3)(stack)
    with pytest.raises(ServiceFailed):
        _tick(stack)
    _limited(takes=10**9)(stack)

    assert _tick(stack).swept
    assert len(stack.queue.sent) == 3 + SEGMENTS
    assert not _tick(stack).swept
    assert stack.schedules.get("likes").min_entries == 3


# ---- messages ----


_SWEEP = '{"sweep": {"namespace": "n", "segment": %s, "segments": 8, "after": %s}}'


@pytest.mark.parametrize(
    "body",
    [
        *("", "nonsense", "[]", "5", "{}", '{"counter": 5}', '{"counter": "a#b"}'),
        *('{"counter": "a", "more": 1}', '{"sweep": {}}', _SWEEP % (8, "null")),
        *(_SWEEP % (0, '"x"'), _SWEEP % (0, '{"counter": "a"}')),
    ],
)
def test_a_message_that_is_no_work_is_refused(body: str) -> None:
    with pytest.raises(BadPayload, match="no work"):
        parse_work(body)


def test_messages_go_ten_at_a_time() -> None:
    made = list(batches(map(CompactCounter, map(str, range(25)))))

    assert [len(one) for one in made] == [10, 10, 5]
    assert list(batches([])) == []


# ---- the worker ----


_DONE = (RunOutcome.MERGED, RunOutcome.NOTHING)


@pytest.mark.parametrize(
    ("counter", "outcome", "entries", "due"),
    [
        *(("likes:a", outcome, 5, "never") for outcome in _DONE),
        ("likes:a", RunOutcome.MERGED, 9, "later"),
        ("plain:a", RunOutcome.MERGED, 50, "never"),
        *(("likes:a", outcome, 9, "now") for outcome in RunOutcome if outcome not in _DONE),
    ],
    ids=str,
)
def test_after_a_run_a_counter_is_due_as_its_schedule_says(
    stack: Stack, counter: str, outcome: RunOutcome, entries: int, due: str
) -> None:
    """Also by entries that come while it is compacted; `plain` has no schedule."""
    stack.namespace("plain")
    stack.due(counter)
    stack.compactor.outcomes[counter] = outcome
    stack.compactor.compacted[counter] = 4
    stack.compactor.meanwhile = lambda: stack.total(counter, entries=entries)

    assert stack.worker().compact(counter).outcome is outcome

    due_at = stack.total(counter).get("due_at")
    assert due == ("never" if due_at is None else "later" if due_at > NOW_MS else "now")
    assert stack.total(counter).get("compacted") == (4 if outcome in _DONE else None)


def test_a_failure_to_reschedule_is_a_failure_and_keeps_what_was_merged(stack: Stack) -> None:
    stack.due("likes:a")
    stack.compactor.compacted["likes:a"] = 5
    stack.compactor.meanwhile = lambda: stack.total("likes:a", compacted="corrupt")

    report = stack.worker().compact("likes:a")

    assert (report.outcome, report.merged) == (RunOutcome.FAILED, 5)
    assert "corrupt" in report.detail


def test_a_schedule_is_read_once_by_a_worker(stack: Stack) -> None:
    worker, read = stack.worker(), keys.schedule_key("likes")
    gets: list[object] = []
    stack.dynamo.plans.append(
        meanwhile(lambda: gets.append(read), "get", times=9, where=lambda one: one.key == read)
    )
    for number in range(5):
        worker.compact(f"likes:{number}")

    assert len(gets) == 1


# ---- a batch of messages ----


def test_a_batch_reports_what_failed_and_goes_on(stack: Stack) -> None:
    for name in "abcd":
        stack.due(f"likes:{name}")
    stack.compactor.outcomes |= {"likes:b": RunOutcome.FAILED, "likes:c": RunOutcome.TAMPERED}
    notes: list[CompactionReport] = []
    counters = [f"likes:{name}" for name in "abcd"]

    tally = _batch(stack, notes).run(
        {"m0": "nonsense", **_bodies(*counters, "no-such:x")}, _LATER_MS
    )

    assert tally.again == ["m0", "likes:b"]
    assert list(tally.bad) == ["m0"]
    assert (tally.failed, tally.tampered, tally.not_due) == (2, 1, 1)
    assert [note.counter for note in notes] == counters


def test_a_worker_stops_before_its_time_is_out(stack: Stack) -> None:
    """What it did not begin is no failure: it is due still, and the next tick sends it."""
    for name in "abc":
        stack.due(f"likes:{name}")
    stack.compactor.takes_ms = HOUR_MS

    tally = _batch(stack).run(_bodies("likes:a", "likes:b", "likes:c"), NOW_MS + 1)

    assert (tally.left, tally.again, stack.compactor.calls) == (2, [], ["likes:a"])


# ---- the sweep ----


def _marked(stack: Stack) -> set[Any]:
    return {item["counter"] for item in stack.dynamo.items(COUNTERS) if "due_at" in item}


@pytest.mark.parametrize("deleted", [False, True], ids=["", "the schedule was deleted since"])
def test_a_sweep_marks_what_should_have_been_in_the_index(stack: Stack, *, deleted: bool) -> None:
    stack.total("likes:enough", entries=3)
    stack.total("likes:few", entries=2)
    stack.total("likes:done", entries=50, compacted=49)
    stack.total("other:enough", entries=50)
    stack.total("likes:corrupt", entries="x")
    if deleted:
        stack.schedules.delete("likes")

    assert _batch(stack).run({"m": encode_work(SweepSegment("likes", 0, 1))}, _LATER_MS).again == []
    assert _marked(stack) == (set() if deleted else {"likes:enough"})


def test_a_sweep_hands_on_what_there_was_no_time_for(stack: Stack) -> None:
    names = {f"likes:{number}" for number in range(10)}
    for name in names:
        stack.total(name, entries=3)
    stack.queue.sent.append(SweepSegment("likes", 0, 1))
    runs = 0

    while stack.queue.sent:
        body = encode_work(stack.queue.sent.pop())
        assert _batch(stack, page_size=4).run({"m": body}, NOW_MS).again == []
        runs += 1

    assert (runs, _marked(stack)) == (3, names)


def test_a_rest_that_could_not_be_handed_on_comes_again(stack: Stack) -> None:
    for name in ("likes:a", "likes:b"):
        stack.total(name, entries=3)
    _limited(takes=0)(stack)

    batch = _batch(stack, page_size=1)
    assert batch.run({"m": encode_work(SweepSegment("likes", 0, 1))}, NOW_MS).again == ["m"]


# ---- the last run ----


def _store(stack: Stack) -> LastRunStore:
    return LastRunStore(stack.connection)


def _last(stack: Stack) -> LastRun:
    last = _store(stack).last("likes")
    assert last is not None
    return last


def _work(stack: Stack) -> list[str]:
    return _batch(stack).run(_bodies("likes:a", "likes:b"), _LATER_MS).again


@pytest.fixture
def two(stack: Stack) -> Stack:
    """Two counters are due."""
    stack.due("likes:a")
    stack.due("likes:b")
    return stack


def test_a_tick_and_its_work_are_noted_until_the_next_tick(two: Stack) -> None:
    two.compactor.compacted["likes:b"] = 5
    two.compactor.outcomes["likes:a"] = RunOutcome.FAILED
    _tick(two)
    _work(two)
    first = _last(two)
    two.clock.at_ms += HOUR_MS
    _tick(two)
    second = _last(two)

    assert (first.ticked_at_ms, first.due, first.sent, first.worked_at_ms) == (NOW_MS, 2, 2, NOW_MS)
    work = first.work
    assert (work.counters, work.merged, work.failed, work.tampered) == (2, 5, 1, 0)
    assert work.trouble.startswith("likes:a: failed")
    assert (second.ticked_at_ms, second.worked_at_ms) == (NOW_MS + HOUR_MS, None)
    assert second.work == WorkDone()


def test_a_service_that_refuses_to_note_what_is_compacted_is_an_error(stack: Stack) -> None:
    """Else the counter would pass for settled, and each tick would compact nothing of it."""
    stack.due("likes:a")
    stack.dynamo.faults.append(Fault(ServiceFailed("not allowed")))

    with pytest.raises(ServiceFailed, match="not allowed"):
        stack.index.reschedule("likes:a", 5, None)
    assert stack.index.is_due("likes:a")


def test_the_end_of_a_tick_does_not_change_what_the_next_one_noted(stack: Stack) -> None:
    """A tick that took longer than its interval ends after the next one has begun."""
    store = _store(stack)
    slow = store.begin("likes")
    stack.clock.at_ms += HOUR_MS
    store.begin("likes")

    store.end("likes", slow, 7, 7)

    assert (_last(stack).due, _last(stack).sent) == (None, None)


@pytest.mark.parametrize("applied", [False, True])
def test_a_note_that_fails_stops_nobody(two: Stack, *, applied: bool) -> None:
    failing = Fault(ServiceFailed("the note failed"), applied)
    two.dynamo.faults.extend([failing, failing])
    _tick(two)
    assert not two.dynamo.faults, "a tick makes two notes"
    two.dynamo.faults.extend([None, None, failing])

    assert _work(two) == []

    assert not two.dynamo.faults, "two counters were rescheduled, and the note"
    assert len(two.queue.sent) == 2
    assert (_store(two).last("likes") is not None) == applied


# ---- the log ----


@pytest.mark.parametrize("outcome", list(RunOutcome))
def test_a_counter_that_could_not_be_compacted_is_logged_as_an_error(
    outcome: RunOutcome,
) -> None:
    written = StringIO()
    logger = Logger(service=f"test {outcome}", level="DEBUG", stream=written)

    log_report(logger, CompactionReport(counter="a:b", outcome=outcome, detail="why"))

    line = json.loads(written.getvalue())
    failed = outcome in {RunOutcome.FAILED, RunOutcome.TAMPERED}
    assert line["level"] == ("ERROR" if failed else "DEBUG")
    assert line["message"] == ("a counter could not be compacted" if failed else "compacted")
    assert (line["counter"], line["outcome"], line["reason"]) == ("a:b", str(outcome), "why")
