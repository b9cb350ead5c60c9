"""The buffered producer with threads: callbacks, interrupts, and what else has no loop."""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, cast

import pytest

from countledger.ledger.amount import total_of
from countledger.ledger.errors import (
    BadInput,
    IdempotencyKeyReused,
    NoCredentials,
    Throttled,
    Unacknowledged,
    Unclear,
)
from countledger.producers.buffer.producer import BufferedProducer, ThreadedBuffer
from countledger.producers.buffer.sending import BufferState
from countledger.producers.buffer.settings import (
    BufferFull,
    Buffering,
    NotRecorded,
    ProducerClosed,
    StillBuffered,
)
from countledger.producers.event import Event, Receipt, Status
from tests.unit.ledger.memory import Fault, MemoryClient, refuses
from tests.unit.producers.buffers import PATIENT_MS, GatedClient, producer_on
from tests.unit.producers.senders import TABLE, entries_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from countledger.producers.buffer.settings import Failure, PendingEntry

EXPIRED = Fault(NoCredentials("expired"))


@pytest.fixture
def gated() -> GatedClient:
    """A client whose gate is shut."""
    dynamo = GatedClient()
    dynamo.gate.clear()
    return dynamo


def _add_ones(producer: BufferedProducer, count: int) -> list[PendingEntry]:
    return [producer.add("a:b", 1) for _ in range(count)]


def test_a_failure_can_be_sent_again_from_its_callback() -> None:
    """Also while the buffer is full: the thread that calls back does not wait for itself."""
    dynamo = MemoryClient(faults=[Fault(Unclear("lost"))] * 2)
    producer = producer_on(
        dynamo,
        Buffering(max_entries=25, senders=1, attempts=1, linger_ms=PATIENT_MS),
        on_failure=lambda failure: failure.entry and producer.resend(failure.entry),
    )
    _add_ones(producer, 200)
    producer.flush(20)
    while producer.statistics.waiting:
        producer.flush(20)
    producer.close()

    assert len(entries_in(dynamo)) == 200


@pytest.mark.parametrize(
    "ends", [lambda _: 1 / 0, lambda _: sys.exit("enough")], ids=["fails", "ends its thread"]
)
@pytest.mark.parametrize("of", ["an entry", "the producer"])
def test_a_callback_that_breaks_is_logged_and_stops_nothing(
    caplog: pytest.LogCaptureFixture, ends: Callable[[object], object], of: str
) -> None:
    dynamo = MemoryClient(faults=[EXPIRED])
    with producer_on(dynamo, on_failure=ends if of == "the producer" else None) as producer:
        pending = producer.add("a:b", 1)
        if of == "an entry":
            pending.add_done_callback(ends)
        producer.flush(20)
        producer.add("a:b", 2)

    assert entries_in(dynamo) == [2]
    assert "a callback of a buffered producer failed" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.ERROR}


def test_a_keyed_event_does_not_join_the_plain_ones_that_wait() -> None:
    """It is sent by itself, on condition; so of one key there is one entry."""
    dynamo = MemoryClient()
    with producer_on(dynamo) as producer:
        producer.add("a:b", 1)
        keyed = [producer.add("a:b", 5, key="k") for _ in range(2)]
        statuses = [one.result(20).status for one in keyed]
        assert statuses == [Status.RECORDED, Status.DUPLICATE]
        assert entries_in(dynamo) == [5]

    assert sorted(map(int, map(str, entries_in(dynamo)))) == [1, 5]


def test_only_a_failure_is_reported_as_one() -> None:
    """Not what was recorded and has a callback."""
    reported: list[object] = []
    called: list[object] = []
    dynamo = MemoryClient(faults=[EXPIRED])
    with producer_on(dynamo, on_failure=reported.append) as producer:
        for _ in range(2):
            producer.add("a:b", 1).add_done_callback(called.append)
            producer.flush(20)
        assert producer.refused() == []

    assert [len(reported), len(called)] == [1, 2]


def test_an_outcome_that_is_known_is_known_in_a_fork() -> None:
    called: list[object] = []
    with producer_on(MemoryClient(), Buffering(linger_ms=1)) as producer:
        pending = producer.add("a:b", 1)
        pending.result(20)
    producer._here().outcomes.abandon()

    pending.add_done_callback(called.append)

    assert called == [pending]


