"""Where synchronous code waits: it blocks its thread, or suspends its call of an event loop.

One implementation serves threads and event loops. A call of an event loop runs in a greenlet (see
`asynchronous.calls`), whose thread is the loop's: if the call blocked it, every other task of
the loop would wait too. So each place that waits for a request, for time, for other calls or for a
lock asks here first. In a thread nothing changes.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from queue import Empty
from threading import TIMEOUT_MAX, Condition
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from threading import Lock

    from countledger.ledger.entry import Entry

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_A = TypeVar("_A")
_P = ParamSpec("_P")


class Interrupted(BaseException):
    """The task of a call was cancelled while the call waited.

    It is raised at the place that waits, passes through the synchronous code, and becomes the
    task's own `CancelledError` (`cancelled`) again. `left`: the call waited for a request that may
    have reached the service.
    """

    def __init__(self, cancelled: BaseException) -> None:
        super().__init__("the call was cancelled")
        self.cancelled = cancelled
        self.left = False


@dataclass(slots=True)
class CallNotes:
    """What a call of an event loop may have done so far: changed something, recorded entries."""

    maybe_applied: bool = False
    entries: list[Entry] = field(default_factory=list)


class RunningWork(Protocol[_T_co]):
    def result(self) -> _T_co: ...


class Workers(Protocol):
    def submit(self, function: Callable[..., _T], /, *arguments: Any) -> RunningWork[_T]:  # noqa: ANN401 - the function's
        """Run a function as soon as a worker is free."""

    def map(self, function: Callable[[_A], _T], values: Iterable[_A], /) -> Iterator[_T]:
        """The results of a function for each value, in their order."""


class MakeWorkers(Protocol):
    """Makes workers; none of them works any more when the block ends."""

    def __call__(self, number: int, name: str) -> AbstractContextManager[Workers]: ...


class Signal(Protocol):
    """Resumes one suspended call."""

    def send(self) -> bool:
        """Resume it, from any thread; False: its loop does not run, and may never run again."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it was sent in time."""


class SuspendedCall(Protocol):
    """A call of an event loop, which waits by being suspended."""

    notes: CallNotes

    def sleep(self, duration_s: float) -> None: ...

    def signal(self) -> Signal: ...

    def workers(self, number: int) -> AbstractContextManager[Workers]:
        """So many tasks at a time, in place of threads; none is left when the block ends."""


# What finds the call that runs now; empty until `asynchronous.calls` is imported.
_FINDERS: Final[list[Callable[[], SuspendedCall | None]]] = []


def find_calls_by(find: Callable[[], SuspendedCall | None]) -> None:
    _FINDERS[:] = [find]


def current_call() -> SuspendedCall | None:
    """The call of an event loop that runs now; None: this code may block its thread."""
    return _FINDERS[0]() if _FINDERS else None


def sleep(duration_s: float) -> None:
    call = current_call()
    if call is None:
        time.sleep(duration_s)
    else:
        call.sleep(duration_s)


class WorkerThreads(ThreadPoolExecutor):
    """So many threads at the most; fewer where the system gives no more.

    Once the main thread has ended, Python gives none: what `atexit` calls, or a thread that is
    still running, does the work itself.
    """

    # `_shutdown` of the base is also set as Python ends.
    _ended = False

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as of the base
        self._ended = True
        super().shutdown(wait, cancel_futures=cancel_futures)

    def submit(
        self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Future[_T]:
        """Run a function in a thread; if there is none, here, before this returns."""
        try:
            return super().submit(function, *args, **kwargs)
        except RuntimeError:
            if self._ended:  # a fault of the caller
                raise
        if not self._threads:  # nobody will take what waits in the queue
            with suppress(Empty):
                self._work_queue.get_nowait()
        here: Future[_T] = Future()
        try:
            here.set_result(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - as in a thread: `result` raises it
            here.set_exception(error)
        return here

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            # The function waits in the queue already: a thread that runs will take it. If `submit`
            # ran it too, it would be done twice.
            if not self._threads:
                raise


class Waiters:
    """A condition of threads, which block, and of calls of event loops, which are suspended.

    As with a condition, its lock is held when a method is called. Who holds the lock is never
    suspended with it: the calls of a loop share one thread.
    """

    def __init__(self, lock: Lock) -> None:
        self.waiting = 0
        self._lock = lock
        self._threads = Condition(lock)
        self._calls: deque[Signal] = deque()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for a notice, or until the time is over."""
        call = current_call()
        self.waiting += 1
        try:
            if call is None:
                self._threads.wait(None if timeout_s is None else min(timeout_s, TIMEOUT_MAX))
            else:
                self._suspend(call.signal(), timeout_s)
        finally:
            self.waiting -= 1

    def _suspend(self, signal: Signal, timeout_s: float | None) -> None:
        sent = False
        self._calls.append(signal)
        self._lock.release()
        try:
            sent = signal.wait(timeout_s)
        finally:
            self._lock.acquire()
            if not sent:
                with suppress(ValueError):  # sent as the wait ended
                    self._calls.remove(signal)

    def wait_for(self, holds: Callable[[], bool], timeout_s: float | None) -> None:
        """Wait until a condition holds, or the time is over."""
        end_s = inf if timeout_s is None else monotonic() + timeout_s
        while not holds() and (left_s := end_s - monotonic()) > 0:
            self.wait(None if timeout_s is None else left_s)

    def notify(self) -> None:
        """End the wait of one thread or call, if any waits."""
        while self._calls:
            if self._calls.popleft().send():
                return
        self._threads.notify()

    def notify_all(self) -> None:
        self._threads.notify_all()
        while self._calls:
            self._calls.popleft().send()


def workers(number: int, name: str) -> AbstractContextManager[Workers]:
    """So many threads of a name; in a call of an event loop so many tasks instead."""
    call = current_call()
    return WorkerThreads(number, name) if call is None else call.workers(number)


def note_entries(entries: Iterable[Entry]) -> None:
    """Note entries that the call of an event loop may have recorded; in a thread do nothing."""
    call = current_call()
    if call is not None:
        call.notes.entries += entries


def note_write() -> None:
    """Note that the call of an event loop may have changed something."""
    call = current_call()
    if call is not None:
        call.notes.maybe_applied = True
