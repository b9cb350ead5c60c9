"""The local server: HTTP on loopback, with bounds that no client passes.

Hypercorn speaks the protocol. It closes a connection that sent no complete request line and headers
in time, and refuses headers above a size. What it does not bound is bounded here: how many
connections are open, and how long a client may leave an answer unread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from hypercorn.asyncio import serve as hypercorn_serve
from hypercorn.asyncio import tcp_server
from hypercorn.config import Config, Sockets
from hypercorn.events import Closed
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H2CProtocolRequiredError, H2ProtocolAssumedError

from countledger.infra.local.front import BACKLOG, listening_socket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hypercorn.events import Event
    from hypercorn.typing import ASGIFramework

# Below the number of open files that a process has by default.
CONNECTIONS_MAX: Final = 512
HEADERS_MAX_BYTES: Final = 16 * 1024
HEADERS_TIMEOUT_S: Final = 5.0
UNREAD_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 1.0


class Listener(socket.socket):
    """A listening socket on loopback with a bound on open connections.

    A connection above the bound is closed at once; the ones that are open are not affected.
    """

    def __init__(
        self,
        fileno: int,
        *,
        most: int = CONNECTIONS_MAX,
        unread_timeout_s: float = UNREAD_TIMEOUT_S,
    ) -> None:
        """Take over a socket.

        Args:
            fileno: of a socket that listens; it is closed with this one.
            most: how many connections may be open.
            unread_timeout_s: how long a client may leave an answer unread before the system closes
                its connection (on Linux; elsewhere not).
        """
        super().__init__(socket.AF_INET, socket.SOCK_STREAM, fileno=fileno)
        self._most = most
        self._unread_timeout_ms = int(unread_timeout_s * 1000)
        self._accepted: WeakSet[socket.socket] = WeakSet()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port: int = self.getsockname()[1]
        return port

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection.

        Raises:
            ConnectionAbortedError: too many are open, and this one is closed.
        """
        connection, address = super().accept()
        if sum(one.fileno() >= 0 for one in self._accepted) >= self._most:
            connection.close()
            raise ConnectionAbortedError
        self._accepted.add(connection)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            connection.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._unread_timeout_ms
            )
        return connection, address


def listen(port: int = 0) -> Listener:
    """Listen on loopback; clients may connect from now on, and wait until `serve` runs.

    Args:
        port: 0: any that is free.

    Raises:
        BadSetting: another program listens on that port, or the system does not allow it.
    """
    return Listener(listening_socket(port).detach())


class _OfHttp1(ProtocolWrapper):
    """Hypercorn's connection, closed where it would go on in HTTP/2.

    No browser speaks that without TLS, and hypercorn closes no idle connection of it.
    """

    async def handle(self, event: Event) -> None:
        try:
            await self.protocol.handle(event)
        except (H2ProtocolAssumedError, H2CProtocolRequiredError):
            await self.send(Closed())


class _OnListener(Config):
    """Hypercorn's settings for one socket that exists already."""

    def __init__(self, listener: Listener, headers_timeout_s: float) -> None:
        super().__init__()
        listener.setblocking(False)
        self._listener = listener
        self.h11_max_incomplete_size = HEADERS_MAX_BYTES
        self.keep_alive_timeout = headers_timeout_s
        self.graceful_timeout = STOP_TIMEOUT_S
        self.backlog = BACKLOG
        self.include_server_header = False
        # No access log: an address may contain the token.
        self.accesslog = None
        self.errorlog = logging.getLogger("hypercorn.error")

    def create_sockets(self) -> Sockets:
        return Sockets([], [self._listener], [])


def _say(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what no code handles, except a connection that the end of the server has closed."""
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)


async def serve(
    app: ASGIFramework,
    listener: Listener,
    stop: Callable[[], Awaitable[object]],
    *,
    headers_timeout_s: float = HEADERS_TIMEOUT_S,
) -> None:
    """Serve an app until `stop` returns; requests under way get a second to end.

    Args:
        app: an ASGI app.
        listener: what `listen` returned; it is closed in the end.
        stop: returns when the server shall end.
        headers_timeout_s: how long a client may take for a request line and headers, and how long
            a connection may be idle.
    """

    async def stopped() -> None:
        await stop()

    asyncio.get_running_loop().set_exception_handler(_say)
    tcp_server.ProtocolWrapper = _OfHttp1  # type: ignore[attr-defined]  # of its connections
    await hypercorn_serve(
        app, _OnListener(listener, headers_timeout_s), shutdown_trigger=stopped, mode="asgi"
    )
