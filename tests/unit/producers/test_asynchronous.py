"""The buffered producer of an event loop: tasks that wait, or are cancelled."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from countledger.ledger.asynchronous.calls import running_call
from countledger.ledger.errors import NoCredentials, Unacknowledged
from countledger.producers.buffer.sending import BufferState
from countledger.producers.buffer.settings import (
    Buffering,
    NotRecorded,
    ProducerClosed,
    StillBuffered,
)
from countledger.producers.event import Event, Status
from tests.unit.ledger.memory import Fault
from tests.unit.producers.buffers import PATIENT_MS, GatedClient, in_a_loop, loop_producer_on
from tests.unit.producers.senders import entries_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from countledger.ledger.attributes import Item

PATIENT = partial(Buffering, linger_ms=PATIENT_MS)


@pytest.fixture
def dynamo() -> GatedClient:
    return GatedClient()


async def _awaited(pending: object) -> object:
    try:
        return await pending  # type: ignore[misc]
    except (Unacknowledged, NoCredentials) as error:
        return error


@pytest.mark.parametrize("others", [0, 1])
@in_a_loop
async def test_a_failure_whose_waiter_was_cancelled_is_reported_to_another_or_by_flush(
    dynamo: GatedClient, others: int
) -> None:
    dynamo.faults.append(Fault(NoCredentials("expired")))
    dynamo.gate.clear()
    async with loop_producer_on(dynamo) as producer:
        pending = await producer.add("a:b", 1)
        waiters = [asyncio.create_task(_awaited(pending)) for _ in range(1 + others)]
        await asyncio.sleep(0)
        waiters.pop().cancel()
        await asyncio.sleep(0)
        dynamo.gate.set()
        if others:
            await producer.flush()
            assert isinstance(await waiters[0], NoCredentials)
        else:
            with pytest.raises(NotRecorded):
                await producer.flush()


@in_a_loop
async def test_a_result_is_never_waited_for_on_the_loop_itself(dynamo: GatedClient) -> None:
    """Nothing could be sent meanwhile: it would wait for ever."""
    async with loop_producer_on(dynamo) as producer:
        pending = await producer.add("a:b", 1)
        with pytest.raises(TimeoutError, match="await it"):
            pending.result()
        await producer.flush()
        assert pending.result().status is Status.RECORDED


@in_a_loop
async def test_of_many_tasks_that_wait_for_headroom_one_looks(dynamo: GatedClient) -> None:
    """Did all look whenever a batch ends, a loop with thousands of them would send nothing."""
    looks: list[int] = []
    has_headroom = BufferState.has_headroom

    def counted(state: BufferState, entries: int, size: int) -> bool:
        looks.append(entries)
        return has_headroom(state, entries, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BufferState, "has_headroom", counted)
        async with loop_producer_on(dynamo, PATIENT(max_entries=25)) as producer:
            await asyncio.gather(*(producer.add("a:b", 1) for _ in range(1_000)))

    assert len(entries_in(dynamo)) == 1_000
    assert len(looks) <= 2 * 1_000


@in_a_loop
async def test_a_task_that_is_cancelled_while_it_waits_for_headroom_holds_up_no_other(
    dynamo: GatedClient,
) -> None:
    dynamo.gate.clear()
    async with loop_producer_on(dynamo, PATIENT(max_entries=25)) as producer:
        await producer.add_many([Event("a:b", 1)] * 25)
        waiting = [asyncio.create_task(producer.add("a:b", 1)) for _ in range(5)]
        await asyncio.sleep(0)
        for impatient in (waiting.pop(0), waiting.pop(1)):
            impatient.cancel()
        dynamo.gate.set()
        await asyncio.gather(*waiting)
        dynamo.gate.clear()
        await producer.add_many([Event("a:b", 1)] * 22)
        late = [asyncio.create_task(producer.add("a:b", 1)) for _ in range(3)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(producer.close())
        for one in late:
            with pytest.raises(ProducerClosed):
                await one
        dynamo.gate.set()
        await closing

    assert len(entries_in(dynamo)) == 50


@in_a_loop
async def test_a_close_that_times_out_answers_each_task_that_waits(dynamo: GatedClient) -> None:
    dynamo.gate.clear()
    producer = loop_producer_on(dynamo, PATIENT(senders=1))
    await producer.__aenter__()
    pendings = await producer.add_many([Event("a:b", 1)] * 30)
    waiter = asyncio.create_task(_awaited(pendings[0]))
    await asyncio.sleep(0)

    with pytest.raises(NotRecorded):
        await producer.close(0.01)

    assert isinstance(await waiter, Unacknowledged)


@pytest.mark.parametrize("begun", [True, False])
@in_a_loop
async def test_a_delivery_that_is_cancelled_hands_its_batch_back(
    dynamo: GatedClient, tmp_path: Path, *, begun: bool
) -> None:
    """By a library that cancels every task: nobody waits for it for ever, and it counts once."""
    dynamo.gate.clear()
    buffering = PATIENT(spool=tmp_path / "spool", coalesce=True)
    async with loop_producer_on(dynamo, buffering) as producer:
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
        dynamo.gate.set()
        for entry in back:
            assert entry is not None
            await producer.resend(entry)
    async with loop_producer_on(dynamo, buffering) as again:
        assert again.statistics.waiting == 0

    assert entries_in(dynamo) == [1] * 30


class _Slow(GatedClient):
    def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
        if len(entries_in(self)) == 500:
            self.gate.clear()
        running_call().sleep(0.05)
        return super().put_batch(table, items)


@pytest.mark.parametrize("end", ["close", "flush"])
@in_a_loop
async def test_an_end_waits_as_long_as_there_is_progress(end: str) -> None:
    """It takes much longer in all than it is patient; and ends where nothing is done."""
    dynamo = _Slow()
    producer = loop_producer_on(dynamo, PATIENT(senders=1, patience_ms=500))
    await producer.__aenter__()
    await producer.add_many([Event("a:b", 1)] * 525)
    began_s = asyncio.get_running_loop().time()
    with pytest.raises((StillBuffered, NotRecorded)) as raised:
        await (producer.flush() if end == "flush" else producer.close())
    assert asyncio.get_running_loop().time() - began_s > 1.4
    if isinstance(raised.value, NotRecorded):
        assert len(raised.value.failures) == 25
    else:
        assert "no entry was acknowledged or refused for 0.5 s; 25 entries" in str(raised.value)
    dynamo.gate.set()
    if end == "flush":
        await producer.close()

    assert len(entries_in(dynamo)) == (525 if end == "flush" else 500)


@in_a_loop
async def test_a_close_that_is_cancelled_answers_all_and_frees_the_spool(
    dynamo: GatedClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a server does that has waited for long enough."""
    dynamo.gate.clear()
    buffering = PATIENT(senders=1, spool=tmp_path / "spool")
    producer = loop_producer_on(dynamo, buffering)
    await producer.__aenter__()
    pendings = await producer.add_many([Event("a:b", 1)] * 30)
    waiters = [asyncio.create_task(_awaited(one)) for one in (pendings[0], pendings[-1])]
    closing = asyncio.create_task(producer.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert [type(await one) for one in waiters] == [Unacknowledged] * 2
    dynamo.gate.set()
    async with loop_producer_on(dynamo, buffering) as again:
        await again.flush()

    assert len(entries_in(dynamo)) == 30
    assert "close was cancelled with 29 entries left" in caplog.text
