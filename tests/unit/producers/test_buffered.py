"""The buffered producer: `add` returns at once, nothing is lost without a word."""

from __future__ import annotations

import logging
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from countledger.ledger.amount import total_of
from countledger.ledger.errors import (
    BadCounterName,
    BadDelta,
    IdempotencyKeyReused,
    NoCredentials,
    Throttled,
    Unacknowledged,
    Unclear,
    WrongKind,
)
from countledger.ledger.namespace import Kind, Namespaces
from countledger.producers.buffer.buffering import Buffering
from countledger.producers.buffer.delivery import BatchDelivery, EntryMaker
from countledger.producers.buffer.errors import (
    BufferFull,
    NotRecorded,
    ProducerClosed,
    StillBuffered,
)
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.buffer.threaded import ThreadedBuffer
from countledger.producers.event import Event, Receipt, Status
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient
from tests.unit.producers.buffers import PATIENT_MS, producer_on
from tests.unit.producers.senders import REGION, TABLE, entries_in, sender_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from countledger.ledger.attributes import Item, Key
    from countledger.producers.buffer.errors import Failure
    from countledger.producers.buffer.outcomes import PendingEntry

COALESCING = Buffering(coalesce=True, linger_ms=PATIENT_MS)


class GatedClient(MemoryClient):
    """A client that lets nothing through until it is opened."""

    gate = threading.Event()

    def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
        """Wait at the gate."""
        assert self.gate.wait(20)
        return super().put_batch(table, items)


@pytest.fixture
def gated() -> GatedClient:
    """A client whose gate is shut."""
    GatedClient.gate = threading.Event()
    return GatedClient()


def test_each_event_has_a_receipt_to_come() -> None:
    """The future of each tells when it is acknowledged."""
    dynamo = MemoryClient()
    with producer_on(dynamo) as producer:
        pendings = [producer.add("a:b", n) for n in range(1, 61)]
        producer.flush()
        receipts = [pending.result() for pending in pendings]

    assert {receipt.status for receipt in receipts} == {Status.RECORDED}
    assert sorted(map(str, entries_in(dynamo))) == sorted(map(str, range(1, 61)))


def test_an_event_waits_for_others_no_longer_than_it_lingers() -> None:
    """Nobody flushes; time alone sends it."""
    dynamo = MemoryClient()
    producer = producer_on(dynamo, Buffering(linger_ms=5))

    assert producer.add("a:b", 1).result(20).status is Status.RECORDED
    producer.close()


def test_bad_input_is_refused_at_once_and_nothing_is_taken() -> None:
    """The same errors as `record`, from the call itself; when coalescing, too."""
    dynamo = MemoryClient()
    for buffering in (Buffering(), COALESCING):
        with producer_on(dynamo, buffering) as producer:
            producer.add("a:b", 1)
            with pytest.raises(BadCounterName):
                producer.add("a#b", 1)
            with pytest.raises(BadCounterName):
                producer.add(["a:b"], 1)  # type: ignore[arg-type]
            with pytest.raises(BadDelta):
                producer.add("a:b", 0)
            with pytest.raises(BadDelta):
                producer.add("a:b", 0.5)  # type: ignore[arg-type]
            assert producer.statistics.events == 1

    assert entries_in(dynamo) == [1, 1]


def test_keyed_events_go_by_conditional_put_and_are_known_again() -> None:
    """Same key, same delta: duplicate. Another delta: refused, and handed back."""
    dynamo = MemoryClient()
    with producer_on(dynamo) as producer:
        first, again, other = (producer.add("a:b", d, key="k") for d in (1, 1, 2))
        plain = producer.add("a:b", 5)
        assert first.result().status is Status.RECORDED
        assert again.result().status is Status.DUPLICATE
        with pytest.raises(IdempotencyKeyReused):
            other.result()
        producer.flush()
        assert plain.done

    assert sorted(map(str, entries_in(dynamo))) == ["1", "5"]


