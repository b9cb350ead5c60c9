"""A process forks in the middle of anything: its child has a copy of all that the product holds.

What is copied is what `os.fork` copies: buffers with their events and locks, leases, caches. No
thread of the parent runs in the child, and a lock that one of them holds stays held there. Then
the hooks run that the product has registered, and both go on.
"""

import copy
import copyreg
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, Final

from countledger.ledger.recent import Recent
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.buffer.settings import NotRecorded, PendingEntry, StillBuffered
from tests.simulation import buffer_operations as buffers
from tests.simulation import threads
from tests.simulation.client import Client
from tests.simulation.connection import ProcessConnection
from tests.simulation.operation import Operation
from tests.simulation.product import LEASED, Product
from tests.simulation.schedule import Killed
from tests.simulation.sums import Wrong

# What a process keeps from one call to the next.
_KEPT: Final = ("connection", "namespaces", "recorder", "sequences", "strict", "lease")
_GAP_MS: Final = 400.0

# A lock of Python's own, as the product's modules hold them, is free in the child.
copyreg.pickle(type(Lock()), lambda _lock: (Lock, ()))


@contextmanager
def _copied_whole() -> Iterator[None]:
    """What refuses to be pickled is in a copied memory all the same."""
    table = copyreg.dispatch_table
    for kind in (BufferedProducer, ProcessConnection):
        table[kind] = lambda one: (object.__new__, (type(one),), vars(one))
    table[Recent] = lambda one: (Recent, (one.life_ms, one.most, one._known))
    table[PendingEntry] = lambda one: (
        object.__new__,
        (type(one),),
        (None, {name: getattr(one, name) for name in PendingEntry.__slots__}),
    )
    try:
        yield
    finally:
        for copied_kind in (BufferedProducer, ProcessConnection, Recent, PendingEntry):
            del table[copied_kind]


def draw(client: Client) -> None:
    """Numbers of a lease that the process keeps."""
    threads.belongs(client.process)
    for _ in range(client.random.randint(1, 3)):
        number = client.product.lease.draw()
        client.auditor.numbers.drawn(LEASED, [number], None)
        client.tell(f"the lease gave {number}")


def fork(client: Client) -> None:
    """Parent and child go on side by side, with what they have and on their own."""
    threads.belongs(client.process)
    held = client.product.hands.get(buffers.THREADS)
    if held is not None and held.spooled:
        return  # a file is not copied: `test_spool_life` forks with one
    draw(client)
    child = _forked(client)
    world = client.world
    world.zombies += 1
    world.schedule.spawn(child.name, partial(_live, child))
    for step in (draw, buffers.add, draw):
        client.process.sleep_ms(client.random.random() * _GAP_MS)
        step(client)


def _forked(client: Client) -> Client:
    """The child, after the hooks have run."""
    process = client.process
    world = client.world
    child = copy.copy(client)
    child.name = f"{client.name}, child {client.memory.number()}"
    child.process = world.process(client.region, child.name)
    child.process.error_ms = process.error_ms
    child.product = copied(client, child)
    client.tell(f"forked {child.name}")
    return child


def copied(client: Client, child: Client) -> Product:
    """All that the product holds in a process, in the process of its child or copy."""
    world, product = client.world, Product(child.process)
    # What is not the product's is not copied, and the child stands where its parent stood.
    memo: dict[int, Any] = {id(client.process): child.process}
    for shared in (world, world.random, client.memory, client, *world.schedule.alive):
        memo[id(shared)] = shared
    held = client.product.hands.get(buffers.THREADS)
    with _copied_whole():
        for name in _KEPT:
            if name in vars(client.product):
                vars(product)[name] = copy.deepcopy(vars(client.product)[name], memo)
        if held is not None:
            product.hands[buffers.THREADS] = copy.deepcopy(held, memo)
    return product


def _live(child: Client) -> None:
    """What a child does: it works with all that it has, and ends by itself."""
    world = child.world
    try:
        threads.belongs(child.process)
        hand = child.product.hands.get(buffers.THREADS)
        if hand is not None:
            hand.producer._on_failure = None  # what would hear is the parent's
            hand.producer.restart_in_fork()
            hand.pendings.clear()
            hand.told = 0
        for name, step in _STEPS:
            world.schedule.pause(child.random.random() * _GAP_MS)
            child.play(Operation(name, step))
        child.end([Operation("buffer close", buffers.close)])
    except Killed:
        return
    finally:
        world.zombies -= 1


def _flush(client: Client) -> None:
    """A flush ends: nobody else's events are waited for."""
    hand = client.product.hands.get(buffers.THREADS)
    if hand is None:
        return
    threads.belongs(client.process)
    try:
        hand.producer.flush(_PATIENCE_S)
    except StillBuffered as error:
        raise Wrong(f"{client.name} waits for events of another process: {error}") from error
    except NotRecorded as error:
        buffers.take_back(client, hand, error.failures)
    buffers.note(client, hand)


_PATIENCE_S: Final = 24 * 3_600.0
_STEPS: Final = (
    ("fork draw", draw),
    ("buffer add", buffers.add),
    ("fork draw", draw),
    ("buffer flush", _flush),
)
