"""A process is copied in the middle of anything, as a snapshot of its machine is that two continue.

Both have the process number, the clock and all that the product holds, and all threads go on in
both; only the randomness of the kernel differs. A copy that is seen, as Lambda shows it by hooks,
has flushed before and leaves the lease; one that is not seen draws from no lease of before.

An entry that was made before is sent by both. An event that waits without an entry is another event
in each: it gets another power in the copy, so the account demands that each of them counts.
"""

import copy
from collections import Counter
from functools import partial
from typing import Any, Final

from countledger.producers.buffer.producer import ThreadedBuffer
from countledger.producers.buffer.queue import EntryBatch
from countledger.producers.buffer.sending import Delivered
from countledger.producers.buffer.settings import Failure, NotRecorded, PendingEntry, StillBuffered
from tests.simulation import buffer_operations as buffers
from tests.simulation import fork_operations as forks
from tests.simulation import ledger_operations as ledger
from tests.simulation import number_operations as numbers
from tests.simulation import threads
from tests.simulation.buffer_operations import Hand
from tests.simulation.client import Client
from tests.simulation.event_account import Fate
from tests.simulation.ledger_account import powers
from tests.simulation.operation import Operation
from tests.simulation.schedule import Killed

_GAP_MS: Final = 400.0


def copy_process(client: Client) -> None:
    """The process goes on twice, each with all that it has."""
    threads.belongs(client.process)
    held = client.product.hands.get(buffers.THREADS)
    if held is not None and held.spooled:
        return  # a file is not copied with a memory
    seen = client.random.random() < 0.5
    if seen:
        forks.draw(client)
        if not _prepare(client, held):
            return
    else:
        buffers.add(client)
        client.process.sleep_ms(client.random.choice([0.0, client.random.random() * _GAP_MS]))
        held = client.product.hands.get(buffers.THREADS)
        if held is not None and held.spooled:
            return
    waiting = Counter[str]()
    for one in [] if held is None else _unmade(held):
        waiting[one.counter] += one.events
    if any(many > len(client.memory.free[counter]) for counter, many in waiting.items()):
        return  # no powers are left for what counts twice
    twin = _copied(client, seen=seen)
    world = client.world
    world.zombies += 1
    world.schedule.spawn(twin.name, partial(_live, twin))
    for step in _STEPS:
        # Their clocks are alike, and often they do the same at the same moment.
        client.process.sleep_ms(client.random.choice([0.0, 1.0, client.random.random() * _GAP_MS]))
        step.play(client)


def _prepare(client: Client, held: Hand | None) -> bool:
    """What the hook does before a snapshot; whether one is taken."""
    if held is not None:
        try:
            held.producer.flush(30.0)
        except StillBuffered:
            return False
        except NotRecorded as error:
            buffers.take_back(client, held, error.failures)
            return False
        finally:
            buffers.note(client, held)
    client.process.restores += 1
    return True


def _unmade(hand: Hand) -> list[PendingEntry]:
    """What waits without an entry."""
    queue = hand.producer._here().queue
    waiting = [*queue._window.values(), *queue._waiting()]
    return [one for one in waiting if one.entries is None]


def _copied(client: Client, *, seen: bool) -> Client:
    """The copy, before any of its threads goes on."""
    twin = copy.copy(client)
    twin.name = f"{client.name}, copy {client.memory.number()}"
    twin.process = copy.copy(client.process)
    twin.process.name = twin.name
    twin.process.parked, twin.process.endings = {}, []
    twin.product = forks.copied(client, twin)
    if not seen:
        vars(twin.product).pop("lease", None)
    hand = twin.product.hands.get(buffers.THREADS)
    if hand is not None:
        _hear(twin, hand)
        _renew(twin, hand)
    client.tell(f"copied as {twin.name}, {'seen' if seen else 'unseen'}")
    return twin


def _hear(twin: Client, hand: Hand) -> None:
    """Who hears of failures is the copy's own."""
    if hand.producer._on_failure is None:
        return

    def hear(failure: Failure) -> None:
        buffers.take_back(twin, hand, (failure,))

    hand.producer._on_failure = hand.producer._here().outcomes.on_failure = hear


def _renew(twin: Client, hand: Hand) -> None:
    """Events without an entry are other events here."""
    events, free = twin.auditor.events, twin.memory.free
    for pending in _unmade(hand):
        counter, new = pending.counter, {}
        for power in powers(int(pending.delta)):
            new[power] = 4 ** free[counter].pop()
            events.told(counter, new[power], Fate.OFFERED)
        pending.delta = sum(new.values())
        hand.pendings = [
            (new[power] if one is pending else power, one) for power, one in hand.pendings
        ]


def _go_on(twin: Client, own: Any) -> None:  # noqa: ANN401 - a buffer over simulated threads
    """Every thread of the buffer goes on: each request that was under way is made again."""
    for condition in (own._work, own._drained._threads, own._headroom._threads):
        condition.waiting.clear()
    for lock in (own.lock, own._delivery_lock):
        lock.holder = None
        lock.waiting.clear()
    under_way = list(own.queue._under_way)
    idle = own._senders - len(under_way)
    own._idle = own._notified = own._timers = 0
    own._sender_ids.clear()
    for batch in under_way:
        threads.resumed(twin.process, partial(_finish, own, batch))
    for _ in range(idle):
        threads.resumed(twin.process, own._run_sender)


def _finish(own: ThreadedBuffer, batch: EntryBatch) -> None:
    if all(one.done for one in batch.pendings):
        with own.lock:
            own._finish(batch, Delivered({}, 0))
    else:
        own.deliver(batch)
    own._run_sender()


def _live(twin: Client) -> None:
    """What a copy does."""
    world = twin.world
    try:
        threads.belongs(twin.process)
        hand = twin.product.hands.get(buffers.THREADS)
        if hand is not None:
            _go_on(twin, hand.producer._here())
        for step in _STEPS:
            world.schedule.pause(twin.random.choice([0.0, 1.0, twin.random.random() * _GAP_MS]))
            twin.play(step)
        twin.end([Operation("buffer close", buffers.close)])
    except Killed:
        return
    finally:
        world.zombies -= 1


_STEPS: Final = (
    Operation("buffer add", buffers.add),
    Operation("record", ledger.record_plain),
    Operation("sequence draw", numbers.draw),
    Operation("fork draw", forks.draw),
    Operation("buffer flush", buffers.flush),
)