def test_coalesced_events_are_one_entry_with_their_sum_and_number() -> None:
    """Those with a key, a note or a time of their own stay what they are."""
    dynamo = MemoryClient()
    with producer_on(dynamo, COALESCING) as producer:
        pendings = [producer.add("a:b", delta) for delta in (1, 2, -5)]
        zero = [producer.add("a:zero", delta) for delta in (1, -1)]
        producer.add("a:b", 7, key="k")
        producer.add("a:b", 7, note={"n": "1"})
        producer.add("a:b", 7, occurred_at=datetime(2026, 1, 1, tzinfo=UTC))
        producer.flush()
        assert len({pending.result().id for pending in pendings}) == 1

    items = [item for item in dynamo.items(TABLE) if item["entry"].startswith("e#")]
    facts = sorted((i["counter"], i["delta"], i.get("events", 1)) for i in items)
    assert facts == [("a:b", -2, 3), *[("a:b", 7, 1)] * 3, ("a:zero", 0, 2)]
    assert zero[0] is zero[1]


def test_what_fails_comes_back_with_its_entry_and_can_be_sent_again() -> None:
    """Under the same id: sent again it is the same entry."""
    dynamo = MemoryClient(faults=[Fault(Unclear("lost"), applied=True)] * 3)
    producer = producer_on(dynamo, Buffering(linger_ms=PATIENT_MS, attempts=3))
    producer.add("a:b", 1)

    with pytest.raises(NotRecorded) as raised:
        producer.flush()
    ((entry, error),) = raised.value.failures
    assert isinstance(error, Unacknowledged)
    assert entry is not None
    assert entry == error.entry
    pending = producer.resend(entry)
    producer.close()

    assert pending.result().id == entry.id
    assert entries_in(dynamo) == [1]


def test_a_failure_is_told_once() -> None:
    """To the callback, to who asked for its result, or else by the next flush."""
    told: list[Failure] = []
    dynamo = MemoryClient(faults=[Fault(NoCredentials("expired"))] * 2)
    with producer_on(dynamo, on_failure=told.append) as producer:
        producer.add("a:b", 1)
        producer.flush()
    assert [type(failure.error) for failure in told] == [NoCredentials]

    with producer_on(dynamo) as producer:
        pending = producer.add("a:b", 2)
        heard: list[PendingEntry] = []
        called = producer.add("a:b", 3)
        called.add_done_callback(heard.append)
        with pytest.raises(NotRecorded):
            producer.flush()
        producer.flush()
        assert heard == [called]
        assert isinstance(pending.wait(), NoCredentials)

    dynamo.faults.append(Fault(NoCredentials("expired")))
    with producer_on(dynamo, Buffering(linger_ms=1)) as producer, pytest.raises(NoCredentials):
        producer.add("a:b", 4).result(20)


def test_a_failure_can_be_sent_again_from_its_callback() -> None:
    """Also while the buffer is full: the thread that calls back does not wait for itself."""
    dynamo = MemoryClient(faults=[Fault(Unclear("lost"))] * 2)
    producer = producer_on(
        dynamo,
        Buffering(max_entries=25, senders=1, attempts=1, linger_ms=PATIENT_MS),
        on_failure=lambda failure: failure.entry and producer.resend(failure.entry),
    )
    for _ in range(200):
        producer.add("a:b", 1)
    producer.flush(20)
    while producer.statistics.waiting:
        producer.flush(20)
    producer.close()

    assert len(entries_in(dynamo)) == 200


def test_a_callback_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Its error is logged, and the entries behind it are sent."""
    dynamo = MemoryClient()
    with producer_on(dynamo) as producer, caplog.at_level(logging.ERROR):
        producer.add("a:b", 1).add_done_callback(lambda _: 1 / 0)
        producer.flush()
        producer.add("a:b", 2)

    assert sorted(map(str, entries_in(dynamo))) == ["1", "2"]
    assert "a callback of a buffered producer failed" in caplog.text


def test_a_callback_that_ends_its_thread_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever wants to end the process from there is told that it goes on."""
    dynamo = MemoryClient(faults=[Fault(NoCredentials("expired"))])
    with producer_on(dynamo, on_failure=lambda _: sys.exit("enough")) as producer:
        producer.add("a:b", 1)
        producer.flush(20)
        producer.add("a:b", 2)

    assert entries_in(dynamo) == [2]
    assert "a callback of a buffered producer failed" in caplog.text


