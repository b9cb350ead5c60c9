"""An event loop of a simulated process: its time is virtual, and other actors call it.

The loop is asyncio's own (`BaseEventLoop`); only its selector is replaced. It is an actor that
stands still until a timer is due or another actor of its process has something for it.
"""

import asyncio
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, TypeVar

from tests.simulation import threads
from tests.simulation.process import Process
from tests.simulation.schedule import Actor, Killed

_T = TypeVar("_T")

# How often others come in between two turns of a loop, and for how long at the most.
_OVERTAKEN: Final = 0.3
_OVERTAKEN_MS: Final = 2.0
_TICK_S: Final = 0.001


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address, so that a seed replays."""

    def __init__(self, work: Any, number: int, **options: Any) -> None:  # noqa: ANN401 - handed on
        self._number = number
        self._inside = options.pop("context", None) or copy_context()
        super().__init__(work, context=self._inside, **options)

    def abandon(self) -> None:
        """It never goes on: let go of what it holds here, and not wherever it is collected."""
        work: Any = self.get_coro()
        if not self.done():
            with suppress(BaseException):
                self._inside.run(work.close)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _Arrivals:
    """The selector: what others have for the loop, and the waiting for it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._arrived: list[Callable[[], None]] = []
        self._waiting: Actor | None = None

    def arrive(self, what: Callable[[], None]) -> None:
        """The loop does something at its next turn."""
        self._arrived.append(what)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._process.world.schedule.wake(waiting)

    def select(self, timeout: float | None) -> list[Callable[[], None]]:
        """Wait until another actor has something for it, or the time is over."""
        world = self._process.world
        if not self._arrived and timeout != 0:
            self._waiting = world.schedule.actor
            threads.park(None if timeout is None else timeout * 1_000)
            self._waiting = None
        elif world.random.random() < _OVERTAKEN:
            threads.park(world.random.random() * _OVERTAKEN_MS)
        arrived, self._arrived = self._arrived, []
        return arrived

    def close(self) -> None:
        """Nothing to let go of."""


class SimulatedLoop(BaseEventLoop):
    """The event loop of a process; it runs until its process dies."""

    def __init__(self, process: Process) -> None:
        """Start it, as an actor."""
        super().__init__()
        self.process = process
        self._selector = _Arrivals(process)
        self._clock_resolution = _TICK_S
        self._made: list[_Task] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(lambda _loop, _context: None)
        actor = process.world.schedule.spawn(f"loop of {process.name}", self._live)
        actor.owner = process

    def time(self) -> float:
        """Seconds of virtual time."""
        return self.process.world.schedule.now_ms / 1_000

    def call(self, work: Coroutine[Any, Any, _T], cancel_after_ms: float | None = None) -> _T:
        """Have a coroutine carried out, from another actor of the process, and wait for it.

        Args:
            work: what to do.
            cancel_after_ms: its task is cancelled if it takes longer; None: it never is.

        Raises:
            asyncio.CancelledError: it was.
            Killed: the process died meanwhile.
        """
        schedule = self.process.world.schedule
        caller, task = schedule.actor, self.create_task(work)
        until_ms = None if cancel_after_ms is None else schedule.now_ms + cancel_after_ms
        parked = False

        def wake(_task: object) -> None:
            if parked and caller is not None:
                schedule.wake(caller)

        task.add_done_callback(wake)
        self._selector.arrive(lambda: None)
        while not task.done():
            left_ms = None if until_ms is None else until_ms - schedule.now_ms
            if left_ms is not None and left_ms <= 0:
                self._selector.arrive(lambda: self._cancel(task))
                until_ms = left_ms = None
            parked = True
            threads.park(left_ms)
            parked = False
        return task.result()

    def _make_task(self, loop: Any, work: Any, **options: Any) -> _Task:  # noqa: ANN401 - handed on
        task = _Task(work, len(self._made), loop=loop, **options)
        self._made.append(task)
        return task

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        task.cancel()

    def _live(self) -> None:
        try:
            self.run_forever()
        finally:
            # A dead process does nothing more.
            for task in self._made:
                task.abandon()
            self.close()

    def __del__(self) -> None:
        """One whose actor never ran has nothing to close."""

    def _run_once(self) -> None:
        super()._run_once()  # type: ignore[misc]  # of asyncio itself
        if self.process.dead:
            raise Killed

    def _process_events(self, event_list: list[Callable[[], None]]) -> None:
        for arrived in event_list:
            arrived()

    def _write_to_self(self) -> None:
        """Another actor has scheduled a call."""
        self._selector.arrive(lambda: None)
