"""The buffered producer of an event loop: as the one with threads, awaited."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest

from countledger.ledger.before_send import leave
from countledger.ledger.errors import (
    BadDelta,
    IdempotencyKeyReused,
    KeyExpired,
    NoCredentials,
    RequestRejected,
    Throttled,
    Unacknowledged,
    Unclear,
)
from countledger.ledger.limits import DAY_MS
from countledger.ledger.namespace import Kind, Namespaces
from countledger.producers.asynchronous.producer import AsyncBufferedProducer
from countledger.producers.asynchronous.sender import AsyncSender
from countledger.producers.buffer.buffering import Buffering
from countledger.producers.buffer.delivery import EntryMaker
from countledger.producers.buffer.errors import (
    BufferFull,
    NotRecorded,
    ProducerClosed,
    StillBuffered,
)
from countledger.producers.buffer.spool import Spool
from countledger.producers.buffer.state import BufferState
from countledger.producers.event import Event, Status
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient
from tests.unit.producers.buffers import PATIENT_MS
from tests.unit.producers.senders import REGION, TABLE, entries_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
    from pathlib import Path

    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Put
    from countledger.producers.asynchronous.dynamo import AsyncDynamoClient
    from countledger.producers.buffer.errors import Failure


class LoopClient(MemoryClient):
    """Tables in memory, behind the interface of a client for event loops."""

    async def put_async(self, write: Put) -> None:
        """As `put`."""
        await asyncio.sleep(0)
        self.put(write)

    async def put_batch_async(self, table: str, items: Sequence[Item]) -> list[Item]:
        """As `put_batch`."""
        await asyncio.sleep(0)
        return self.put_batch(table, items)


def producer_on(
    dynamo: LoopClient,
    buffering: Buffering | None = None,
    clock: ManualClock | None = None,
    on_failure: Callable[[Failure], object] | None = None,
) -> AsyncBufferedProducer:
    """A producer at the home region."""
    buffering = buffering or Buffering(linger_ms=PATIENT_MS)
    clock = clock or ManualClock()

    @asynccontextmanager
    async def open_sender() -> AsyncIterator[AsyncSender]:
        namespaces = Namespaces(MemoryClient(tables=dynamo.tables), TABLE, REGION, REGION)
        yield AsyncSender(cast("AsyncDynamoClient", dynamo), TABLE, namespaces, clock)

    def open_spool() -> Spool | None:
        return None if buffering.spool is None else Spool.open(buffering.spool, ledger="memory")

    return AsyncBufferedProducer(
        buffering,
        open_sender,
        EntryMaker(REGION, clock),
        open_spool=open_spool,
        on_failure=on_failure,
    )


def run(work: Coroutine[object, object, None]) -> None:
    """Run one event loop, for so long and no longer."""
    asyncio.run(asyncio.wait_for(work, 30))


def test_each_event_has_a_receipt_to_be_awaited() -> None:
    """Plain ones by batches of 25, keyed ones by conditional puts."""
    dynamo = LoopClient()

    async def work() -> None:
        async with producer_on(dynamo) as producer:
            plain = [await producer.add("a:b", 1) for _ in range(60)]
            first = await producer.add("a:b", 5, key="k")
            again = await producer.add("a:b", 5, key="k")
            other = await producer.add("a:b", 6, key="k")
            assert (await first).status is Status.RECORDED
            assert (await again).status is Status.DUPLICATE
            with pytest.raises(IdempotencyKeyReused):
                await other
            await producer.flush()
            assert all(pending.done for pending in plain)
            assert producer.statistics.recorded == 61

    run(work())
    assert len(entries_in(dynamo)) == 61
    assert dynamo.calls.count("put_batch") == 3


def test_time_alone_sends_what_waits() -> None:
    """Nobody flushes."""
    dynamo = LoopClient()

    async def work() -> None:
        async with producer_on(dynamo, Buffering(linger_ms=5)) as producer:
            assert (await (await producer.add("a:b", 1))).status is Status.RECORDED

    run(work())


def test_coalesced_events_are_one_entry() -> None:
    """Sum and number."""
    dynamo = LoopClient()

    async def work() -> None:
        buffering = Buffering(coalesce=True, linger_ms=PATIENT_MS)
        async with producer_on(dynamo, buffering) as producer:
            for delta in (1, 2, 4):
                await producer.add("a:b", delta)

    run(work())
    (item,) = [item for item in dynamo.items(TABLE) if item["entry"].startswith("e#")]
    assert (item["delta"], item["events"]) == (7, 3)


def test_bad_input_is_refused_at_once() -> None:
    """From the call itself."""

    async def work() -> None:
        async with producer_on(LoopClient()) as producer:
            with pytest.raises(BadDelta):
                await producer.add("a:b", 0)
        with pytest.raises(ProducerClosed):
            await producer.add("a:b", 1)

    run(work())


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("error", [Unclear("lost"), Throttled("slow")])
def test_a_fault_is_got_over_and_faults_without_end_come_back(
    error: Exception, key: str | None
) -> None:
    """With the entry, which can be sent again and counts once."""
    applied = isinstance(error, Unclear) and key is None
    dynamo = LoopClient(faults=[Fault(error, applied=applied)] * 3)

    async def work() -> None:
        async with producer_on(dynamo, Buffering(linger_ms=1, attempts=2)) as producer:
            pending = await producer.add("a:b", 1, key=key)
            with pytest.raises(Unacknowledged) as raised:
                await pending
            again = await producer.resend(raised.value.entry)
            assert (await again).id == raised.value.entry.id
            assert producer.statistics.waits == 2

    run(work())
    assert entries_in(dynamo) == [1]


def test_an_old_entry_is_refused_and_a_rejected_batch_is_sent_one_by_one() -> None:
    """The rules of the horizon and of the culprit are the same."""
    clock = ManualClock()
    dynamo = LoopClient(faults=[Fault(RequestRejected("no"))])

    async def work() -> None:
        async with producer_on(dynamo, clock=clock) as producer:
            pendings = [await producer.add("a:b", n) for n in (1, 2)]
            await producer.flush()
            assert {(await pending).status for pending in pendings} == {Status.RECORDED}
            old = await producer.add("a:b", 3)
            clock.at_ms += DAY_MS + 1
            with pytest.raises(NotRecorded, match="beyond the horizon"):
                await producer.flush()
            assert old.done

    run(work())
    assert len(entries_in(dynamo)) == 2


@pytest.mark.parametrize("key", [None, "k"])
def test_what_stands_still_behind_its_check_is_not_sent(key: str | None) -> None:
    """The last look is taken as the request leaves, whichever way it goes."""
    clock = ManualClock()

    class Frozen(LoopClient):
        async def put_async(self, write: Put) -> None:
            clock.at_ms += DAY_MS + 1
            leave()
            await super().put_async(write)

        async def put_batch_async(self, table: str, items: Sequence[Item]) -> list[Item]:
            clock.at_ms += DAY_MS + 1
            leave()
            return await super().put_batch_async(table, items)

    dynamo = Frozen()

    async def work() -> None:
        async with producer_on(dynamo, Buffering(linger_ms=1), clock) as producer:
            with pytest.raises(KeyExpired):
                await (await producer.add("a:b", 1, key=key))

    run(work())
    assert entries_in(dynamo) == []


def test_a_failure_is_told_once_and_is_its_counters_alone() -> None:
    """By flush, where nobody has asked."""
    dynamo = LoopClient()
    Namespaces(MemoryClient(tables=dynamo.tables), TABLE, REGION, REGION).create(
        "stock", kind=Kind.STRICT
    )

    async def work() -> None:
        async with producer_on(dynamo) as producer:
            good = await producer.add("a:b", 1)
            await producer.add("stock:b", 1)
            with pytest.raises(NotRecorded) as raised:
                await producer.flush()
            assert len(raised.value.failures) == 1
            assert (await good).status is Status.RECORDED
            await producer.flush()

    run(work())


def test_a_failure_whose_waiter_gave_up_is_told_by_flush() -> None:
    """A request that is cancelled hears nothing; of two that wait, the other one does."""

    class Shut(LoopClient):
        async def put_batch_async(self, table: str, items: Sequence[Item]) -> list[Item]:
            await gate.wait()
            return await super().put_batch_async(table, items)

    gate, dynamo = asyncio.Event(), Shut(faults=[Fault(NoCredentials("expired"))] * 2)

    async def work() -> None:
        async with producer_on(dynamo) as producer:
            for others in (0, 1):
                gate.clear()
                pending = await producer.add("a:b", 1)
                waiters = [asyncio.create_task(_awaited(pending)) for _ in range(1 + others)]
                await asyncio.sleep(0)
                waiters.pop().cancel()
                await asyncio.sleep(0)
                gate.set()
                if others:
                    await producer.flush()
                    assert isinstance(await waiters[0], NoCredentials)
                else:
                    with pytest.raises(NotRecorded):
                        await producer.flush()

    run(work())


def test_a_result_is_never_waited_for_on_the_loop_itself() -> None:
    """Nothing could be sent meanwhile: it would wait for ever."""
    dynamo = LoopClient()

    async def work() -> None:
        async with producer_on(dynamo) as producer:
            pending = await producer.add("a:b", 1)
            with pytest.raises(TimeoutError, match="await it"):
                pending.result()
            await producer.flush()
            assert pending.result().status is Status.RECORDED

    run(work())


def test_a_full_buffer_refuses_or_waits() -> None:
    """As chosen; nothing is lost."""
    dynamo = LoopClient()

    async def work() -> None:
        error = Buffering(max_entries=25, linger_ms=PATIENT_MS, when_full="error")
        async with producer_on(dynamo, error) as producer:
            await producer.add_many([Event("a:b", 1)] * 25)
            with pytest.raises(BufferFull):
                await producer.add("a:b", 1)
        async with producer_on(dynamo, Buffering(max_entries=25, linger_ms=PATIENT_MS)) as producer:
            await asyncio.gather(*(producer.add("a:b", 1) for _ in range(200)))

    run(work())
    assert len(entries_in(dynamo)) == 225


def test_add_many_says_which_events_were_taken_where_it_fails() -> None:
    """The first ones, in their order; of events that cannot be gathered none is taken."""
    dynamo = LoopClient()

    async def work() -> None:
        buffering = Buffering(max_entries=25, when_full="error", linger_ms=PATIENT_MS)
        async with producer_on(dynamo, buffering) as producer:
            with pytest.raises(BadDelta):
                await producer.add_many(Event("a:b", delta) for delta in (1, 2, 0))
            with pytest.raises(BufferFull) as raised:
                await producer.add_many(Event("a:b", n) for n in range(1, 60))
            assert [one.delta for one in raised.value.taken] == list(range(1, 26))

    run(work())
    assert len(entries_in(dynamo)) == 25


def test_of_many_who_wait_for_room_one_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Did all look whenever a batch ends, a loop with thousands of them would send nothing."""
    looks: list[int] = []
    has_headroom = BufferState.has_headroom

    def counted(state: BufferState, entries: int, size: int) -> bool:
        looks.append(entries)
        return has_headroom(state, entries, size)

    monkeypatch.setattr(BufferState, "has_headroom", counted)
    dynamo = LoopClient()

    async def work() -> None:
        async with producer_on(dynamo, Buffering(max_entries=25, linger_ms=PATIENT_MS)) as producer:
            await asyncio.gather(*(producer.add("a:b", 1) for _ in range(1_000)))

    run(work())
    assert len(entries_in(dynamo)) == 1_000
    assert len(looks) <= 2 * 1_000


