"""Operations on a buffered producer: add, flush, close; with a spool and without."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from countledger.ledger.attempts import Backoff
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CountledgerError
from countledger.ledger.ids import IdempotencyKey
from countledger.producers.buffer.buffering import Buffering
from countledger.producers.buffer.delivery import BatchDelivery, EntryMaker
from countledger.producers.buffer.errors import (
    BufferFull,
    NotRecorded,
    ProducerClosed,
    SpoolRefused,
    StillBuffered,
)
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.event import Event, Receipt
from countledger.producers.sender import Sender
from tests.simulation import threads
from tests.simulation.event_account import Fate
from tests.simulation.ledger_operations import ALLOWED, draw_counter, draw_delta
from tests.simulation.product import Product
from tests.simulation.shape import LEDGER
from tests.simulation.sums import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from countledger.producers.buffer.errors import Failure
    from countledger.producers.buffer.outcomes import PendingEntry
    from tests.simulation.client import Client, Memory
    from tests.simulation.process import Process
    from tests.simulation.world import World

_ERRORS = (*ALLOWED, SpoolRefused, ProducerClosed)


class Held(Protocol):
    """What the functions here need of what a process has in hand."""

    pendings: list[tuple[int, PendingEntry]]
    told: int


@dataclass(eq=False)
class Hand:
    """What one process has in hand.

    Attributes:
        producer: the product's own.
        spooled: whether it has a spool.
        pendings: what became of each event: its power, and its entry on the way.
        told: how many failures were told.
    """

    producer: BufferedProducer
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


def add(client: Client) -> None:
    """A few events at once, or one after the other; some with keys, which are never coalesced."""
    hand, random = _hand(client), client.random
    if hand is None:
        return
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
    if client.memory.keyed and random.random() < 0.3:
        # Once more, as an app does that has heard nothing: under its key it counts once.
        events.append(random.choice(client.memory.keyed[-5:]))
    together = random.random() < 0.5
    for some in [events] if together else [[one] for one in events]:
        try:
            pendings = hand.producer.add_many(some)
        except (BufferFull, SpoolRefused) as error:
            client.tell(f"not taken: {error}")
            continue
        for event, pending in zip(some, pendings, strict=True):
            hand.pendings.append((int(event.delta), pending))
            if hand.spooled:
                client.auditor.events.told(event.counter, int(event.delta), Fate.KEPT)
    client.tell(f"added {[(one.counter, one.delta) for one in events]}")


def flush(client: Client) -> None:
    """All that was added is acknowledged, or its failure told, unless the time is over."""
    hand = _hand(client)
    if hand is None:
        return
    try:
        hand.producer.flush(client.random.choice([None, None, 0.5, 20.0]))
    except StillBuffered as error:
        client.tell(f"flush: {error}")
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
    _send_again(client, hand)


def close(client: Client) -> None:
    """The producer's end: what was not sent in time comes back."""
    hand = client.product.buffer
    if hand is None:
        return
    threads.belongs(client.process)
    try:
        hand.producer.close(client.random.choice([None, 30.0, 1.0, 0.0]))
    except NotRecorded as error:
        take_back(client, hand, error.failures)
    note(client, hand)
    left = {id(one) for _, one in hand.pendings if not one.done}
    if hand.failures() + len(left) > hand.told:
        raise Wrong(f"closed: {hand.failures()} failed, {len(left)} left, {hand.told} told")
    client.product.buffer = None
    client.tell("closed")


def _hand(client: Client) -> Hand | None:
    """The producer of this process, if it can be opened; a spool outlives its processes."""
    threads.belongs(client.process)
    if client.product.buffer is None:
        random = client.random
        if client.name not in client.memory.spools:
            path = str(client.world.folder() / f"{client.name}.spool")
            client.memory.spools[client.name] = random.choice(["", path, path])
        spool = client.memory.spools[client.name] or None
        unmade: Any = None
        hand = Hand(unmade, spooled=spool is not None)

        def hear_of(failure: Failure) -> None:
            take_back(client, hand, (failure,))

        hear = random.choice([None, hear_of])
        try:
            hand.producer = open_producer(client.process, drawn(random, spool), hear)
        except SpoolRefused as error:
            client.tell(f"not opened: {error}")
            if "in use" in str(error):
                raise Wrong(f"nobody else has the spool of {client.name}: {error}") from error
            return None
        client.product.buffer = hand
    return client.product.buffer


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


def open_producer(
    process: Process, buffering: Buffering, hear: Callable[[Failure], object] | None
) -> BufferedProducer:
    """The product's own, as a process has it."""
    product, world = Product(process), process.world
    sender = Sender(
        product.writes,
        LEDGER,
        product.namespaces,
        process,
        world.random,
        Backoff(4, 50, 2_000),
        world.shape.skew_ms,
    )
    return BufferedProducer(
        buffering,
        partial(BatchDelivery, sender, buffering.attempts),
        EntryMaker(process.region, process, world.new_id),
        ledger="simulated",
        on_failure=hear,
    )


def take_back(client: Client, hand: Held, failures: tuple[Failure, ...]) -> None:
    """Entries came back with their errors: they may be sent again."""
    for failure in failures:
        hand.told += 1
        client.tell(f"handed back: {failure.entry and failure.entry.delta}: {failure.error}")
        if not isinstance(failure.error, _ERRORS):
            raise Wrong(f"an entry came back with {failure.error!r}")
        if failure.entry is not None:
            entry = failure.entry
            client.auditor.events.report(entry.counter, int(entry.delta), str(failure.error))
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
            hand.pendings.append((int(entry.delta), hand.producer.resend(entry)))
        except (BufferFull, SpoolRefused) as error:
            client.tell(f"not taken again: {error}")


def note(client: Client, hand: Held) -> None:
    """Hear what became of the events."""
    for power, pending in hand.pendings:
        if isinstance(pending.outcome, Receipt):
            client.auditor.events.told(pending.counter, power, Fate.ACKNOWLEDGED)
        elif isinstance(pending.outcome, CountledgerError):
            client.auditor.events.told(pending.counter, power, Fate.REPORTED)


def check_spools(world: World, memory: Memory) -> None:
    """A next process sends all that is left in a spool."""
    for name, path in sorted(memory.spools.items()):
        if not path:
            continue
        process = world.process(world.home, f"the last of {name}")
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


def check_events(world: World, memory: Memory) -> None:  # noqa: ARG001 - as the others
    """What was in safe hands is in, or was reported."""
    world.auditor.events.check_end()
