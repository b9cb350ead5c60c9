"""Calls of synchronous code in an event loop, each in a greenlet.

A greenlet has a stack of its own. When the call has to wait, its greenlet hands an awaitable to the
coroutine that runs it, and is suspended, however many functions deep it is; the coroutine awaits,
and resumes the greenlet with the result. So the call needs no thread, and thousands of them wait at
the same time.

A greenlet runs in the context of its task: what a context variable holds in it, the coroutines that
it waits for see as well, and no other task does.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from countledger.ledger.errors import SetupError
from countledger.ledger.suspension import CallNotes, Interrupted, find_calls_by

try:
    from greenlet import getcurrent, greenlet
except ModuleNotFoundError as error:
    raise SetupError("greenlet is not installed: pip install 'countledger[async]'") from error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from countledger.ledger.suspension import RunningWork

_T = TypeVar("_T")
_A = TypeVar("_A")


class LoopCall(greenlet):
    """A call of synchronous code in an event loop."""

    def __init__(self, function: Callable[[], object], notes: CallNotes) -> None:
        """Begin nothing yet.

        Args:
            function: the synchronous code.
            notes: what it may have done; shared by all greenlets of one call.
        """
        super().__init__(function)
        self.notes = notes
        self.gr_context = getcurrent().gr_context

    def wait(self, awaitable: Awaitable[_T]) -> _T:
        """Suspend the call, whose code runs now, until something has a result.

        Raises:
            Interrupted: the task of the call was cancelled.
        """
        if self.parent is None or getcurrent() is not self:
            raise RuntimeError("only the code of a call can wait in it")
        result: _T = self.parent.switch(awaitable)
        return result

    def sleep(self, duration_s: float) -> None:
        """Suspend the call for so long."""
        self.wait(asyncio.sleep(duration_s))

    def signal(self) -> LoopSignal:
        """A signal to wait for."""
        return LoopSignal()

    def workers(self, number: int) -> LoopWorkers:
        """So many tasks at a time, in place of threads; none is left when the block ends."""
        return LoopWorkers(number)


# A generator may go on in another call than it began in, so these ask which call runs now.


class LoopSignal:
    """Resumes one suspended call."""

    def __init__(self) -> None:
        """A signal that was not sent yet."""
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def send(self) -> None:
        """Resume the call; from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._resume)

    def _resume(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def wait(self) -> None:
        """Suspend the call until then."""
        running_call().wait(self._future)


class LoopWorkers:
    """Functions that run beside their caller, each in a greenlet of its own."""

    def __init__(self, number: int) -> None:
        """Nothing runs yet.

        Args:
            number: how many run at a time, at the most.
        """
        self._free = asyncio.Semaphore(number)
        self._tasks: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> Self:
        """Functions can be submitted."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait until all have ended; after an error cancel them first."""
        left = {task for task in self._tasks if not task.done()}
        if kind is not None:
            for task in left:
                task.cancel()
        if left:
            running_call().wait(asyncio.wait(left))

    def submit(self, function: Callable[..., _T], /, *arguments: Any) -> RunningWork[_T]:  # noqa: ANN401 - the function's
        """Run a function as soon as a worker is free."""
        work = self._work(partial(function, *arguments), running_call().notes)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return LoopResult(task)

    def map(self, function: Callable[[_A], _T], values: Iterable[_A], /) -> Iterator[_T]:
        """The results of a function for each value, in their order."""
        running = [self.submit(function, value) for value in values]
        return (one.result() for one in running)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: as with threads, one that nobody reads is dropped

    async def _work(self, function: Callable[[], _T], notes: CallNotes) -> _T:
        async with self._free:
            return await suspended(function, notes)


class LoopResult:
    """The result of a function that runs beside its caller."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        """The function may have ended already.

        Args:
            task: runs it.
        """
        self._task = task

    def result(self) -> Any:  # noqa: ANN401 - the function's
        """Suspend the call until the result is there; return it, or raise the error."""
        if not self._task.done():
            running_call().wait(asyncio.wait([self._task]))
        return self._task.result()


async def suspended(function: Callable[[], _T], notes: CallNotes) -> _T:
    """Run synchronous code, and await whatever it has to wait for.

    Args:
        function: the code.
        notes: what the call may have done.

    Raises:
        asyncio.CancelledError: the task was cancelled.
    """
    call = LoopCall(function, notes)
    try:
        outcome: Any = call.switch()
        while not call.dead:
            try:
                result = await outcome
            except (asyncio.CancelledError, GeneratorExit) as cancelled:
                outcome = call.throw(Interrupted(cancelled))
            except BaseException as error:  # noqa: BLE001 - the code decides what it means
                outcome = call.throw(error)
            else:
                outcome = call.switch(result)
    except Interrupted as stop:
        raise stop.cancelled from None
    value: _T = outcome
    return value


def current() -> LoopCall | None:
    """The call that runs now, or None: no code of a call does."""
    here = getcurrent()
    return here if isinstance(here, LoopCall) else None


def running_call() -> LoopCall:
    """The call that runs now.

    Raises:
        RuntimeError: no code of a call runs.
    """
    here = current()
    if here is None:
        raise RuntimeError("this is not the code of a call in an event loop")
    return here


find_calls_by(current)