def test_who_gives_up_waiting_for_room_holds_up_nobody() -> None:
    """Nor does the end of the producer leave anybody waiting."""
    gate = asyncio.Event()

    class Shut(LoopClient):
        async def put_batch_async(self, table: str, items: Sequence[Item]) -> list[Item]:
            await gate.wait()
            return await super().put_batch_async(table, items)

    dynamo = Shut()

    async def work() -> None:
        async with producer_on(dynamo, Buffering(max_entries=25, linger_ms=PATIENT_MS)) as producer:
            await producer.add_many([Event("a:b", 1)] * 25)
            waiting = [asyncio.create_task(producer.add("a:b", 1)) for _ in range(5)]
            await asyncio.sleep(0)
            for impatient in (waiting.pop(0), waiting.pop(1)):
                impatient.cancel()
            gate.set()
            await asyncio.gather(*waiting)
            gate.clear()
            await producer.add_many([Event("a:b", 1)] * 22)
            late = [asyncio.create_task(producer.add("a:b", 1)) for _ in range(3)]
            await asyncio.sleep(0)
            closing = asyncio.create_task(producer.close())
            for one in late:
                with pytest.raises(ProducerClosed):
                    await one
            gate.set()
            await closing

    run(work())
    assert len(entries_in(dynamo)) == 50


