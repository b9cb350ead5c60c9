"""Operations on buffered producers, of threads and of an event loop: add, flush, cancel, close.

Both promise the same: what was acknowledged is in, nothing is in twice, each failure is reported.
On an event loop any task may be cancelled at any await.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.asynchronous.calls import suspended
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CountledgerError
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import HOUR_MS
from countledger.ledger.suspension import CallNotes
from countledger.producers.buffer.asynchronous import AsyncBufferedProducer, AsyncOutcomes
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.buffer.sending import ledger_name
from countledger.producers.buffer.settings import (
    BufferFull,
    Buffering,
    NotRecorded,
    ProducerClosed,
    SpoolRefused,
    StillBuffered,
)
from countledger.producers.buffer.spool import Spool
from countledger.producers.event import Event, Receipt
from tests.simulation import threads
from tests.simulation.connection import connection_of
from tests.simulation.event_account import Fate
from tests.simulation.ledger_operations import ALLOWED, draw_counter, draw_delta
from tests.simulation.sums import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from countledger.ledger.entry import Entry
    from countledger.producers.buffer.settings import Failure, PendingEntry
    from tests.simulation.client import Client, Memory
    from tests.simulation.loop import SimulatedLoop
    from tests.simulation.process import Process
    from tests.simulation.world import World

    Hear = Callable[[Failure], object] | None

THREADS: Final = "buffer"
ASYNC: Final = "async"
_ERRORS: Final = (*ALLOWED, SpoolRefused, ProducerClosed)
_NOT_TAKEN: Final = (BufferFull, SpoolRefused, ProducerClosed, asyncio.CancelledError)
# A flush without a time-out ends by then, whatever happens: every attempt of an entry does.
_PATIENCE_MS: Final = 12 * HOUR_MS


@dataclass(eq=False)
class Hand:
    """A producer of one process, and what it answered.

    Attributes:
        producer: the product's own, of either form.
        spooled: whether it has a spool.
        loop: the event loop of the process; None: the producer has threads.
        pendings: of each event, its power and its entry on the way.
        told: how many failures were reported.
    """

    producer: Any
    spooled: bool
    loop: SimulatedLoop | None = None
    pendings: list[tuple[int, PendingEntry]] = field(default_factory=list)
    told: int = 0

    def call(self, work: Any, cancel_after_ms: float | None = None) -> Any:  # noqa: ANN401 - of any call
        """The answer of a method; on an event loop, that of the coroutine which it returned."""
        return work if self.loop is None else self.loop.call(work, cancel_after_ms)

    def failures(self) -> int:
        """How many entries came back with an error."""
        outcomes = {id(one): one.outcome for _, one in self.pendings}
        return sum(one is not None and not isinstance(one, Receipt) for one in outcomes.values())


def add(client: Client, form: str = THREADS) -> None:
    """A few events at once, or one after the other; some with keys, which are never coalesced."""
    hand, random = _hand(client, form), client.random
    if hand is None:
        return
    events = _drawn_events(client)
    if client.memory.keyed and random.random() < 0.3:
        # Once more, as an app does that has heard nothing: under its key it counts once.
        events.append(random.choice(client.memory.keyed[-5:]))
    together = random.random() < 0.5
    for some in [events] if together else [[one] for one in events]:
        try:
            pendings = hand.call(hand.producer.add_many(some), random.choice([None, None, 50.0]))
        except _NOT_TAKEN as error:
            client.tell(f"{form}: not taken: {error!r}")
            continue
        for event, pending in zip(some, pendings, strict=True):
            hand.pendings.append((int(event.delta), pending))
            if hand.spooled:
                client.auditor.events.told(event.counter, int(event.delta), Fate.KEPT)
    client.tell(f"{form}: added {[(one.counter, one.delta) for one in events]}")
    if form == ASYNC and hand.pendings and random.random() < 0.3:
        _await_one(client, hand)


def _drawn_events(client: Client) -> list[Event]:
    events: list[Event] = []
    for _ in range(client.random.randint(1, 4)):
        counter = draw_counter(client)
        delta = draw_delta(client, counter)
        if delta is None:
            continue
        at = to_datetime(client.process.now_ms())
        key = IdempotencyKey(f"key {client.memory.number()}", at)
        event = Event(counter, delta, client.random.choice([None, None, None, key]))
        events.append(event)
        if event.key is not None:
            client.memory.keyed.append(event)
        client.auditor.events.told(counter, delta, Fate.OFFERED)
    return events


def _await_one(client: Client, hand: Hand) -> None:
    """Await an entry, and give up after a while."""
    power, pending = client.random.choice(hand.pendings)

    try:
        hand.call(pending.result(), client.random.choice([0.0, 20.0, 500.0]))
    except asyncio.CancelledError:
        return
    except Exception as error:
        if error is not pending.outcome:
            raise
        # Its failure is reported to the task that awaits it, and to nobody else.
        hand.pendings = [one for one in hand.pendings if one[1] is not pending]
        client.tell(f"awaited {power}: {error!r}")
        _report(client, pending.entry, error)


def flush(client: Client, form: str = THREADS) -> None:
    """All that was added is acknowledged, or its failure reported, unless the time is over."""
    hand, random = _hand(client, form), client.random
    if hand is None:
        return
    timeout_s = random.choice([None, None, 0.5, 20.0])
    cancel_ms = random.choice([None, None, 20.0, 2_000.0]) or _PATIENCE_MS
    began_ms = client.world.schedule.now_ms
    try:
        hand.call(hand.producer.flush(timeout_s), cancel_ms)
    except (StillBuffered, asyncio.CancelledError) as error:
        if client.world.schedule.now_ms - began_ms >= _PATIENCE_MS:
            raise Wrong(f"a flush did not end within {_PATIENCE_MS // HOUR_MS} h") from None
        client.tell(f"{form} flush: {error!r}")
        note(client, hand)
        return
    except NotRecorded as error:
        take_back(client, hand, error.failures)
    note(client, hand)
    left = [(power, one) for power, one in hand.pendings if not one.done]
    if left:
        raise Wrong(f"flush returned, and nothing was heard of {left}")
    if hand.failures() > hand.told:
        raise Wrong(f"{hand.failures()} entries failed, and {hand.told} were reported")
    hand.pendings.clear()
    hand.told = 0
    _send_again(client, hand)


def close(client: Client, form: str = THREADS) -> None:
    """The producer's end: what was not sent in time comes back."""
    hand = client.product.hands.get(form)
    if hand is None:
        return
    threads.belongs(client.process)
    try:
        hand.call(hand.producer.close(client.random.choice([None, 30.0, 1.0, 0.0])))
    except NotRecorded as error:
        take_back(client, hand, error.failures)
    note(client, hand)
    left = {id(one) for _, one in hand.pendings if not one.done}
    if hand.failures() + len(left) > hand.told:
        raise Wrong(f"closed: {hand.failures()} failed, {len(left)} left, {hand.told} reported")
    del client.product.hands[form]
    client.tell(f"{form}: closed")


