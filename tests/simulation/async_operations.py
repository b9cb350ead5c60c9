"""Operations on the buffered producer of an event loop: add, flush, cancel, close.

The account is that of the buffer: what was acknowledged is in, nothing is in twice, and what fails
is told. Any task may be cancelled at any of its awaits: the app's own, and those that deliver.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.clock import to_datetime
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import HOUR_MS
from countledger.producers.asynchronous.producer import AsyncBufferedProducer
from countledger.producers.asynchronous.sender import AsyncSender
from countledger.producers.buffer.delivery import EntryMaker
from countledger.producers.buffer.errors import (
    BufferFull,
    NotRecorded,
    ProducerClosed,
    SpoolRefused,
    StillBuffered,
)
from countledger.producers.event import Event, Receipt
from tests.simulation import threads
from tests.simulation.buffer_operations import drawn, note, take_back
from tests.simulation.event_account import Fate
from tests.simulation.ledger_operations import draw_counter, draw_delta
from tests.simulation.loop import SimulatedAsyncClient, SimulatedLoop
from tests.simulation.product import Product
from tests.simulation.shape import LEDGER
from tests.simulation.sums import Wrong

if TYPE_CHECKING:
    from types import TracebackType

    from countledger.producers.buffer.buffering import Buffering
    from countledger.producers.buffer.errors import Failure
    from countledger.producers.buffer.outcomes import PendingEntry
    from countledger.producers.buffer.spool import Spool
    from tests.simulation.client import Client
    from tests.simulation.process import Process

# Whatever is thrown at a flush, it ends by then: every attempt of an entry does.
_PATIENCE_MS: Final = 12 * HOUR_MS
_AGAIN: Final = (BufferFull, SpoolRefused, ProducerClosed)


@dataclass(eq=False)
class AsyncHand:
    """What the event loop of one process has in hand; as `buffer_operations.Hand`.

    Attributes:
        loop: of the process.
        producer: the product's own.
        spooled: whether it has a spool.
        pendings: what became of each event: its power, and its entry on the way.
        told: how many failures were told.
    """

    loop: SimulatedLoop
    producer: AsyncBufferedProducer
    spooled: bool
    pendings: list[tuple[int, PendingEntry]] = field(default_factory=list)
    told: int = 0

    def failures(self) -> int:
        """How many entries came back with an error."""
        failed = {
            id(one)
            for _, one in self.pendings
            if one.outcome is not None and not isinstance(one.outcome, Receipt)
        }
        return len(failed)


class _OpenSender:
    """What the product makes of a client of aiobotocore."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def __aenter__(self) -> AsyncSender:
        process, world = self._process, self._process.world
        dynamo = SimulatedAsyncClient(
            process=process, region=process.region, attempts=1, clock=process, random=world.random
        )
        namespaces = Product(process).namespaces
        return AsyncSender(
            dynamo,
            LEDGER,
            namespaces,
            process,
            world.random,
            clock_skew_ms=world.shape.skew_ms,
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.sleep(0)


def add(client: Client) -> None:
    """A few events; some wait for room, or are cancelled while they do."""
    hand = _hand(client)
    if hand is None:
        return
    random = client.random
    events: list[Event] = []
    for _ in range(random.randint(1, 4)):
        counter = draw_counter(client)
        delta = draw_delta(client, counter)
        if delta is None:
            continue
        at = to_datetime(client.process.now_ms())
        key = IdempotencyKey(f"key {client.memory.number()}", at)
        event = Event(counter, delta, random.choice([None, None, None, key]))
        events.append(event)
        if event.key is not None:
            client.memory.keyed.append(event)
        client.auditor.events.told(counter, delta, Fate.OFFERED)
    together = random.random() < 0.5
    for some in [events] if together else [[one] for one in events]:
        _add(client, hand, some)
    if hand.pendings and random.random() < 0.3:
        _wait_for_one(client, hand)


def _add(client: Client, hand: AsyncHand, events: list[Event]) -> None:
    patience_ms = client.random.choice([None, None, 50.0])
    try:
        pendings = hand.loop.call(hand.producer.add_many(events), patience_ms)
    except (*_AGAIN, asyncio.CancelledError) as error:
        client.tell(f"async add: not taken: {error!r}")
        return
    for event, pending in zip(events, pendings, strict=True):
        hand.pendings.append((int(event.delta), pending))
        if hand.spooled:
            client.auditor.events.told(event.counter, int(event.delta), Fate.KEPT)
    client.tell(f"async add {[(one.counter, one.delta) for one in events]}")


def _wait_for_one(client: Client, hand: AsyncHand) -> None:
    """Await an entry, and give up after a while."""
    power, pending = client.random.choice(hand.pendings)

    async def wait() -> object:
        awaited: Any = pending
        return await awaited

    try:
        hand.loop.call(wait(), client.random.choice([0.0, 20.0, 500.0]))
    except asyncio.CancelledError:
        return
    except Exception as error:
        if error is not pending.outcome:
            raise
        # Whoever awaits it is told, and nobody else.
        hand.told += 1
        hand.pendings = [one for one in hand.pendings if one[1] is not pending]
        client.tell(f"awaited {power}: {error!r}")
        take_back_one(client, hand, pending, error)


def take_back_one(client: Client, hand: AsyncHand, pending: PendingEntry, error: Exception) -> None:
    """An entry whose failure was raised where it was awaited: it may be sent again."""
    hand.told -= 1
    if pending.entry is not None:
        entry = pending.entry
        client.auditor.events.report(entry.counter, int(entry.delta), str(error))
        client.memory.entries.append((entry, client.region))


def flush(client: Client) -> None:
    """All that was added is acknowledged, or its failure told; unless it is cancelled."""
    hand = _hand(client)
    if hand is None:
        return
    timeout_s = client.random.choice([None, None, 0.5, 20.0])
    cancel_ms = client.random.choice([None, None, 20.0, 2_000.0])
    began_ms = client.world.schedule.now_ms
    try:
        hand.loop.call(hand.producer.flush(timeout_s), cancel_ms or _PATIENCE_MS)
    except asyncio.CancelledError:
        if client.world.schedule.now_ms - began_ms >= _PATIENCE_MS:
            raise Wrong(f"a flush did not end within {_PATIENCE_MS // HOUR_MS} h") from None
        client.tell("async flush: cancelled")
        note(client, hand)
        return
    except StillBuffered as error:
        client.tell(f"async flush: {error}")
        note(client, hand)
        return
    except NotRecorded as error:
        take_back(client, hand, error.failures)
    note(client, hand)
    left = [(power, one) for power, one in hand.pendings if not one.done]
    if left:
        raise Wrong(f"flush returned, and nothing was heard of {left}")
    if hand.failures() > hand.told:
        raise Wrong(f"{hand.failures()} entries failed, and {hand.told} were told of")
    hand.pendings.clear()
    hand.told = 0


def cancel(client: Client) -> None:
    """Somebody cancels tasks that deliver, as `asyncio.run` does with all tasks at its end."""
    hand = _hand(client)
    if hand is None:
        return
    tasks = sorted(hand.producer._buffer._tasks, key=hash)
    chosen = [task for task in tasks if client.random.random() < 0.7]

    async def withdraw() -> None:
        await asyncio.sleep(0)
        for task in chosen:
            task.cancel()

    hand.loop.call(withdraw())
    client.tell(f"async cancel: {len(chosen)} of {len(tasks)} deliveries")


def close(client: Client) -> None:
    """The producer's end: what was not sent in time comes back."""
    hand = client.product.async_hand
    if hand is None:
        return
    threads.belongs(client.process)
    timeout_s = client.random.choice([30.0, 30.0, 1.0, 0.0])
    try:
        hand.loop.call(hand.producer.close(timeout_s))
    except NotRecorded as error:
        take_back(client, hand, error.failures)
    note(client, hand)
    left = {id(one) for _, one in hand.pendings if not one.done}
    if hand.failures() + len(left) > hand.told:
        raise Wrong(f"closed: {hand.failures()} failed, {len(left)} left, {hand.told} told")
    client.product.async_hand = None
    client.tell("async closed")


def _hand(client: Client) -> AsyncHand | None:
    """The producer of this process, if it can be opened; a spool outlives its processes."""
    threads.belongs(client.process)
    if client.product.async_hand is None:
        random = client.random
        name = f"{client.name}, async"
        if name not in client.memory.spools:
            path = str(client.world.folder() / f"{name}.spool")
            client.memory.spools[name] = random.choice(["", path, path])
        spool = client.memory.spools[name] or None
        loop = client.product.loop
        unmade: Any = None
        hand = AsyncHand(loop, unmade, spooled=spool is not None)

        def hear_of(failure: Failure) -> None:
            take_back(client, hand, (failure,))

        hear = random.choice([None, hear_of])
        hand.producer = _producer(client.process, drawn(random, spool), hear)
        try:
            loop.call(hand.producer.__aenter__())
        except SpoolRefused as error:
            client.tell(f"async: not opened: {error}")
            if "in use" in str(error):
                raise Wrong(f"nobody else has the spool of {name}: {error}") from error
            return None
        client.product.async_hand = hand
    return client.product.async_hand


def _producer(process: Process, buffering: Buffering, hear: Any) -> AsyncBufferedProducer:  # noqa: ANN401
    """The product's own, as a process has it."""

    def open_spool() -> Spool | None:
        if buffering.spool is None:
            return None
        return threads.spool().open(buffering.spool, ledger="simulated")

    return AsyncBufferedProducer(
        buffering,
        lambda: _OpenSender(process),
        EntryMaker(process.region, process, process.world.new_id),
        open_spool=open_spool,
        on_failure=hear,
    )
