"""The buffered producer of an event loop: tasks that wait or are cancelled, and callbacks."""

from __future__ import annotations

import asyncio
from functools import partial
from threading import get_ident
from time import sleep
from typing import TYPE_CHECKING, cast

import pytest

from countledger.ledger.errors import NoCredentials, Unacknowledged
from countledger.producers.buffer.sending import BufferState
from countledger.producers.buffer.settings import Buffering, NotRecorded, ProducerClosed
from countledger.producers.event import Event
from tests.unit.ledger.memory import Fault
from tests.unit.producers.buffers import PATIENT_MS, GatedClient, in_a_loop, loop_producer_on
from tests.unit.producers.senders import entries_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from countledger.producers.buffer.asynchronous import (
        AsyncBufferedProducer,
        AsyncOutcomes,
        AsyncPendingEntry,
    )
    from countledger.producers.buffer.settings import Failure

PATIENT = partial(Buffering, linger_ms=PATIENT_MS)


@pytest.fixture
def dynamo() -> GatedClient:
    return GatedClient()


async def _awaited(pending: AsyncPendingEntry) -> object:
    try:
        return await pending.result()
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
async def test_of_many_tasks_that_wait_for_headroom_one_looks(dynamo: GatedClient) -> None:
    """Did all look whenever a batch ends, the loop would do nothing else."""
    looks: list[int] = []
    has_headroom = BufferState.has_headroom

    def counted(state: BufferState, entries: int, size: int, **over: bool) -> bool:
        looks.append(entries)
        return has_headroom(state, entries, size, **over)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BufferState, "has_headroom", counted)
        async with loop_producer_on(dynamo, PATIENT(max_entries=25)) as producer:
            await asyncio.gather(*(producer.add("a:b", 1) for _ in range(1_000)))

    assert len(entries_in(dynamo)) == 1_000
    assert len(looks) <= 3 * 1_000


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
    pendings = await producer.add_many([Event("a:b", 1)] * 30)
    waiter = asyncio.create_task(_awaited(pendings[0]))
    await asyncio.sleep(0)

    with pytest.raises(NotRecorded):
        await producer.close(0.01)

    assert isinstance(await waiter, Unacknowledged)