def _hand(client: Client, form: str) -> Hand | None:
    """The producer of this process, if it can be opened; a spool outlives its processes."""
    threads.belongs(client.process)
    if form in client.product.hands:
        return client.product.hands[form]
    random, region = client.random, client.process.region
    name = f"{client.name}, {form}"
    if (name, region) not in client.memory.spools:
        path = str(client.world.folder() / f"{name}, {region}.spool")
        client.memory.spools[name, region] = random.choice(["", path, path])
    spool = client.memory.spools[name, region] or None
    hand = Hand(None, spooled=spool is not None)

    def hear_of(failure: Failure) -> None:
        take_back(client, hand, (failure,))

    hear, buffering = random.choice([None, hear_of]), drawn(random, spool)
    try:
        if form == ASYNC:
            hand.loop = client.product.loop
            hand.producer = hand.call(open_awaited(client.process, buffering, hear))
        else:
            hand.producer = open_producer(client.process, buffering, hear)
    except SpoolRefused as error:
        client.tell(f"{form}: not opened: {error}")
        if "in use" in str(error):
            raise Wrong(f"nobody else has the spool of {name}: {error}") from error
        return None
    client.product.hands[form] = hand
    return hand


def drawn(random: Random, spool: str | None) -> Buffering:
    """Bounds, from those that nearly never wait to those that nearly always do."""
    return Buffering(
        coalesce=random.random() < 0.7,
        linger_ms=random.choice([0, 100, 3_000, 20_000]),
        window_events=random.choice([1, 2, 4, 10_000]),
        max_entries=25,
        when_full="block" if random.random() < 0.5 else "error",
        senders=random.choice([1, 2, 8]),
        attempts=random.choice([1, 3, 8]),
        spool=spool,
    )


