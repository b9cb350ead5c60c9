"""From a tick to work, from work to settled counters, through failures of any part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from countledger.compaction.dispatcher import (
    CompactCounter,
    Dispatcher,
    Work,
    batches,
    encode_work,
    parse_work,
)
from countledger.compaction.due import SEGMENTS, SWEEP_AFTER_MS, Sweeper, SweepSegment
from countledger.compaction.report import RunOutcome
from countledger.compaction.worker import WorkBatch
from countledger.ledger.due import bucket_of
from countledger.ledger.errors import BadPayload, CorruptItem, ServiceFailed, WrongRegion
from countledger.ledger.limits import DAY_MS, HOUR_MS
from tests.unit.compaction.parts import COUNTERS, HOME, Stack
from tests.unit.ledger.clocks import NOW_MS

if TYPE_CHECKING:
    from countledger.compaction.report import CompactionReport


@pytest.fixture
def stack() -> Stack:
    """A stack with a schedule, swept already."""
    made = Stack()
    made.namespace("likes")
    made.schedules.create("likes", every_ms=HOUR_MS, min_entries=3)
    _schedule(made).pop("unswept_since")
    return made


def _schedule(stack: Stack) -> dict[str, object]:
    return stack.dynamo.tables[COUNTERS]["namespace#likes", "schedule"]


def _due(stack: Stack, counter: str, entries: int = 5, due_at: int = NOW_MS) -> None:
    stack.total(counter, entries=entries, due_at=due_at, due_bucket=bucket_of(counter))


def _dispatcher(stack: Stack) -> Dispatcher:
    return Dispatcher(stack.index, stack.queue, stack.region, HOME, stack.clock)


def _batch(stack: Stack, notes: list[CompactionReport] | None = None) -> WorkBatch:
    sweeper = Sweeper(stack.dynamo, COUNTERS, stack.clock)
    kept: list[CompactionReport] = [] if notes is None else notes
    return WorkBatch(stack.worker(), sweeper, stack.queue, stack.clock, kept.append)


# ---- the dispatcher ----


def test_what_is_due_is_sent_and_nothing_else(stack: Stack) -> None:
    """Whatever the number: one message for each counter."""
    due = [f"likes:{number}" for number in range(57)]
    for counter in due:
        _due(stack, counter)
    _due(stack, "likes:later", due_at=NOW_MS + 1)
    _due(stack, "other:x")
    stack.total("likes:idle", entries=2)

    done = _dispatcher(stack).dispatch("likes")

    assert (done.due, done.sent, done.swept) == (57, 57, False)
    assert sorted(stack.queue.sent, key=str) == sorted(map(CompactCounter, due), key=str)


def test_a_counter_that_ages_with_no_writes_becomes_due(stack: Stack) -> None:
    """Time alone brings it up."""
    _due(stack, "likes:old", due_at=NOW_MS + DAY_MS)
    assert _dispatcher(stack).dispatch("likes").due == 0
    stack.clock.at_ms += DAY_MS

    assert _dispatcher(stack).dispatch("likes").sent == 1


def test_nothing_is_queued_twice_over_while_the_workers_are_behind(stack: Stack) -> None:
    """The index keeps what is due; the queue need not."""
    _due(stack, "likes:a")
    object.__setattr__(stack.queue, "waiting", 10_001)

    done = _dispatcher(stack).dispatch("likes")

    assert (done.sent, done.backlog) == (0, 10_001)
    assert "late" in done.detail


def test_what_the_queue_does_not_take_stays_due(stack: Stack) -> None:
    """The next tick sends it."""
    for number in range(30):
        _due(stack, f"likes:{number}")
    object.__setattr__(stack.queue, "takes", 12)

    done = _dispatcher(stack).dispatch("likes")

    assert (done.due, done.sent) == (30, 12)


def test_a_dispatcher_stops_at_its_deadline(stack: Stack) -> None:
    """After the calls that are under way."""
    for number in range(3_000):
        _due(stack, f"likes:{number}")

    done = _dispatcher(stack).dispatch("likes", deadline_ms=NOW_MS)

    assert 0 < done.sent < 3_000


def test_a_tick_without_a_schedule_does_nothing(stack: Stack) -> None:
    """It was deleted a moment ago."""
    _due(stack, "likes:a")
    stack.schedules.delete("likes")

    assert _dispatcher(stack).dispatch("likes").detail == "it has no schedule"
    assert stack.queue.sent == []


def test_a_dispatcher_refuses_what_is_not_of_its_region(stack: Stack) -> None:
    """Neither abroad, nor a schedule from elsewhere."""
    with pytest.raises(WrongRegion):
        Dispatcher(stack.index, stack.queue, "abroad-1", HOME, stack.clock).dispatch("likes")
    _schedule(stack)["region"] = "far-1"
    with pytest.raises(WrongRegion, match="far-1"):
        _dispatcher(stack).dispatch("likes")


def test_a_schedule_that_cannot_be_read_is_an_error_here(stack: Stack) -> None:
    """The alarm of the dispatcher is where a person hears of it."""
    _schedule(stack)["min_entries"] = "many"

    with pytest.raises(CorruptItem, match="min_entries"):
        _dispatcher(stack).dispatch("likes")


def test_a_sweep_is_sent_once_when_all_materializers_know(stack: Stack) -> None:
    """Not before, and not again."""
    _schedule(stack)["unswept_since"] = NOW_MS
    assert not _dispatcher(stack).dispatch("likes").swept
    stack.clock.at_ms += SWEEP_AFTER_MS

    assert _dispatcher(stack).dispatch("likes").swept

    assert len(stack.queue.sent) == SEGMENTS
    assert not _dispatcher(stack).dispatch("likes").swept
    assert stack.schedules.get("likes").min_entries == 3


def test_a_sweep_that_could_not_be_queued_is_owed_still(stack: Stack) -> None:
    """The next tick sends it whole."""
    _schedule(stack)["unswept_since"] = NOW_MS - SWEEP_AFTER_MS
    object.__setattr__(stack.queue, "takes", 3)
    with pytest.raises(ServiceFailed):
        _dispatcher(stack).dispatch("likes")
    object.__setattr__(stack.queue, "takes", 10**9)

    assert _dispatcher(stack).dispatch("likes").swept


# ---- messages ----


@pytest.mark.parametrize(
    "work",
    [
        CompactCounter("likes:ünï"),
        SweepSegment("likes", 0, 8),
        SweepSegment("likes", 7, 8, {"counter": "a", "part": "total"}),
    ],
)
def test_work_survives_the_queue(work: Work) -> None:
    """As it was."""
    assert parse_work(encode_work(work)) == work


@pytest.mark.parametrize(
    "body",
    [
        "",
        "nonsense",
        "[]",
        "5",
        "{}",
        '{"counter": 5}',
        '{"counter": "a#b"}',
        '{"counter": "a", "more": 1}',
        '{"sweep": {}}',
        '{"sweep": {"namespace": "n", "segment": 8, "segments": 8, "after": null}}',
        '{"sweep": {"namespace": "n", "segment": 0, "segments": 8, "after": "x"}}',
        '{"sweep": {"namespace": "n", "segment": 0, "segments": 8, "after": {"counter": "a"}}}',
    ],
)
def test_a_message_that_is_none_of_ours_is_refused(body: str) -> None:
    """With its text."""
    with pytest.raises(BadPayload, match="no work"):
        parse_work(body)


def test_messages_go_ten_at_a_time() -> None:
    """What one call takes; none for nothing."""
    made = list(batches(map(CompactCounter, map(str, range(25)))))

    assert [len(one) for one in made] == [10, 10, 5]
    assert list(batches([])) == []


# ---- the worker ----


def test_a_merged_counter_leaves_the_index(stack: Stack) -> None:
    """What its head stands for is noted, and what is left is too little."""
    _due(stack, "likes:a", entries=5)
    stack.compactor.compacted["likes:a"] = 4

    report = stack.worker().compact("likes:a")

    assert report.outcome is RunOutcome.MERGED
    stored = stack.total("likes:a")
    assert stored["compacted"] == 4
    assert "due_at" not in stored


def test_an_entry_that_comes_while_its_counter_is_settled_is_not_forgotten(stack: Stack) -> None:
    """The removal meets new entries: the counter stays in the index, or comes back at once."""
    _due(stack, "likes:a", entries=5)
    stack.compactor.compacted["likes:a"] = 5
    stack.compactor.meanwhile = lambda: stack.total("likes:a", entries=9)

    stack.worker().compact("likes:a")

    stored = stack.total("likes:a")
    assert (stored["compacted"], stored["entries"]) == (5, 9)
    assert stored["due_at"] > NOW_MS


@pytest.mark.parametrize(
    "outcome",
    [
        RunOutcome.WAITING,
        RunOutcome.STOPPED,
        RunOutcome.OVERTAKEN,
        RunOutcome.TAMPERED,
        RunOutcome.FAILED,
    ],
)
def test_a_counter_that_is_not_done_stays_due(stack: Stack, outcome: RunOutcome) -> None:
    """The next run goes on with it."""
    _due(stack, "likes:a")
    stack.compactor.outcomes["likes:a"] = outcome

    stack.worker().compact("likes:a")

    assert stack.total("likes:a")["due_at"] == NOW_MS


def test_a_counter_without_a_total_gets_none_by_compaction(stack: Stack) -> None:
    """A repair makes it, with everything in it."""
    stack.compactor.compacted["likes:a"] = 4

    assert stack.worker().compact("likes:a").outcome is RunOutcome.MERGED
    assert ("likes:a", "total") not in stack.dynamo.tables[COUNTERS]


def test_a_counter_without_a_schedule_can_be_compacted_by_hand(stack: Stack) -> None:
    """What is compacted is noted, and it is due never again."""
    stack.namespace("plain")
    _due(stack, "plain:a", entries=50)
    stack.compactor.compacted["plain:a"] = 10

    stack.worker().compact("plain:a")

    stored = stack.total("plain:a")
    assert stored["compacted"] == 10
    assert "due_at" not in stored


def test_what_is_noted_already_is_not_written_again(stack: Stack) -> None:
    """A run that found nothing costs no write."""
    stack.total("plain:a", entries=10, compacted=10)
    stack.dynamo.calls.clear()

    stack.index.reschedule("plain:a", 10, None)

    assert stack.dynamo.calls == ["get"]


def test_a_failure_to_settle_is_a_failure_and_keeps_what_was_merged(stack: Stack) -> None:
    """Its message comes again, and finds it merged."""
    _due(stack, "likes:a")
    stack.compactor.compacted["likes:a"] = 5
    stack.compactor.meanwhile = lambda: stack.total("likes:a", compacted="corrupt")

    report = stack.worker().compact("likes:a")

    assert (report.outcome, report.merged) == (RunOutcome.FAILED, 5)
    assert "corrupt" in report.detail


def test_a_schedule_is_read_once_by_a_worker(stack: Stack) -> None:
    """And anew by the next one."""
    read: list[str] = []

    def schedule_of(namespace: str) -> None:
        read.append(namespace)

    worker = stack.worker(schedule_of)
    for number in range(5):
        worker.compact(f"likes:{number}")

    assert read == ["likes"]


# ---- a batch of messages ----


def _bodies(*counters: str) -> dict[str, str]:
    return {counter: encode_work(CompactCounter(counter)) for counter in counters}


def test_a_batch_reports_what_failed_and_goes_on(stack: Stack) -> None:
    """A counter that cannot be compacted does not stop the others."""
    for name in "abcd":
        _due(stack, f"likes:{name}")
    stack.compactor.outcomes |= {
        "likes:b": RunOutcome.FAILED,
        "likes:c": RunOutcome.TAMPERED,
    }
    notes: list[CompactionReport] = []
    messages = {
        "m0": "nonsense",
        **_bodies("likes:a", "likes:b", "likes:c", "likes:d", "no-such:x"),
    }

    tally = _batch(stack, notes).run(messages, NOW_MS + HOUR_MS)

    assert tally.again == ["m0", "likes:b"]
    assert list(tally.bad) == ["m0"]
    assert (tally.failed, tally.tampered, tally.not_due) == (2, 1, 1)
    assert [note.counter for note in notes] == ["likes:a", "likes:b", "likes:c", "likes:d"]


def test_a_counter_that_is_due_no_more_costs_a_read(stack: Stack) -> None:
    """Another worker had it, or its message came twice."""
    stack.total("likes:a", entries=50)
    _due(stack, "likes:b", due_at=NOW_MS + 1)

    tally = _batch(stack).run(_bodies("likes:a", "likes:b", "likes:none"), NOW_MS + HOUR_MS)

    assert (tally.not_due, tally.again, stack.compactor.calls) == (3, [], [])


def test_a_worker_stops_before_its_time_is_out(stack: Stack) -> None:
    """What it did not begin is no failure: it is due still, and the next run sends it."""
    for name in "abc":
        _due(stack, f"likes:{name}")
    stack.compactor.takes_ms = HOUR_MS

    tally = _batch(stack).run(_bodies("likes:a", "likes:b", "likes:c"), NOW_MS + 1)

    assert (tally.left, tally.again, stack.compactor.calls) == (2, [], ["likes:a"])
    assert _dispatcher(stack).dispatch("likes").sent >= 2


# ---- the sweep ----


def test_a_sweep_marks_what_should_have_been_in_the_index(stack: Stack) -> None:
    """Those with enough, of its namespace; totals stay as they are."""
    stack.total("likes:enough", entries=3)
    stack.total("likes:few", entries=2)
    stack.total("likes:done", entries=50, compacted=49)
    stack.total("other:enough", entries=50)
    stack.total("likes:corrupt", entries="x")
    body = json.dumps({"sweep": {"namespace": "likes", "segment": 0, "segments": 1, "after": None}})

    tally = _batch(stack).run({"m": body}, NOW_MS + HOUR_MS)

    assert tally.again == []
    marked = {item["counter"] for item in stack.dynamo.items(COUNTERS) if "due_at" in item}
    assert marked == {"likes:enough"}
    assert stack.total("likes:enough")["due_at"] > NOW_MS + DAY_MS


def test_a_sweep_without_a_schedule_does_nothing(stack: Stack) -> None:
    """It was deleted since."""
    stack.total("likes:enough", entries=3)
    stack.schedules.delete("likes")
    body = encode_work(SweepSegment("likes", 0, 1))

    assert _batch(stack).run({"m": body}, NOW_MS + HOUR_MS).again == []
    assert "due_at" not in stack.total("likes:enough")


def test_a_sweep_hands_on_what_there_was_no_time_for(stack: Stack) -> None:
    """Page by page it comes to its end, whoever goes on."""
    names = {f"likes:{number}" for number in range(10)}
    for name in names:
        stack.total(name, entries=3)
    sweeper = Sweeper(stack.dynamo, COUNTERS, stack.clock, page_size=4)
    batch = WorkBatch(stack.worker(), sweeper, stack.queue, stack.clock, lambda _: None)
    stack.queue.sent.append(SweepSegment("likes", 0, 1))
    runs = 0

    while stack.queue.sent:
        body = encode_work(stack.queue.sent.pop())
        assert batch.run({"m": body}, NOW_MS).again == []
        runs += 1

    assert runs == 3
    assert {item["counter"] for item in stack.dynamo.items(COUNTERS) if "due_at" in item} == names


def test_a_rest_that_could_not_be_handed_on_comes_again(stack: Stack) -> None:
    """Its message is not done with."""
    stack.total("likes:a", entries=3)
    stack.total("likes:b", entries=3)
    sweeper = Sweeper(stack.dynamo, COUNTERS, stack.clock, page_size=1)
    object.__setattr__(stack.queue, "takes", 0)
    batch = WorkBatch(stack.worker(), sweeper, stack.queue, stack.clock, lambda _: None)

    assert batch.run({"m": encode_work(SweepSegment("likes", 0, 1))}, NOW_MS).again == ["m"]
