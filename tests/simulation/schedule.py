"""One actor runs at a time, in virtual time; a seed decides how long everything takes.

Each actor has a thread that waits for its turn, so the product's own code runs as it is. At every
pause it says how long it stands; whoever wakes first goes on. What the world does by itself (a
version arrives, a message shows up again) are events of the same order, carried out by whoever
holds the turn. Days pass in no time: where nothing happens nothing is waited for.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from tests.simulation.draws import Draws

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.simulation.process import Process


class Killed(BaseException):
    """The process ends here; no handler of errors may catch it."""


class Stopped(BaseException):
    """The simulation is over."""


@dataclass(eq=False)
class _Worker:
    """A thread that runs one actor after the other; to start one takes longer than to wake one."""

    turn: Lock = field(default_factory=Lock)
    job: Callable[[], None] | None = None

    def start(self) -> None:
        self.turn.acquire()
        Thread(target=self._run, daemon=True, name="simulation").start()

    def _run(self) -> None:
        while True:
            self.turn.acquire()
            if self.job is not None:
                self.job()


_IDLE: Final[deque[_Worker]] = deque()


@dataclass(eq=False)
class Actor:
    """Something that runs on its own.

    Attributes:
        name: for messages.
        work: what it does.
        owner: the process that it is a thread of, where there are several.
        operation: what its calls are counted under, where that is not its process's.
        number: in the order of their making.
        source: what it draws from.
    """

    name: str
    work: Callable[[], None]
    worker: _Worker | None = None
    waking: int = 0
    owner: Process | None = None
    operation: str | None = None
    number: int = 0
    source: Random | None = None


@dataclass
class Schedule:
    """Passes the turn.

    Attributes:
        random: draws what is left open.
        now_ms: the true time.
        steps: how many pauses there were.
        failure: what went wrong, in whatever actor.
        steps_max: a simulation that takes more does not end by itself.
    """

    random: Random
    now_ms: float = 0.0
    steps: int = 0
    failure: BaseException | None = None
    steps_max: int = 400_000
    _queue: list[tuple[float, int, int, Actor | Callable[[], object]]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _actors: Iterator[int] = field(default_factory=count)
    _alive: dict[Actor, None] = field(default_factory=dict)
    _now: Actor | None = None
    _stopping: bool = False
    _named: Counter[str] = field(default_factory=Counter)
    _end: Lock = field(default_factory=Lock)

    def spawn(self, name: str, work: Callable[[], None], delay_ms: float = 0.0) -> Actor:
        """One more actor."""
        actor = Actor(name, work, number=next(self._actors))
        if isinstance(self.random, Draws):
            self._named[name] += 1
            actor.source = self.random.of(f"{name} {self._named[name]}")
        self._alive[actor] = None
        self.wake(actor, delay_ms)
        return actor

    def at(self, delay_ms: float, event: Callable[[], object]) -> None:
        """Let something happen by itself."""
        heappush(self._queue, (self.now_ms + delay_ms, next(self._numbers), 0, event))

    def wake(self, actor: Actor, delay_ms: float = 0.0) -> None:
        """Let an actor go on then, whatever it waits for."""
        number = next(self._numbers)
        actor.waking = number
        heappush(self._queue, (self.now_ms + delay_ms, number, number, actor))

    def draw_anew(self, name: str) -> None:
        """Whoever has the turn draws from a source of that name from now on."""
        if isinstance(self.random, Draws) and self._now is not None:
            self._now.source = self.random.source = self.random.of(name)

    @property
    def alive(self) -> list[Actor]:
        """All actors that have not ended."""
        return list(self._alive)

    @property
    def actor(self) -> Actor | None:
        """Whose turn it is."""
        return self._now

    def run(self) -> None:
        """Let all of them run until one of them stops the simulation.

        Raises:
            BaseException: what went wrong in one of them.
        """
        self._end.acquire()
        self._pass_on(None)
        self._end.acquire()
        self._end.release()
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        """End it: every actor is told at its next turn."""
        self._stopping = True

    def pause(self, duration_ms: float) -> None:
        """Stand still for so long; others go on. Outside of a run only time passes, and events.

        Raises:
            Stopped: the simulation is over.
        """
        actor = self._now
        if actor is None:
            self.pass_time(duration_ms)
            return
        self.wake(actor, duration_ms)
        self._wait(actor)

    def park(self) -> None:
        """Stand still until somebody wakes whoever has the turn.

        Raises:
            Stopped: the simulation is over.
        """
        actor = self._now
        if actor is None:
            raise AssertionError("outside of a run nobody would wake anybody")
        actor.waking = -1
        self._wait(actor)

    def pass_time(self, duration_ms: float) -> None:
        """Outside of a run: what is due by then happens. No actor may be waiting."""
        until_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= until_ms:
            when_ms, _, _, who = heappop(self._queue)
            self.now_ms = max(self.now_ms, when_ms)
            if isinstance(who, Actor):
                raise TypeError(f"{who.name} waits for a run")
            who()
        self.now_ms = until_ms

    def _wait(self, actor: Actor) -> None:
        self.steps += 1
        if self.steps > self.steps_max:
            self._fail(AssertionError(f"it does not end within {self.steps_max} steps"))
        if not self._pass_on(actor) and actor.worker is not None:
            actor.worker.turn.acquire()
        if self._stopping:
            raise Stopped

    def _pass_on(self, me: Actor | None) -> bool:
        """Give the turn to whoever is next; whether that is the one who asks."""
        actor = self._next()
        self._now = actor
        if actor is None:
            self._end.release()
            return False
        if actor is me:
            return True
        if actor.worker is None:
            actor.worker = _IDLE.pop() if _IDLE else self._new_worker()
            actor.worker.job = lambda: self._live(actor)
        actor.worker.turn.release()
        return False

    @staticmethod
    def _new_worker() -> _Worker:
        worker = _Worker()
        worker.start()
        return worker

    def _next(self) -> Actor | None:
        while not self._stopping:
            if not self._queue:
                self._fail(AssertionError("everybody waits, and nobody is waited for"))
                break
            when_ms, _, number, who = heappop(self._queue)
            if isinstance(who, Actor):
                if who.waking != number or who not in self._alive:
                    continue
                self.now_ms = max(self.now_ms, when_ms)
                self._draw_from(who.source)
                return who
            self._draw_from(None)
            self.now_ms = max(self.now_ms, when_ms)
            try:
                who()
            except BaseException as error:  # noqa: BLE001 - told by `run`, whatever it is
                self._fail(error)
        return next(iter(self._alive), None)

    def _draw_from(self, source: Random | None) -> None:
        if isinstance(self.random, Draws):
            self.random.source = source or self.random.common

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self._stopping = True

    def _live(self, actor: Actor) -> None:
        try:
            if not self._stopping:
                actor.work()
        except (Stopped, Killed):
            pass
        except BaseException as error:  # noqa: BLE001 - told by `run`, whatever it is
            self._fail(error)
        del self._alive[actor]
        worker = actor.worker
        if worker is not None:
            worker.job = None
            _IDLE.append(worker)
        self._pass_on(None)