def open_producer(process: Process, buffering: Buffering, hear: Hear) -> BufferedProducer:
    """The product's own, as a process has it."""
    return BufferedProducer(connection_of(process), buffering, hear)


async def open_awaited(process: Process, buffering: Buffering, hear: Hear) -> AsyncBufferedProducer:
    """The product's own, as an event loop has it."""
    connection = connection_of(process)
    make = partial(BufferedProducer, connection, buffering, hear, AsyncOutcomes)
    return AsyncBufferedProducer(await suspended(make, CallNotes()))


def take_back(client: Client, hand: Hand, failures: tuple[Failure, ...]) -> None:
    """Entries came back with their errors: they may be sent again."""
    for failure in failures:
        hand.told += 1
        client.tell(f"handed back: {failure.entry and failure.entry.delta}: {failure.error}")
        if not isinstance(failure.error, _ERRORS):
            raise Wrong(f"an entry came back with {failure.error!r}")
        _report(client, failure.entry, failure.error)


def _report(client: Client, entry: Entry | None, error: Exception) -> None:
    if entry is not None:
        client.auditor.events.report(entry.counter, int(entry.delta), str(error))
        client.memory.entries.append((entry, client.region))


def _send_again(client: Client, hand: Hand) -> None:
    """Something that came back, through the buffer."""
    events = client.auditor.events
    mine = [
        entry
        for entry, region in client.memory.entries
        if region == client.region
        and (entry.counter, int(entry.delta) & -int(entry.delta)) in events.fates
    ]
    if mine and client.random.random() < 0.5:
        entry = client.random.choice(mine)
        try:
            hand.pendings.append((int(entry.delta), hand.call(hand.producer.resend(entry))))
        except _NOT_TAKEN as error:
            client.tell(f"not taken again: {error!r}")


def note(client: Client, hand: Hand) -> None:
    """Hear what became of the events."""
    for power, pending in hand.pendings:
        if isinstance(pending.outcome, Receipt):
            client.auditor.events.told(pending.counter, power, Fate.ACKNOWLEDGED)
        elif isinstance(pending.outcome, CountledgerError):
            client.auditor.events.told(pending.counter, power, Fate.REPORTED)


def check_spools(world: World, memory: Memory) -> None:
    """A next process sends all that is left in a spool."""
    for (name, region), path in sorted(memory.spools.items()):
        if not path:
            continue
        if region in world.gone:
            _hand_back(world, region, path)
            continue
        process = world.process(region, f"the last of {name}")
        threads.belongs(process)
        producer = open_producer(process, Buffering(spool=path), None)
        try:
            producer.flush(None)
        except NotRecorded as error:
            world.tell(f"left in the spool of {name}: {error}")
        for refused in producer.refused():
            if refused.entry is None:
                raise Wrong(f"an event in the spool of {name} was refused: {refused.error}")
            entry = refused.entry
            world.auditor.events.report(entry.counter, int(entry.delta), str(refused.error))
        producer.close()
        process.die()


def _hand_back(world: World, region: str, path: str) -> None:
    """A spool of a region that is lost is of no other ledger: a person reads it."""
    process = world.process(world.home, f"who reads what was left in {region}")
    threads.belongs(process)
    spool = Spool.open(path, ledger=ledger_name(connection_of(process, region)))
    for row in (*spool.kept(), *(refused for refused, _ in spool.refused())):
        world.auditor.events.report(row.counter, int(row.delta), f"{region} is lost")
    spool.close()
    process.die()


def check_events(world: World, memory: Memory) -> None:  # noqa: ARG001 - as the others
    """What was in safe hands is in, or was reported."""
    world.auditor.events.check_end()
