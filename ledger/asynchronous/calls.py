"""A connection whose clients serve both the calls of an event loop and threads.

In a call of the loop a thread makes the request, by a client as threads have it, and the call is
suspended meanwhile. One event loop of one process opens the clients, and closes them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field, fields
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar
from weakref import finalize

from countledger.ledger.connection import CONNECTIONS, Connection, Retries
from countledger.ledger.errors import LedgerNotOpen, SetupError
from countledger.ledger.processes import abandon, abandon_in_forks, made_once, this_process
from countledger.ledger.suspension import CallNotes, Interrupted, find_calls_by

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from countledger.ledger.suspension import RunningWork

try:
    from greenlet import getcurrent, greenlet
except ModuleNotFoundError as error:
    raise SetupError("greenlet is not installed: pip install 'countledger[async]'") from error


# Calls of synchronous code in an event loop, each in a greenlet.
#
# A greenlet has a stack of its own. When the call has to wait, its greenlet hands an awaitable to
# the coroutine that runs it, and is suspended, however many functions deep it is; the coroutine
# awaits, and resumes the greenlet with the result. So the call needs no thread, and thousands of
# them wait at the same time.
#
# A greenlet runs in the context of its task: what a context variable holds in it, the coroutines
# that it waits for see as well, and no other task does.


_T = TypeVar("_T")
_A = TypeVar("_A")


class LoopCall(greenlet):
    """A call of synchronous code in an event loop; all greenlets of one call share its notes."""

    def __init__(self, function: Callable[[], object], notes: CallNotes) -> None:
        super().__init__(function)
        self.notes = notes
        self.gr_context = getcurrent().gr_context

    def wait(self, awaitable: Awaitable[_T]) -> _T:
        """Suspend the call, whose code runs now, until something has a result; or Interrupted."""
        if self.parent is None or getcurrent() is not self:
            raise RuntimeError("only the code of a call can wait in it")
        result: _T = self.parent.switch(awaitable)
        return result

    def sleep(self, duration_s: float) -> None:
        self.wait(asyncio.sleep(duration_s))

    def signal(self) -> LoopSignal:
        return LoopSignal()

    def workers(self, number: int) -> LoopWorkers:
        return LoopWorkers(number)


# A generator may go on in another call than it began in, so these ask which call runs now.


class LoopSignal:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def send(self) -> bool:
        with suppress(RuntimeError):  # the loop is closed, and its calls are gone
            self._loop.call_soon_threadsafe(self._resume)
            return self._loop.is_running()
        return False

    def _resume(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def wait(self, timeout_s: float | None = None) -> bool:
        if timeout_s is None:
            running_call().wait(self._future)
        else:
            running_call().wait(asyncio.wait([self._future], timeout=timeout_s))
        return self._future.done()


class LoopWorkers:
    """Functions that run beside their caller, each in a greenlet of its own, so many at a time."""

    def __init__(self, number: int) -> None:
        self._free = asyncio.Semaphore(number)
        self._tasks: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> Self:
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
        work = self._work(partial(function, *arguments), running_call().notes)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return LoopResult(task)

    def map(self, function: Callable[[_A], _T], values: Iterable[_A], /) -> Iterator[_T]:
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
    """The result of a function that runs beside its caller, and may have ended already."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task

    def result(self) -> Any:  # noqa: ANN401 - the function's
        if not self._task.done():
            running_call().wait(asyncio.wait([self._task]))
        return self._task.result()


async def suspended(function: Callable[[], _T], notes: CallNotes) -> _T:
    """Run synchronous code, and await whatever it has to wait for."""
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
    """The call whose code runs now, if any."""
    here = getcurrent()
    return here if isinstance(here, LoopCall) else None


def running_call() -> LoopCall:
    """As `current`, where code of a call must be running."""
    here = current()
    if here is None:
        raise RuntimeError("this is not the code of a call in an event loop")
    return here


find_calls_by(current)


# Threads that make the requests of an event loop's calls, while the calls are suspended.
#
# They are daemon threads: a process that ends does not wait for a request whose call was
# cancelled. (Those of `concurrent.futures` would hold it up until the time-out of a service that
# is silent.)


class ThreadedRequest:
    """A function that a thread runs while a call is suspended."""

    __slots__ = ("_answer", "_error", "_function", "resumed")

    def __init__(self, function: Callable[[], object], resumed: asyncio.Future[None]) -> None:
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
        error, self._error = self._error, None
        if error is None:
            return self._answer
        try:
            raise error
        finally:
            del error  # its traceback holds this frame


_Queue: TypeAlias = "SimpleQueue[ThreadedRequest | None]"


