"""A connection whose clients serve both the calls of an event loop and threads.

In a call of the loop a request is made by aiobotocore: the call is suspended. In a thread, where
nothing can be suspended, it is made by boto3. One event loop of one process opens the clients, and
closes them.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from countledger.ledger.asynchronous.greenlets import current, suspended
from countledger.ledger.asynchronous.session import open_client, open_session
from countledger.ledger.connection import CONNECTIONS, Connection, Retries
from countledger.ledger.errors import LedgerNotOpen
from countledger.ledger.forks import abandon, abandon_in_forks, this_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.suspension import CallNotes

_T = TypeVar("_T")
# A service, how often its SDK retries, and its region.
ClientKind: TypeAlias = tuple[str, Retries, str]
_OF_THE_FAST_TRANSPORT: Final = "puts_of_json"
# What a client has beside its operations.
_NO_OPERATIONS: Final = frozenset({"meta", "exceptions"})


class LoopClients:
    """The clients of one event loop of one process, made at their first use.

    Attributes:
        calls: how many calls run.
    """

    def __init__(self) -> None:
        """Belong to the running loop of this process."""
        self._process = this_process()
        self._loop = asyncio.get_running_loop()
        self._made: dict[ClientKind, tuple[Any, asyncio.Semaphore]] = {}
        self._making = asyncio.Lock()
        self._session: Any = None
        self._stack = AsyncExitStack()
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
        """Allow a call of the loop only.

        Raises:
            LedgerNotOpen: this is another process or another loop; or the clients are closed.
        """
        if self.belong_to_parent:
            raise LedgerNotOpen(
                "the client was opened before this process was forked: open one here by "
                "`async with`, on an event loop of this process"
            )
        if self._loop is not asyncio.get_running_loop():
            raise LedgerNotOpen(
                "the client was opened on another event loop: use it there, or open one of its own "
                "on this loop"
            )
        if self._closing:
            raise LedgerNotOpen("the client is closed: open it again by `async with`")

    async def run(self, function: Callable[[], _T], notes: CallNotes) -> _T:
        """Run synchronous code that makes its requests by these clients.

        Raises:
            LedgerNotOpen: as `check`.
        """
        self.check()
        self.calls += 1
        self._idle.clear()
        try:
            return await suspended(function, notes)
        finally:
            self.calls -= 1
            if not self.calls:
                self._idle.set()

    async def request(
        self, connection: Connection, kind: ClientKind, operation: str, arguments: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - the operation's answer
        """Make a request; it leaves only when a connection is free for it."""
        client, free = await self.client(connection, kind)
        async with free:
            return await getattr(client, operation)(**arguments)

    async def client(
        self, connection: Connection, kind: ClientKind
    ) -> tuple[Any, asyncio.Semaphore]:
        """The client of a kind, and how many connections of it are free.

        Raises:
            CountledgerError: the client cannot be made.
        """
        if kind not in self._made:
            async with self._making:
                if kind not in self._made:
                    if self._session is None:
                        self._session = await open_session(connection)
                    opened = open_client(connection, self._session, *kind)
                    client = await self._stack.enter_async_context(opened)
                    self._made[kind] = client, asyncio.Semaphore(CONNECTIONS)
        return self._made[kind]

    async def aclose(self) -> None:
        """Accept no call any more, wait for those that run, and close the connections."""
        if self.belong_to_parent:
            abandon(self)
            return
        self._closing = True
        try:
            await self._idle.wait()
        finally:
            await self._stack.aclose()


@dataclass(slots=True)
class OpenClients:
    """The clients of the loop that has opened an object, if any."""

    _clients: LoopClients | None = None

    def get(self) -> LoopClients:
        """The clients.

        Raises:
            LedgerNotOpen: the object is not open.
        """
        if self._clients is None:
            raise LedgerNotOpen("the client is not open: use it within `async with`")
        return self._clients

    def open(self) -> None:
        """Open the clients of the running loop.

        Raises:
            LedgerNotOpen: the object is open already.
        """
        if self._clients is not None and not self._clients.belong_to_parent:
            raise LedgerNotOpen("the client is open already: one `async with` at a time")
        if self._clients is not None:
            abandon(self._clients)
        self._clients = LoopClients()

    async def aclose(self) -> None:
        """Close them, once the calls that run have ended."""
        if self._clients is not None:
            try:
                await self._clients.aclose()
            finally:
                self._clients = None


@dataclass(frozen=True)
class LoopConnection(Connection):
    """A connection for the calls of an event loop, and for threads.

    Attributes:
        opened: the clients of the loop.
    """

    opened: OpenClients = field(default_factory=OpenClients, compare=False)

    def _client(
        self, service: str, retries: Retries = "standard", region: str | None = None
    ) -> Any:  # noqa: ANN401 - as of every connection
        return LoopClient(self, (service, retries, region or self.region), super()._client)


class LoopClient:
    """A client of AWS for the calls of an event loop, and for threads."""

    def __init__(
        self, connection: LoopConnection, kind: ClientKind, make: Callable[..., Any]
    ) -> None:
        """Make no client yet.

        Args:
            connection: gives the loop's clients.
            kind: the service, and how it is called.
            make: makes a client for threads.
        """
        self._connection, self._kind, self._make = connection, kind, make
        self._of_threads: Any = None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a client has
        """An operation, which suspends the call that runs, or blocks the thread."""
        if name.startswith("__"):
            raise AttributeError(name)
        call = current()
        if call is None:
            if self._of_threads is None:
                self._of_threads = self._make(*self._kind)
            return getattr(self._of_threads, name)
        if name == _OF_THE_FAST_TRANSPORT:
            raise AttributeError(name)
        clients = self._connection.opened.get()
        if name in _NO_OPERATIONS:
            return getattr(call.wait(clients.client(self._connection, self._kind))[0], name)

        def request(**arguments: Any) -> Any:  # noqa: ANN401 - the operation's
            return call.wait(clients.request(self._connection, self._kind, name, arguments))

        return request
