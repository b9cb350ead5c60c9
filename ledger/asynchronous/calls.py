"""A connection whose clients serve both the calls of an event loop and threads.

In a call of the loop a thread makes the request, by a client as threads have it, and the call is
suspended meanwhile. One event loop of one process opens the clients, and closes them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from countledger.ledger.asynchronous.greenlets import current, suspended
from countledger.ledger.asynchronous.threads import RequestThreads
from countledger.ledger.connection import CONNECTIONS, Connection, Retries
from countledger.ledger.errors import LedgerNotOpen
from countledger.ledger.processes import abandon, abandon_in_forks, made_once, this_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.suspension import CallNotes


_T = TypeVar("_T")
# A service, how often its SDK retries, and its region.
ClientKind: TypeAlias = tuple[str, Retries, str]
# What a client has beside its operations; the last one only with the fast transport.
_NO_OPERATIONS: Final = frozenset({"meta", "exceptions", "puts_of_json"})


class LoopService:
    """The client of one kind, and the threads in which it makes the requests of a loop."""

    def __init__(self, make: Callable[[], object]) -> None:
        """Make no client yet.

        Args:
            make: makes the client; it may read files and ask a service for credentials.
        """
        self._make = make
        self.threads = RequestThreads(CONNECTIONS)

    @made_once
    def client(self) -> Any:  # noqa: ANN401 - typed where it is used
        """The client, which the first thread makes that needs it."""
        return self._make()

    def attribute(self, name: str) -> Any:  # noqa: ANN401 - whatever a client has
        """Something of the client that is no operation."""
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
    """The clients of one event loop of one process, made at their first use.

    Attributes:
        calls: how many calls run.
    """

    def __init__(self) -> None:
        """Belong to the running loop of this process."""
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
        """Allow a call of the loop only.

        Raises:
            LedgerNotOpen: this is another process or another loop; or the clients are closed.
        """
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

    def service(self, connection: LoopConnection, kind: ClientKind) -> LoopService:
        """The client of a kind, and its threads.

        Raises:
            LedgerNotOpen: this is a fork that goes on with the loop of its parent.
        """
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


def loop_connection(plain: Connection, opened: OpenClients) -> Connection:
    """A connection for the calls of an event loop; itself, if it makes no requests."""
    if not plain.makes_requests:
        return plain
    own = {one.name: getattr(plain, one.name) for one in fields(Connection)}
    return LoopConnection(**own, opened=opened)


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
        if current() is None:
            if self._of_threads is None:
                self._of_threads = self._make(*self._kind)
            return getattr(self._of_threads, name)
        service = self._connection.opened.get().service(self._connection, self._kind)
        if name in _NO_OPERATIONS:
            return service.attribute(name)
        return partial(service.request, name)