@in_a_loop
async def test_a_close_that_is_cancelled_answers_all_and_frees_the_spool(
    dynamo: GatedClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a server does that has waited for long enough."""
    dynamo.gate.clear()
    buffering = PATIENT(senders=1, spool=tmp_path / "spool")
    producer = loop_producer_on(dynamo, buffering)
    pendings = await producer.add_many([Event("a:b", 1)] * 30)
    while producer.statistics.under_way < 25:  # noqa: ASYNC110 - a thread takes them
        await asyncio.sleep(0.001)
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


@in_a_loop
async def test_callbacks_are_called_in_the_loop_before_a_flush_or_a_close_returns(
    dynamo: GatedClient,
) -> None:
    """Also of what had ended before."""
    called: list[tuple[str, int]] = []

    def calls(name: str) -> Callable[[object], None]:
        return lambda _: called.append((name, get_ident()))

    dynamo.faults.extend([Fault(NoCredentials("expired"))] * 2)
    async with loop_producer_on(dynamo, on_failure=calls("failed")) as producer:
        await producer.add("a:b", 1)
        await producer.flush()
        pending = await producer.add("a:b", 1)
        pending.add_done_callback(calls("done"))
        producer._producer._here().make_due()
        while not pending.done:
            sleep(0.001)  # noqa: ASYNC251 - the loop is to have had no turn
        await producer.flush()
        (await producer.add("a:b", 1)).add_done_callback(calls("recorded"))

    assert called == [(one, get_ident()) for one in ("failed", "done", "failed", "recorded")]


def test_a_producer_goes_on_in_another_loop(dynamo: GatedClient) -> None:
    """As in a function of Lambda that runs a loop for each invocation."""
    called: list[int] = []

    async def begin() -> AsyncBufferedProducer:
        producer = loop_producer_on(dynamo)
        (await producer.add("a:b", 1)).add_done_callback(lambda _: called.append(1))
        return producer

    async def go_on(producer: AsyncBufferedProducer) -> None:
        (await producer.add("a:b", 2)).add_done_callback(lambda _: called.append(2))
        await producer.close()

    producer = asyncio.run(begin())
    asyncio.run(go_on(producer))

    assert called == [1, 2]
    assert set(entries_in(dynamo)) == {1, 2}


def test_what_a_loop_left_is_sent_at_the_end_of_the_process(dynamo: GatedClient) -> None:
    failures: list[Failure] = []
    dynamo.faults.append(Fault(NoCredentials("expired")))

    async def leave() -> AsyncBufferedProducer:
        producer = loop_producer_on(dynamo, on_failure=failures.append)
        await producer.add("a:b", 1)
        return producer

    asyncio.run(leave())._producer.close(20)

    assert [type(one.error) for one in failures] == [NoCredentials]


def _ended_loop(producer: AsyncBufferedProducer, release: Callable[[], None]) -> None:
    """Let what is sent end while the loop of the producer ends, which calls no callback more."""
    loop = cast("AsyncOutcomes", producer._producer._here().outcomes).loop
    assert loop is not None

    def send() -> None:
        release()
        while producer.statistics.waiting:
            sleep(0.001)

    loop.call_soon(loop.stop)
    loop.call_soon(send)
    loop.run_forever()
    loop.close()


@pytest.mark.parametrize("other_loop", [0, 1])
def test_a_failure_that_a_loop_left_as_it_ended_is_reported_once(
    dynamo: GatedClient, other_loop: int
) -> None:
    """By the next loop, or at the end of the process."""
    failures: list[Failure] = []
    dynamo.faults.append(Fault(NoCredentials("expired")))
    dynamo.gate.clear()

    async def begin() -> AsyncBufferedProducer:
        producer = loop_producer_on(dynamo, on_failure=failures.append)
        await producer.add("a:b", 1)
        producer._producer._here().make_due()
        return producer

    producer = asyncio.new_event_loop().run_until_complete(begin())
    _ended_loop(producer, dynamo.gate.set)
    if other_loop:
        asyncio.run(producer.flush())
    else:
        producer._producer.close(20)

    assert [type(one.error) for one in failures] == [NoCredentials]


@pytest.mark.parametrize("turns", range(6))
@in_a_loop
async def test_a_flush_that_is_cancelled_as_it_ends_loses_no_failure(
    dynamo: GatedClient, turns: int
) -> None:
    dynamo.faults.append(Fault(NoCredentials("expired")))
    producer = loop_producer_on(dynamo)
    await producer.add("a:b", 1)
    flushing = asyncio.create_task(producer.flush())
    while not producer.statistics.failed:  # noqa: ASYNC110 - a thread sends
        await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    flushing.cancel()
    (ended,) = await asyncio.gather(flushing, return_exceptions=True)

    if not isinstance(ended, NotRecorded):
        with pytest.raises(NotRecorded):
            await producer.close()


@in_a_loop
async def test_a_failure_that_a_spool_left_is_reported_in_the_loop(
    dynamo: GatedClient, tmp_path: Path
) -> None:
    """Also before the loop has used the producer."""
    dynamo.faults.extend([Fault(NoCredentials("expired"))] * 2)
    buffering = Buffering(linger_ms=0, spool=tmp_path / "spool")
    async with loop_producer_on(dynamo, buffering, on_failure=lambda _: None) as before:
        await before.add("a:b", 1)
    threads: list[int] = []
    producer = loop_producer_on(dynamo, buffering, on_failure=lambda _: threads.append(get_ident()))
    while not threads:  # noqa: ASYNC110 - of a thread, if it fails
        await asyncio.sleep(0.001)
    await producer.close()

    assert threads == [get_ident()]


@in_a_loop
async def test_a_callback_that_raises_keeps_no_other_from_being_called(
    dynamo: GatedClient,
) -> None:
    """As that of a cancelled future, which is no `Exception`."""
    called: list[object] = []

    def cancelled(_: object) -> None:
        raise asyncio.CancelledError

    async with loop_producer_on(dynamo) as producer:
        for callback in (cancelled, called.append):
            (await producer.add("a:b", 1)).add_done_callback(callback)

    assert len(called) == 1


def test_a_task_of_a_loop_that_has_ended_keeps_no_headroom_from_another(
    dynamo: GatedClient,
) -> None:
    dynamo.gate.clear()
    loop = asyncio.new_event_loop()

    async def begin() -> tuple[AsyncBufferedProducer, asyncio.Task[AsyncPendingEntry]]:
        producer = loop_producer_on(dynamo, PATIENT(max_entries=25))
        await producer.add_many([Event("a:b", 1)] * 25)
        left = asyncio.create_task(producer.add("a:left", 1))
        await asyncio.sleep(0)
        return producer, left

    @in_a_loop
    async def go_on(producer: AsyncBufferedProducer) -> None:
        waiting = asyncio.create_task(producer.add("a:b", 1))
        await asyncio.sleep(0)
        dynamo.gate.set()
        await waiting
        await producer.close()

    producer, left = loop.run_until_complete(begin())
    go_on(producer)
    left.cancel()
    loop.run_until_complete(asyncio.wait([left]))
    loop.close()

    assert len(entries_in(dynamo)) == 26