def test_close_ends_in_time_and_nobody_waits_for_ever() -> None:
    """What is under way comes back, and so does what never was."""

    class Stuck(LoopClient):
        async def put_batch_async(self, table: str, items: Sequence[Item]) -> list[Item]:
            await asyncio.sleep(60)
            return await super().put_batch_async(table, items)

    async def work() -> None:
        producer = producer_on(Stuck(), Buffering(senders=1, linger_ms=PATIENT_MS))
        await producer.__aenter__()
        pendings = await producer.add_many([Event("a:b", 1)] * 30)
        waiter = asyncio.create_task(_awaited(pendings[0]))
        await asyncio.sleep(0)
        with pytest.raises(StillBuffered):
            await producer.flush(0.01)
        with pytest.raises(NotRecorded) as raised:
            await producer.close(0.01)
        assert len(raised.value.failures) == 30
        assert isinstance(await waiter, Unacknowledged)

    run(work())


@pytest.mark.parametrize("begun", [True, False])
def test_a_delivery_that_is_cancelled_hands_its_batch_back(tmp_path: Path, *, begun: bool) -> None:
    """By a library that cancels every task: nobody waits for it for ever, and it counts once."""
    gate = asyncio.Event()

    class Shut(LoopClient):
        async def put_batch_async(self, table: str, items: Sequence[Item]) -> list[Item]:
            await gate.wait()
            return await super().put_batch_async(table, items)

    dynamo = Shut()
    buffering = Buffering(linger_ms=PATIENT_MS, spool=tmp_path / "spool", coalesce=True)

    async def work() -> None:
        async with producer_on(dynamo, buffering) as producer:
            pendings = [await producer.add(f"a:{n}", 1) for n in range(30)]
            producer._buffer.state.queue.make_due()
            producer._buffer.wake()
            sending = set(producer._buffer._tasks)
            assert len(sending) == 2
            if begun:
                await asyncio.sleep(0.01)
            for task in sending:
                task.cancel()
            with pytest.raises(NotRecorded) as raised:
                await asyncio.wait_for(producer.flush(), 5)
            back = [failure.entry for failure in raised.value.failures]
            assert len(back) == 30
            assert {type(one.outcome) for one in pendings} == {Unacknowledged}
            assert producer.statistics.waiting == 0
            gate.set()
            for entry in back:
                assert entry is not None
                await producer.resend(entry)
        async with producer_on(dynamo, buffering) as again:
            assert again.statistics.waiting == 0

    run(work())
    assert entries_in(dynamo) == [1] * 30