def test_an_error_of_one_counter_is_no_other_counters() -> None:
    """A strict counter in the same batch is refused alone."""
    dynamo = MemoryClient()
    sender_on(dynamo, ManualClock()).namespaces.create("stock", kind=Kind.STRICT)
    with producer_on(dynamo) as producer:
        good, bad = producer.add("a:b", 1), producer.add("stock:x", 1)
        with pytest.raises(NotRecorded) as raised:
            producer.flush()

    assert good.result().status is Status.RECORDED
    assert [type(failure.error) for failure in raised.value.failures] == [WrongKind]
    assert bad.done


def test_a_full_buffer_refuses_or_waits(gated: GatedClient) -> None:
    """As chosen; once there is room the waiting one is taken, and nothing is lost."""
    producer = producer_on(gated, Buffering(max_entries=25, when_full="error"))
    for _ in range(25):
        producer.add("a:b", 1)
    with pytest.raises(BufferFull, match="25 entries are not acknowledged"):
        producer.add("a:b", 1)
    patient = producer_on(gated, Buffering(max_entries=25))
    adder = threading.Thread(target=lambda: [patient.add("a:c", 1) for _ in range(60)])
    adder.start()
    GatedClient.gate.set()
    adder.join(20)
    producer.close()
    patient.close()

    assert total_of(map(int, map(str, entries_in(gated)))) == 85


def test_a_full_buffer_hurries() -> None:
    """Who waits for room does not wait for company as well, nor does what would coalesce."""
    dynamo = MemoryClient()
    buffering = Buffering(max_entries=30, linger_ms=PATIENT_MS, coalesce=True)
    with producer_on(dynamo, buffering) as producer:
        events = [Event(f"a:{n}", 1) for n in range(100)]
        adder = threading.Thread(target=producer.add_many, args=(events,), daemon=True)
        adder.start()
        adder.join(20)
        assert not adder.is_alive()

    assert len(entries_in(dynamo)) == 100


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("spooled", [False, True])
def test_an_interrupted_add_holds_no_room(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    taken: bool,  # noqa: FBT001
    spooled: bool,  # noqa: FBT001
) -> None:
    """Ctrl-C strikes anywhere; `close` does not wait for what nobody will bring any more."""
    dynamo = MemoryClient()
    spool = tmp_path / "spool" if spooled else None
    producer = producer_on(dynamo, Buffering(linger_ms=PATIENT_MS, spool=spool))
    producer.add("a:b", 1)
    take = ThreadedBuffer._take

    def interrupted(buffer: ThreadedBuffer, pendings: Sequence[PendingEntry]) -> list[PendingEntry]:
        if taken:
            take(buffer, pendings)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ThreadedBuffer, "_take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.add("a:b", 1)
    waiting = producer.statistics.waiting
    producer.close(20)

    assert waiting == len(entries_in(dynamo)) == 1 + taken
    assert producer.statistics.waiting == 0


def test_failures_that_nobody_asks_after_are_bounded() -> None:
    """They hold memory; at last the producer takes no more and says why."""
    dynamo = MemoryClient(faults=[Fault(NoCredentials("expired"))] * 2)
    producer = producer_on(dynamo, Buffering(max_entries=25, linger_ms=PATIENT_MS))
    last = [producer.add("a:b", 1) for _ in range(25)][-1]
    while not last.done:
        threading.Event().wait(0.001)

    with pytest.raises(BufferFull, match="their errors were not read"):
        producer.add("a:b", 1)
    with pytest.raises(NotRecorded):
        producer.flush()
    producer.add("a:b", 1).add_done_callback(lambda _: None)
    producer.close()


