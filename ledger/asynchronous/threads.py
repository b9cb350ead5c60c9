"""Threads that make the requests of an event loop's calls, while the calls are suspended.

They are daemon threads: a process that ends does not wait for a request whose call was cancelled.
(Those of `concurrent.futures` would hold it up until the time-out of a service that is silent.)
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import finalize

from countledger.ledger.asynchronous.greenlets import running_call
from countledger.ledger.suspension import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class ThreadedRequest:
    """A function that a thread runs while a call is suspended.

    Attributes:
        resumed: what the call waits for.
    """

    __slots__ = ("_answer", "_error", "_function", "resumed")

    def __init__(self, function: Callable[[], object], resumed: asyncio.Future[None]) -> None:
        """Keep what to run.

        Args:
            function: makes the request.
            resumed: of the loop.
        """
        self._function: Callable[[], object] | None = function
        self.resumed = resumed
        self._answer: object = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run the function, unless it was withdrawn. This raises nothing."""
        function = self._function
        if function is None:
            return
        try:
            self._answer = function()
        except BaseException as error:  # noqa: BLE001 - raised where the call is resumed
            self._error = error

    def withdraw(self) -> None:
        """Let no thread run it any more; one that runs is not stopped."""
        self._function = None

    def resume(self) -> None:
        """Resume the call, in the loop's thread, unless it was cancelled."""
        if not self.resumed.done():
            self.resumed.set_result(None)

    def result(self) -> Any:  # noqa: ANN401 - the function's
        """What the function has returned.

        Raises:
            BaseException: what it has raised.
        """
        error, self._error = self._error, None
        if error is None:
            return self._answer
        try:
            raise error
        finally:
            del error  # its traceback holds this frame


_Queue: TypeAlias = "SimpleQueue[ThreadedRequest | None]"


class RequestThreads:
    """Threads of one event loop, each started when it is needed; used in the loop's thread."""

    def __init__(self, number: int) -> None:
        """Start none yet.

        Args:
            number: how many requests run at a time, at the most; others wait for a free thread.
        """
        self._loop = asyncio.get_running_loop()
        self._number = number
        self._queue: _Queue = SimpleQueue()
        self._started = 0
        self._unfinished: list[None] = []  # one for each request that waits or runs
        # Ends the threads, also where nobody calls it.
        self.close = finalize(self, self._queue.put, None)

    def run(self, function: Callable[[], _T]) -> _T:
        """Suspend the call that runs until a thread has run a function; return its result.

        The function sees the context variables of the call. If the call is cancelled while the
        function waits for a thread, it is not run. A function that runs goes on, and its result is
        dropped.

        Raises:
            Interrupted: the call was cancelled.
            RuntimeError: the system gives no thread.
            BaseException: what the function has raised.
        """
        run = partial(copy_context().run, function)
        request = ThreadedRequest(run, self._loop.create_future())
        self._expect_request()
        self._queue.put(request)
        try:
            running_call().wait(request.resumed)
        except Interrupted:
            request.withdraw()
            raise
        answer: _T = request.result()
        return answer

    def _expect_request(self) -> None:
        """Start a thread for one more request, unless one is idle or there are enough."""
        self._unfinished.append(None)
        if len(self._unfinished) <= self._started or self._started == self._number:
            return
        arguments = self._queue, self._unfinished, self._loop
        thread = Thread(target=_work, args=arguments, name="countledger request", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._started:
                self._unfinished.pop()
                raise
        else:
            self._started += 1


def _work(queue: _Queue, unfinished: list[None], loop: asyncio.AbstractEventLoop) -> None:
    while (request := queue.get()) is not None:
        request.run()
        unfinished.pop()
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(request.resume)
        del request
    queue.put(None)  # for the next thread