class RequestThreads:
    """So many threads of an event loop, each started when needed; used in the loop's thread."""

    def __init__(self, number: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._number = number
        self._queue: _Queue = SimpleQueue()
        self._started = 0
        self._unfinished: list[None] = []  # one for each request that waits or runs
        # Ends the threads, also where nobody calls it.
        self.close = finalize(self, self._queue.put, None)

    def run(self, function: Callable[[], _T]) -> _T:
        """Suspend the call that runs until a thread has run a function; return its result.

        The function sees the context variables of the call. If the call is cancelled (Interrupted)
        while the function waits for a thread, it is not run. A function that runs goes on, and its
        result is dropped. RuntimeError: the system gives no thread.
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


# A service, how often its SDK retries, and its region.
ClientKind: TypeAlias = tuple[str, Retries, str]
# What a client has beside its operations; the last one only with the fast transport.
_NO_OPERATIONS: Final = frozenset({"meta", "exceptions", "puts_of_json"})


class LoopService:
    """The client of one kind, and the threads in which it makes the requests of a loop.

    The first thread that needs the client makes it: this may read files, and ask a service for
    credentials.
    """

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make
        self.threads = RequestThreads(CONNECTIONS)

    @made_once
    def client(self) -> Any:  # noqa: ANN401 - typed where it is used
        return self._make()

    def attribute(self, name: str) -> Any:  # noqa: ANN401 - whatever a client has
        client = vars(self).get("client") or self.threads.run(lambda: self.client)
        return getattr(client, name)

    def request(self, operation: str, /, **arguments: Any) -> Any:  # noqa: ANN401 - the operation's
        """Suspend the call that runs until a thread has called an operation; return its answer."""
        return self.threads.run(lambda: getattr(self.client, operation)(**arguments))

    def close(self) -> None:
        """End the threads that are idle, and close the connections that are."""
        self.threads.close()
        if "client" in vars(self):
            self.client.close()


class LoopClients:
    """The clients of one event loop of one process, made at their first use."""

    def __init__(self) -> None:
        self._process = this_process()
        self._loop = asyncio.get_running_loop()
        self._services: dict[ClientKind, LoopService] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False
        self.calls = 0
        abandon_in_forks(self)

    @property
    def belong_to_parent(self) -> bool:
        """Whether this is a fork of the process that opened them."""
        return self._process != this_process()

    def check(self) -> None:
        """Raise LedgerNotOpen in another process or loop, or when the clients are closed."""
        self._refuse_in_fork()
        if self._loop is not asyncio.get_running_loop():
            raise LedgerNotOpen(
                "the client was opened on another event loop: use it there, or open one of its own "
                "on this loop"
            )
        if self._closing:
            raise LedgerNotOpen("the client is closed: open it again by `async with`")

    def _refuse_in_fork(self) -> None:
        if self.belong_to_parent:
            raise LedgerNotOpen(
                "the client was opened before this process was forked: open one here by "
                "`async with`, on an event loop of this process"
            )

    async def run(self, function: Callable[[], _T], notes: CallNotes) -> _T:
        """Run synchronous code that makes its requests by these clients; first `check`."""
        self.check()
        self.calls += 1
        self._idle.clear()
        try:
            return await suspended(function, notes)
        finally:
            self.calls -= 1
            if not self.calls:
                self._idle.set()

    def service(self, connection: LoopConnection, kind: ClientKind) -> LoopService:
        """The client of a kind, and its threads; LedgerNotOpen in a fork on its parent's loop."""
        self._refuse_in_fork()
        service = self._services.get(kind)
        if service is None:
            service = self._services[kind] = LoopService(partial(connection.make_client, *kind))
        return service

    async def aclose(self) -> None:
        """Accept no call any more, wait for those that run, and close the connections.

        A request whose call was cancelled is not waited for; its connection is closed when it ends.
        """
        if self.belong_to_parent:
            abandon(self)
            return
        self._closing = True
        try:
            await self._idle.wait()
        finally:
            for service in self._services.values():
                service.close()


@dataclass(slots=True)
class OpenClients:
    """The clients of the loop that has opened an object, if any; else LedgerNotOpen."""

    _clients: LoopClients | None = None

    def get(self) -> LoopClients:
        if self._clients is None:
            raise LedgerNotOpen("the client is not open: use it within `async with`")
        return self._clients

    def open(self) -> None:
        if self._clients is not None and not self._clients.belong_to_parent:
            raise LedgerNotOpen("the client is open already: one `async with` at a time")
        if self._clients is not None:
            abandon(self._clients)
        self._clients = LoopClients()

    async def aclose(self) -> None:
        if self._clients is not None:
            try:
                await self._clients.aclose()
            finally:
                self._clients = None


@dataclass(frozen=True)
class LoopConnection(Connection):
    """A connection for the calls of an event loop, and for threads."""

    opened: OpenClients = field(default_factory=OpenClients, compare=False)

    def _client(
        self, service: str, retries: Retries = "standard", region: str | None = None
    ) -> Any:  # noqa: ANN401 - as of every connection
        return LoopClient(self, (service, retries, region or self.region), super()._client)


def loop_connection(plain: Connection, opened: OpenClients) -> Connection:
    """A connection for the calls of an event loop; itself, if it makes no requests."""
    if not plain.makes_requests:
        return plain
    own = {one.name: getattr(plain, one.name) for one in fields(Connection)}
    return LoopConnection(**own, opened=opened)


class LoopClient:
    """A client of AWS, of one service, for the calls of an event loop and for threads."""

    def __init__(
        self, connection: LoopConnection, kind: ClientKind, make: Callable[..., Any]
    ) -> None:
        self._connection, self._kind, self._make = connection, kind, make
        self._of_threads: Any = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a client has
        """An operation, which suspends the call that runs, or blocks the thread."""
        if name.startswith("__"):
            raise AttributeError(name)
        if current() is None:
            if self._of_threads is None:
                self._of_threads = self._make(*self._kind)
            return getattr(self._of_threads, name)
        service = self._connection.opened.get().service(self._connection, self._kind)
        if name in _NO_OPERATIONS:
            return service.attribute(name)
        return partial(service.request, name)