def test_flush_and_close_end_in_time_and_hand_back_what_is_left(gated: GatedClient) -> None:
    """What flush leaves is still sent; what close leaves comes back, entry by entry."""
    producer = producer_on(gated, Buffering(senders=1, linger_ms=PATIENT_MS))
    pendings = [producer.add("a:b", 1) for _ in range(30)]

    with pytest.raises(StillBuffered, match="30 entries"):
        producer.flush(0)
    with pytest.raises(NotRecorded) as raised:
        producer.close(0)
    back = {failure.entry.id for failure in raised.value.failures if failure.entry}
    assert back == {pending.entry.id for pending in pendings if pending.entry}
    GatedClient.gate.set()
    with pytest.raises(ProducerClosed):
        producer.add("a:b", 1)


def test_what_coalesced_and_was_not_sent_comes_back_as_entries(gated: GatedClient) -> None:
    """Sum and number are in them, ready to be sent again."""
    producer = producer_on(gated, COALESCING)
    producer._buffer.queue.limit = 0
    for _ in range(3):
        producer.add("a:b", 2)

    with pytest.raises(NotRecorded) as raised:
        producer.close(0)
    ((entry, _),) = raised.value.failures
    assert entry is not None
    assert (entry.delta, entry.events) == (6, 3)


def test_throttling_slows_down_and_loses_nothing() -> None:
    """Fewer batches on their way at once, and every entry acknowledged in the end."""
    dynamo = MemoryClient(faults=[Fault(Throttled("slow down"))] * 10)
    with producer_on(dynamo, Buffering(linger_ms=PATIENT_MS, senders=4)) as producer:
        for _ in range(500):
            producer.add("a:b", 1)
        producer.flush()
        statistics = producer.statistics

    assert len(entries_in(dynamo)) == statistics.recorded == 500
    assert statistics.waits == 10


def test_threads_add_at_once_and_every_event_counts_once() -> None:
    """Eight of them, coalescing and not."""
    for buffering in (Buffering(linger_ms=1), Buffering(coalesce=True, linger_ms=1)):
        dynamo = MemoryClient()
        with producer_on(dynamo, buffering) as producer:

            def add(name: int, producer: BufferedProducer = producer) -> None:
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


def test_record_many_gives_each_events_outcome_in_order() -> None:
    """Errors are values, as everywhere."""
    dynamo = MemoryClient()
    events = [Event("a:b", 1), Event("a:b", 1, "k"), Event("a:b", 2, "k"), Event("a:c", 3)]
    with producer_on(dynamo, Buffering(linger_ms=1)) as producer:
        outcomes = list(producer.record_many(events))

    assert [type(outcome) for outcome in outcomes] == [
        Receipt,
        Receipt,
        IdempotencyKeyReused,
        Receipt,
    ]


def test_record_many_has_sent_all_when_it_returns() -> None:
    """Nobody has to look at the outcomes; the form that streams adds only while it is iterated."""
    dynamo = MemoryClient()
    with producer_on(dynamo) as producer:
        producer.record_many(Event("a:b", 1) for _ in range(30))
        assert len(entries_in(dynamo)) == 30
        outcomes = producer.record_stream(Event("a:b", 1) for _ in range(30))
        assert producer.statistics.events == 30
        assert len(list(outcomes)) == 30
        assert len(entries_in(dynamo)) == 60


def test_an_event_that_is_not_taken_is_one_outcome(gated: GatedClient) -> None:
    """The others are taken, and nothing hides what became of them."""
    buffering = Buffering(max_entries=25, when_full="error", linger_ms=PATIENT_MS)
    producer = producer_on(gated, buffering)

    def events() -> Iterator[Event]:
        yield from [Event("a:b", 1)] * 30
        GatedClient.gate.set()

    outcomes = list(producer.record_stream(events()))

    assert [type(one) for one in outcomes] == [Receipt] * 25 + [BufferFull] * 5
    producer.close()


def test_events_that_a_closed_producer_does_not_take_are_outcomes_at_once() -> None:
    """A stream of events goes on behind the first of them."""
    producer = producer_on(MemoryClient())
    producer.close()

    outcomes = list(producer.record_stream(Event("a:b", 1) for _ in range(3)))

    assert [type(one) for one in outcomes] == [ProducerClosed] * 3