def test_a_sender_ends_with_its_producer() -> None:
    producer = producer_on(MemoryClient(), Buffering(linger_ms=1))
    producer.add("a:b", 1).result(20)
    known = producer._here()._sender_ids
    senders = [one for one in threading.enumerate() if one.ident in known]

    producer.close(20)
    for sender in senders:
        sender.join(20)

    assert [one.is_alive() for one in senders] == [False]


def test_an_event_that_waits_for_headroom_does_not_wait_for_company_as_well() -> None:
    dynamo = MemoryClient()
    buffering = Buffering(max_entries=30, linger_ms=PATIENT_MS, coalesce=True)
    with producer_on(dynamo, buffering) as producer:
        events = [Event(f"a:{n}", 1) for n in range(100)]
        adder = threading.Thread(target=producer.add_many, args=(events,), daemon=True)
        adder.start()
        adder.join(20)
        assert not adder.is_alive()

    assert len(entries_in(dynamo)) == 100


def test_a_batch_that_is_full_does_not_wait_for_the_linger_time() -> None:
    """Neither the first one, nor a later one while a thread waits for the linger time."""
    with producer_on(MemoryClient(), Buffering(linger_ms=PATIENT_MS)) as producer:
        for _ in range(3):
            added = [producer.add("a:b", 1) for _ in range(25)]
            assert isinstance(added[-1].result(20), Receipt)


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("spooled", [False, True])
def test_an_interrupted_add_holds_no_headroom(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, taken: bool, spooled: bool
) -> None:
    """Ctrl-C strikes anywhere; `close` does not wait for what nobody will bring any more."""
    dynamo = MemoryClient()
    spool = tmp_path / "spool" if spooled else None
    producer = producer_on(dynamo, Buffering(linger_ms=PATIENT_MS, spool=spool))
    producer.add("a:b", 1)

    take_plain = BufferState.take_plain

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def taken_first(state: BufferState, pending: PendingEntry) -> None:
        assert take_plain(state, pending)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BufferState, "take_plain", taken_first if taken else interrupted)
        if taken:
            patch.setattr(ThreadedBuffer, "_wake_for_new", interrupted)
        else:
            patch.setattr(BufferState, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.add("a:b", 1)
    waiting = producer.statistics.waiting
    producer.close(20)

    assert waiting == len(entries_in(dynamo)) == 1 + taken
    assert producer.statistics.waiting == 0


def test_failures_that_nobody_reads_are_bounded() -> None:
    """They hold memory; at last the producer takes no more and says why."""
    dynamo = MemoryClient(faults=[EXPIRED] * 2)
    producer = producer_on(dynamo, Buffering(max_entries=25, linger_ms=PATIENT_MS))
    last = _add_ones(producer, 25)[-1]
    while not last.done:
        threading.Event().wait(0.001)

    with pytest.raises(BufferFull, match="their errors were not read"):
        producer.add("a:b", 1)
    with pytest.raises(NotRecorded):
        producer.flush()
    producer.add("a:b", 1).add_done_callback(lambda _: None)
    producer.close()


def test_what_coalesced_and_was_not_sent_comes_back_as_an_entry(gated: GatedClient) -> None:
    producer = producer_on(gated, Buffering(coalesce=True, linger_ms=PATIENT_MS))
    producer._here().queue.limit = 0
    _add_ones(producer, 3)

    with pytest.raises(NotRecorded) as raised:
        producer.close(0)
    ((entry, _),) = raised.value.failures
    assert entry is not None
    assert (entry.delta, entry.events) == (3, 3)


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("faults", [[], [EXPIRED]], ids=["recorded", "failed"])
def test_a_close_during_a_callback_loses_nothing_that_has_an_outcome(
    faults: list[Fault], *, handled: bool
) -> None:
    """Its batch is not finished before the callback; a failure is told once, as it was."""
    calling, go_on = threading.Event(), threading.Event()

    def callback(_: PendingEntry) -> None:
        calling.set()
        go_on.wait(20)

    told: list[Failure] = []
    on_failure = told.append if handled else None
    producer = producer_on(MemoryClient(faults=[*faults]), on_failure=on_failure)
    pendings = _add_ones(producer, 2)
    pendings[0].add_done_callback(callback)
    producer._here().make_due()
    assert calling.wait(20)

    try:
        producer.close(0)
    except NotRecorded as error:
        told += error.failures
    go_on.set()
    while producer.statistics.under_way:
        threading.Event().wait(0.001)

    # Without `on_failure`, the callback has the error of the first one.
    failed = pendings[not handled :] if faults else []
    assert [(one.entry, type(one.error)) for one in told] == [
        (one.entry, NoCredentials) for one in failed
    ]


def test_a_close_ends_the_flush_of_another_thread(gated: GatedClient) -> None:
    """It has taken from the queue what the flush waits for."""
    producer = producer_on(gated)
    producer._here().queue.limit = 0
    producer.add("a:b", 1)
    flushing = threading.Thread(target=producer.flush, daemon=True)
    flushing.start()
    while not producer._here()._marks:
        threading.Event().wait(0.001)

    with pytest.raises(NotRecorded):
        producer.close(0)
    flushing.join(10)
    assert not flushing.is_alive()


@pytest.mark.parametrize("coalesce", [False, True])
def test_every_event_of_eight_threads_counts_once(*, coalesce: bool) -> None:
    dynamo = MemoryClient()
    with producer_on(dynamo, Buffering(coalesce=coalesce, linger_ms=1)) as producer:

        def add(name: int) -> None:
            for n in range(500):
                producer.add(f"a:{(name + n) % 7}", 1)

        threads = [threading.Thread(target=add, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        assert producer.statistics.events == 4_000
    items = [item for item in dynamo.items(TABLE) if item["entry"].startswith("e#")]
    assert total_of(item["delta"] for item in items) == 4_000
    assert sum(item.get("events", 1) for item in items) == 4_000


def test_an_error_of_one_event_of_a_list_is_its_outcome() -> None:
    events = [Event("a:b", 1), Event("a:b", 1, "k"), Event("a:b", 2, "k"), Event("a:c", 3)]
    with producer_on(MemoryClient(), Buffering(linger_ms=1)) as producer:
        outcomes = producer.record_many(events)

    assert [type(one) for one in outcomes] == [Receipt, Receipt, IdempotencyKeyReused, Receipt]


def test_what_concerns_every_event_is_the_outcome_where_no_client_can_be_made() -> None:
    """Another error may come from anywhere: of that batch nothing is known."""
    errors = [NoCredentials("expired"), ZeroDivisionError("a bug")]

    def fail() -> None:
        raise errors.pop(0)

    producer = producer_on(MemoryClient(), Buffering(), before_client=fail)
    outcomes = producer.record_many([Event("a:b", 1)]) + producer.record_many([Event("a:b", 1)])
    producer.close()

    assert [type(one) for one in outcomes] == [NoCredentials, Unacknowledged]


def test_what_is_no_event_is_one_outcome_of_a_stream() -> None:
    """The others are in the buffer by then."""
    events = [*[Event("a:b", 1)] * 600, cast("Event", "a:b"), Event("a:b", 1)]
    with producer_on(MemoryClient(), Buffering(linger_ms=1)) as producer:
        outcomes = list(producer.record_stream(events))

    assert [type(one) for one in outcomes] == [*[Receipt] * 600, BadInput, Receipt]


def test_a_stream_is_ahead_by_half_of_what_may_wait(gated: GatedClient) -> None:
    """The next event is fetched only after an outcome, so a stream never fills a buffer."""
    fetched: list[int] = []
    outcomes: list[object] = []
    opens = threading.Timer(0.2, gated.gate.set)

    def events() -> Iterator[Event]:
        for number in range(10_000):
            fetched.append(number - len(outcomes))
            if number == 2_500:
                opens.start()
            yield Event("a:b", 1)

    with producer_on(gated, Buffering(linger_ms=1, when_full="error")) as producer:
        for outcome in producer.record_stream(events()):
            outcomes.append(outcome)  # noqa: PERF402 - `events` reads its length meanwhile

    assert max(fetched) == 2_500
    assert [type(one) for one in outcomes] == [Receipt] * 10_000


def test_an_event_that_is_not_taken_is_one_outcome(gated: GatedClient) -> None:
    buffering = Buffering(max_entries=25, when_full="error", linger_ms=PATIENT_MS)
    producer = producer_on(gated, buffering)
    others = [producer.add("a:b", 1) for _ in range(20)]

    def events() -> Iterator[Event]:
        yield from [Event("a:b", 1)] * 8
        gated.gate.set()

    outcomes = list(producer.record_stream(events()))
    producer.close()
    after = list(producer.record_stream([Event("a:b", 1)] * 3))

    assert all(one.done for one in others)
    assert [type(one) for one in outcomes] == [Receipt] * 5 + [BufferFull] * 3
    assert [type(one) for one in after] == [ProducerClosed] * 3


def test_a_lambda_sends_all_before_it_ends() -> None:
    """Also when the handler fails; and it fails when there was no time to send."""
    dynamo = MemoryClient()
    producer = producer_on(dynamo)

    class Context:
        left_ms = 10_000

        def get_remaining_time_in_millis(self) -> int:
            return self.left_ms

    @producer.flushing
    def handler(event: int, context: Context) -> int:
        producer.add("a:b", event)
        if event < 0:
            raise ValueError(event)
        return context.left_ms

    assert handler(1, Context()) == 10_000
    assert entries_in(dynamo) == [1]
    with pytest.raises(ValueError, match="-2"):
        handler(-2, Context())
    assert sorted(map(str, entries_in(dynamo))) == ["-2", "1"]
    hurried = Context()
    hurried.left_ms = 500
    with pytest.raises(StillBuffered):
        handler(3, hurried)
    producer.close()
    assert len(entries_in(dynamo)) == 3


@pytest.fixture
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of its process, Python starts no thread."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.usefixtures("_no_threads")
def test_where_no_thread_can_be_started_the_thread_that_waits_sends() -> None:
    dynamo = MemoryClient()
    producer = producer_on(dynamo, Buffering(max_entries=25, linger_ms=PATIENT_MS))
    _add_ones(producer, 70)
    producer.flush(20)
    assert len(entries_in(dynamo)) == 70
    producer.add("a:b", 1)
    producer.close(20)

    assert len(entries_in(dynamo)) == 71


@pytest.mark.usefixtures("_no_threads")
def test_an_interrupt_while_the_caller_sends_hands_the_batch_back() -> None:
    producer = producer_on(MemoryClient(plans=[refuses(KeyboardInterrupt(), "put_batch")]))
    pending = producer.add("a:b", 1)

    with pytest.raises(KeyboardInterrupt):
        producer.flush()
    with pytest.raises(NotRecorded) as raised:
        producer.flush(5)
    assert [failure.entry for failure in raised.value.failures] == [pending.entry]
    producer.close()


def test_a_namespace_that_cannot_be_read_fails_its_own_entries_alone() -> None:
    """The others of the batch are recorded; once it can be read, so are these."""
    dynamo = MemoryClient()
    unreadable = refuses(
        Throttled("slow"), "get", times=99, where=lambda get: get.key["counter"] == "namespace#bad"
    )
    reads = MemoryClient(tables=dynamo.tables, plans=[unreadable])
    buffering = Buffering(linger_ms=PATIENT_MS, attempts=3)
    with producer_on(dynamo, buffering, reads=reads) as producer:
        producer.add("good:a", 1)
        producer.add("bad:a", 2)
        with pytest.raises(NotRecorded) as raised:
            producer.flush()
        ((entry, error),) = raised.value.failures
        assert entries_in(dynamo) == [1]
        assert isinstance(error, Throttled)
        assert entry is not None
        reads.plans.clear()
        producer.resend(entry)

    assert sorted(map(str, entries_in(dynamo))) == ["1", "2"]


@pytest.mark.parametrize("error", [NoCredentials("none"), OSError("too many open files")])
def test_a_setup_that_fails_comes_back_with_each_entry(error: Exception) -> None:
    def fail() -> None:
        raise error

    producer = producer_on(MemoryClient(), before_client=fail)
    producer.add("a:b", 1)

    with pytest.raises(NotRecorded) as raised:
        producer.close(20)
    assert [failure.entry.delta for failure in raised.value.failures if failure.entry] == [1]
