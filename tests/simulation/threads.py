"""Threads, locks and conditions of the product's own, under the simulation's schedule.

A buffered producer starts threads that wait for something to be due. Here each is an actor: one of
all of them runs at a time, whoever takes a lock may be overtaken, a wait for a time takes virtual
time. The product's code is as it is; the names that its modules import stand for these.

    producer      Thread, Lock, Condition, get_ident; the spool, and no care for the end of Python
    suspension    Condition, monotonic
    sequences     this_copy

A process dies whole: whichever of its threads meets the crash, the others wake up dead.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Self

from countledger.ledger import suspension
from countledger.producers.buffer import producer, sending, settings
from countledger.producers.buffer.spool import Spool
from countledger.producers.sequences import sequences
from tests.simulation.process import Process
from tests.simulation.schedule import Actor, Killed
from tests.simulation.world import World

# What the calls of a sender's thread are counted under.
SENDER: Final = "buffer sender"
_MODULES: Final = (producer, settings, sending, suspension, sequences)
# How often whoever takes a lock is overtaken, and for how long at the most.
_OVERTAKEN: Final = 0.2
_OVERTAKEN_MS: Final = 2.0
# How often no thread is to be had.
_NO_THREAD: Final = 0.1


class _Here:
    """The world whose turn it is in this Python; there is one at a time."""

    world: World | None = None


def _world() -> World:
    if _Here.world is None:
        raise AssertionError("no simulation is under way")
    return _Here.world


def _actor() -> Actor:
    actor = _world().schedule.actor
    if actor is None:
        raise AssertionError("nobody has the turn")
    return actor


def belongs(process: Process) -> None:
    """Whoever has the turn works for this process now: its locks and threads are this one's."""
    _actor().owner = process


def owner() -> Process:
    """The process of whoever has the turn."""
    process = _actor().owner
    if process is None:
        raise AssertionError(f"{_actor().name} belongs to no process")
    return process


def park(timeout_ms: float | None) -> None:
    """Stand still until somebody wakes this actor, or the time is over.

    Raises:
        Killed: its process died meanwhile.
    """
    process, actor, schedule = owner(), _actor(), _world().schedule
    process.parked[actor] = None
    try:
        if timeout_ms is None:
            schedule.park()
        else:
            schedule.pause(timeout_ms)
    finally:
        process.parked.pop(actor, None)
    if process.dead:
        raise Killed


@dataclass(eq=False)
class Lock:
    """A lock."""

    holder: Actor | None = None
    waiting: deque[Actor] = field(default_factory=deque)

    def __enter__(self) -> Self:
        """Take it."""
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back, if it was not lost by dying."""
        self.release()

    def acquire(self) -> None:
        """Whoever asks first need not have it first."""
        actor, random = _actor(), _world().random
        if owner().dead:
            raise Killed
        if random.random() < _OVERTAKEN:
            park(random.random() * _OVERTAKEN_MS)
        while self.holder is not None:
            self.waiting.append(actor)
            try:
                park(None)
            finally:
                if actor in self.waiting:
                    self.waiting.remove(actor)
        self.holder = actor

    def release(self) -> None:
        """Let the next one have it."""
        if self.holder is _actor():
            self.holder = None
            if self.waiting:
                _world().schedule.wake(self.waiting.popleft())


@dataclass(eq=False)
class Condition:
    """A condition."""

    lock: Lock
    waiting: deque[Actor] = field(default_factory=deque)

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is notified; whether it was."""
        actor = _actor()
        self.waiting.append(actor)
        self.lock.release()
        try:
            park(None if timeout is None else max(timeout, 0) * 1_000)
        finally:
            told = actor not in self.waiting
            if not told:
                self.waiting.remove(actor)
        self.lock.acquire()
        return told

    def notify(self, n: int = 1) -> None:
        """Wake so many."""
        for _ in range(min(n, len(self.waiting))):
            _world().schedule.wake(self.waiting.popleft())

    def notify_all(self) -> None:
        """Wake all."""
        self.notify(len(self.waiting))


@dataclass(eq=False)
class Thread:
    """A thread: an actor of its own, that ends with its process."""

    target: Callable[[], object]
    name: str
    daemon: bool

    def start(self) -> None:
        """Let it run.

        Raises:
            RuntimeError: there is none to be had.
        """
        world, process = _world(), owner()
        if not world.faults.calm and world.random.random() < _NO_THREAD:
            raise RuntimeError("can't start new thread")
        actor = world.schedule.spawn(f"{self.name} of {process.name}", self._run)
        actor.owner, actor.operation = process, SENDER

    def _run(self) -> None:
        _while_alive(self.target)


def monotonic() -> float:
    """Seconds of virtual time."""
    return _world().schedule.now_ms / 1_000


def this_process() -> tuple[int, int]:
    """Which process has the turn."""
    owner = _actor().owner
    return 0 if owner is None else owner.number, 0


def this_copy() -> tuple[object, int]:
    """Which copy of its process has the turn, as far as copies are seen."""
    owner = _actor().owner
    return this_process(), 0 if owner is None else owner.restores


def resumed(process: Process, work: Callable[[], object]) -> None:
    """Let a thread go on that a process had as it was copied."""
    actor = _world().schedule.spawn(f"a thread of {process.name}", lambda: _while_alive(work))
    actor.owner, actor.operation = process, SENDER


def _while_alive(work: Callable[[], object]) -> None:
    if not owner().dead:
        work()


def get_ident() -> int:
    """Which actor this is."""
    return _actor().number


_NAMES: Final[dict[str, Any]] = {
    "Thread": Thread,
    "Lock": Lock,
    "Condition": Condition,
    "monotonic": monotonic,
    "get_ident": get_ident,
    "this_process": this_process,
    "this_copy": this_copy,
    # At the end of Python they would be closed; those of a simulation end with it.
    "opened": lambda _producer: None,
}


@contextmanager
def under(world: World, spool: type[Spool]) -> Iterator[None]:
    """Let the buffer's modules use these, for as long as the block runs.

    Args:
        world: whose schedule it is.
        spool: what spools are opened by.
    """
    ours = {**_NAMES, "Spool": spool}
    before = [
        (vars(module), name, vars(module)[name])
        for module in _MODULES
        for name in ours
        if name in vars(module)
    ]
    _Here.world = world
    for names, name, _ in before:
        names[name] = ours[name]
    try:
        yield
    finally:
        for names, name, one in before:
            names[name] = one
        _Here.world = None