def test_add_many_says_which_events_were_taken_where_it_fails(gated: GatedClient) -> None:
    """The first ones, in their order."""
    buffering = Buffering(max_entries=60, when_full="error", linger_ms=PATIENT_MS)
    producer = producer_on(gated, buffering)

    with pytest.raises(BufferFull) as raised:
        producer.add_many(Event("a:b", n) for n in range(1, 200))
    with pytest.raises(BadDelta):
        producer.add_many(Event("a:b", delta) for delta in (1, 2, 0))

    GatedClient.gate.set()
    producer.flush()
    assert [one.delta for one in raised.value.taken] == list(range(1, 61))
    assert sorted(map(str, entries_in(gated))) == sorted(map(str, range(1, 61)))
    producer.close()


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


def test_where_no_thread_can_be_started_who_waits_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of its process, a Python refuses new ones; nothing is lost for that."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    dynamo = MemoryClient()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    producer = producer_on(dynamo, Buffering(max_entries=25, linger_ms=PATIENT_MS))
    for _ in range(70):
        producer.add("a:b", 1)
    producer.flush(20)
    assert len(entries_in(dynamo)) == 70
    producer.add("a:b", 1)
    producer.close(20)

    assert len(entries_in(dynamo)) == 71


def test_an_interrupt_while_the_caller_sends_hands_the_batch_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C where no thread can be started: the next flush does not wait for ever."""

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    class Interrupted(MemoryClient):
        def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
            if self.calls:
                return super().put_batch(table, items)
            self.calls.append("interrupted")
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    producer = producer_on(Interrupted())
    pending = producer.add("a:b", 1)

    with pytest.raises(KeyboardInterrupt):
        producer.flush()
    with pytest.raises(NotRecorded) as raised:
        producer.flush(5)
    assert [failure.entry for failure in raised.value.failures] == [pending.entry]
    producer.close()


def test_a_namespace_that_cannot_be_read_fails_its_own_entries_alone() -> None:
    """The others of the batch are recorded; once it can be read, so are these."""
    dynamo, clock = MemoryClient(), ManualClock()
    unreadable = {"namespace#bad"}

    class Unreadable(MemoryClient):
        def get(self, table: str, key: Key, *, consistent: bool = False) -> Item | None:
            if key["counter"] in unreadable:
                raise Throttled("slow down")
            return super().get(table, key, consistent=consistent)

    reads = Unreadable(tables=dynamo.tables)
    sender = replace(sender_on(dynamo, clock), namespaces=Namespaces(reads, TABLE, REGION, REGION))
    with BufferedProducer(
        Buffering(linger_ms=PATIENT_MS),
        lambda: BatchDelivery(sender, 3),
        EntryMaker(REGION, clock),
        ledger="x",
    ) as producer:
        producer.add("good:a", 1)
        producer.add("bad:a", 2)
        with pytest.raises(NotRecorded) as raised:
            producer.flush()
        ((entry, error),) = raised.value.failures
        assert entries_in(dynamo) == [1]
        assert isinstance(error, Throttled)
        assert entry is not None
        unreadable.clear()
        producer.resend(entry)

    assert sorted(map(str, entries_in(dynamo))) == ["1", "2"]


@pytest.mark.parametrize("error", [NoCredentials("none"), OSError("too many open files")])
def test_a_setup_that_fails_comes_back_with_each_entry(error: Exception) -> None:
    """Nothing can be sent, and nothing is lost, whatever went wrong."""

    def make_delivery() -> BatchDelivery:
        raise error

    producer = BufferedProducer(
        Buffering(linger_ms=PATIENT_MS), make_delivery, EntryMaker(REGION), ledger="x"
    )
    producer.add("a:b", 1)

    with pytest.raises(NotRecorded) as raised:
        producer.close(20)
    assert [failure.entry.delta for failure in raised.value.failures if failure.entry] == [1]