@pytest.mark.parametrize("end", ["close", "flush"])
def test_an_end_waits_as_long_as_there_is_progress(end: str) -> None:
    """It takes much longer in all than it is patient; and gives up where nothing is done."""
    gate = asyncio.Event()

    class Slow(LoopClient):
        async def put_batch_async(self, table: str, items: Sequence[Item]) -> list[Item]:
            if len(entries_in(self)) == 500:
                await gate.wait()
            await asyncio.sleep(0.05)
            return await super().put_batch_async(table, items)

    dynamo = Slow()

    async def work() -> None:
        producer = producer_on(dynamo, Buffering(senders=1, patience_ms=500, linger_ms=PATIENT_MS))
        await producer.__aenter__()
        await producer.add_many([Event("a:b", 1)] * 525)
        began_s = asyncio.get_running_loop().time()
        left = StillBuffered if end == "flush" else NotRecorded
        with pytest.raises(left) as raised:
            await (producer.flush() if end == "flush" else producer.close())
        assert asyncio.get_running_loop().time() - began_s > 1.4
        if isinstance(raised.value, NotRecorded):
            assert len(raised.value.failures) == 25
        else:
            assert "no entry was acknowledged or refused for 0.5 s; 25 entries" in str(raised.value)
            gate.set()
            await producer.close()

    run(work())
    assert len(entries_in(dynamo)) == (525 if end == "flush" else 500)


