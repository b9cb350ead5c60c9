"""An event loop of a simulated process: its time is virtual, and its requests are actors.

The loop is asyncio's own (`BaseEventLoop`); only its selector and its threads are replaced. It is
an actor that stands still until a timer is due or a request has come back. A request (a call of the
client, or a job for a thread) is an actor of its own: it goes on where its task is cancelled, and
lands after its process died as any other request does.
"""

import asyncio
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from countledger.ledger.asynchronous.calls import running_call
from tests.simulation import threads
from tests.simulation.dynamo import SimulatedClient
from tests.simulation.process import Process
from tests.simulation.schedule import Actor, Killed

_T = TypeVar("_T")

# What the calls of a loop's requests are counted under.
ASYNC_SENDER: Final = "async sender"
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
    """The selector: what came back, and the waiting for it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._arrived: list[Callable[[], None]] = []
        self._waiting: Actor | None = None

    def arrive(self, what: Callable[[], None]) -> None:
        """Something came back: the loop takes note of it at its next turn."""
        self._arrived.append(what)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._process.world.schedule.wake(waiting)

    def select(self, timeout: float | None) -> list[Callable[[], None]]:
        """Wait until something comes back, or the time is over."""
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

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]  # noqa: ANN401, ARG002
        """A job beside the loop: an actor that says what came of it."""
        future = self.create_future()
        context = copy_context()

        def work() -> None:
            try:
                answer = context.run(func, *args)
            except Exception as error:  # noqa: BLE001 - raised where it is awaited
                self._selector.arrive(partial(_fail, future, error))
            else:
                self._selector.arrive(lambda: _answer(future, answer))

        actor = self.process.world.schedule.spawn(f"request of {self.process.name}", work)
        actor.owner, actor.operation = self.process, ASYNC_SENDER
        return future

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
        """Nobody else's thread calls: one actor runs at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLoopClient(SimulatedClient):
    """A client for calls of the event loop, which its requests suspend."""

    def read(self, what: str, request: Callable[[], _T]) -> _T:
        """As of a thread, beside the loop."""
        return _beside(partial(SimulatedClient.read, self, what, request))

    def written(self, what: str, request: Callable[[], _T]) -> _T:
        """As of a thread, beside the loop."""
        return _beside(partial(SimulatedClient.written, self, what, request))


@dataclass(frozen=True, slots=True)
class LoopClock:
    """The clock of a process; the calls of its loop wait by being suspended."""

    process: Process

    def now_ms(self) -> int:
        """The time as the process believes it to be."""
        return self.process.now_ms()

    def sleep_ms(self, duration_ms: float) -> None:
        """Suspend the call."""
        running_call().sleep(duration_ms / 1_000)


def _beside(request: Callable[[], _T]) -> _T:
    """Suspend the call that runs until a request has come back."""
    answer: _T = running_call().wait(asyncio.get_running_loop().run_in_executor(None, request))
    return answer


def _answer(future: asyncio.Future[_T], answer: _T) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