def test_whoever_hears_of_failures_hears_once_of_what_a_close_leaves() -> None:
    """And `close` raises nothing."""
    told: list[Failure] = []

    class Stuck(LoopClient):
        async def put_batch_async(self, table: str, items: Sequence[Item]) -> list[Item]:
            await asyncio.sleep(60)
            return await super().put_batch_async(table, items)

    async def work() -> None:
        buffering = Buffering(senders=1, linger_ms=PATIENT_MS)
        producer = producer_on(Stuck(), buffering, on_failure=told.append)
        await producer.__aenter__()
        await producer.add_many([Event("a:b", 1)] * 30)
        await asyncio.sleep(0)
        await producer.close(0.01)
        await asyncio.sleep(0.01)
        assert len({failure.entry.id for failure in told if failure.entry}) == len(told) == 30

    run(work())


def test_a_close_that_is_cancelled_lets_go_of_everything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a server does that has waited for long enough: nobody waits for ever, all is told."""
    gate = asyncio.Event()

    class Shut(LoopClient):
        async def put_batch_async(self, table: str, items: Sequence[Item]) -> list[Item]:
            await gate.wait()
            return await super().put_batch_async(table, items)

    buffering = Buffering(senders=1, linger_ms=PATIENT_MS, spool=tmp_path / "spool")
    dynamo = Shut()

    async def work() -> None:
        producer = producer_on(dynamo, buffering)
        await producer.__aenter__()
        pendings = await producer.add_many([Event("a:b", 1)] * 30)
        waiters = [asyncio.create_task(_awaited(one)) for one in (pendings[0], pendings[-1])]
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert [type(await one) for one in waiters] == [Unacknowledged] * 2
        gate.set()
        async with producer_on(dynamo, buffering) as again:
            await again.flush()

    run(work())
    assert len(entries_in(dynamo)) == 30
    assert "close was cancelled with 29 entries left" in caplog.text


async def _awaited(pending: object) -> object:
    try:
        return await pending  # type: ignore[misc]
    except (Unacknowledged, NoCredentials) as error:
        return error


def test_a_spool_keeps_what_is_not_acknowledged(tmp_path: Path) -> None:
    """For the next start, which sends it under the same id."""
    dynamo = LoopClient(faults=[Fault(NoCredentials("expired"))])
    buffering = Buffering(spool=tmp_path / "spool", linger_ms=PATIENT_MS)

    async def first() -> None:
        with pytest.raises(NotRecorded):
            async with producer_on(dynamo, buffering) as producer:
                await producer.add("a:b", 1)

    async def second() -> None:
        async with producer_on(dynamo, buffering) as producer:
            assert producer.statistics.waiting == 1

    run(first())
    assert entries_in(dynamo) == []
    run(second())
    run(second_is_empty(dynamo, buffering))
    assert entries_in(dynamo) == [1]


async def second_is_empty(dynamo: LoopClient, buffering: Buffering) -> None:
    """What was acknowledged has left the spool."""
    async with producer_on(dynamo, buffering) as producer:
        assert producer.statistics.waiting == 0
