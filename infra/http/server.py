"""The local server's outermost app: who may pass, how much, and the files of the dashboard.

What passes goes to the API. A body is collected here, within a size and a time, so that a slow
client waits at the gate and not inside the API.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from fastapi.responses import JSONResponse, PlainTextResponse, Response
from hypercorn.asyncio import serve as hypercorn_serve
from hypercorn.asyncio import tcp_server
from hypercorn.config import Config, Sockets
from hypercorn.events import Closed
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H2CProtocolRequiredError, H2ProtocolAssumedError
from starlette.datastructures import MutableHeaders

from countledger import CountLedger
from countledger.infra.calls.access import EVERYTHING, READ_EVERYTHING
from countledger.infra.http.api import BODY_MAX_BYTES, NamedOrigins, http_app, named_origins
from countledger.infra.http.problems import MEDIA_TYPE, TYPE_PREFIX
from countledger.infra.local.front import (
    ALLOW_WRITES,
    BACKLOG,
    LOOPBACK,
    address_of,
    listening_socket,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import IO, TypeAlias

    from hypercorn.events import Event
    from hypercorn.typing import ASGIFramework


# Who may use the local server: a pure decision on the head of a request.
#
# The server listens on loopback, so the risks are other users of the machine and pages in the
# user's own browser. A token, which only the user has, excludes both; it is sent in the header
# `Authorization` alone. A browser sends cookies to every port of a host, so one would bring the
# token to servers of other users. Pages of other sites are excluded by the name of the host (a
# foreign name that resolves to loopback is DNS rebinding) and by the origin as well. The files of
# the dashboard are no secret.


_READING: Final = frozenset({"GET", "HEAD"})
# What a browser says of a request that its user, or our own page, made.
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_PAGE: Final = "/"
API: Final = "/v1"


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request: headers by small letters, of several with one name the last."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is refused; the slug is in the `type` of the answer, and never changes."""

    status: HTTPStatus
    slug: str
    says: str


@dataclass(frozen=True, slots=True)
class Accepted:
    pass


_WRONG_HOST: Final = Refusal(
    HTTPStatus.MISDIRECTED_REQUEST,
    "wrong-host",
    "the Host header does not name this server: use the address that the command printed",
)
_WRONG_ORIGIN: Final = Refusal(
    HTTPStatus.FORBIDDEN,
    "wrong-origin",
    "the request comes from a page of another site: name its origin with --cors-origin, if it may "
    "use this server",
)
_NO_TOKEN: Final = Refusal(
    HTTPStatus.UNAUTHORIZED,
    "no-token",
    "the token is missing or wrong: open the whole address that the command printed, or send "
    "the header `Authorization: Bearer TOKEN`",
)
_READ_ONLY: Final = Refusal(
    HTTPStatus.FORBIDDEN,
    "read-only",
    "this server only reads: start one that may write with `countledger serve --allow-writes`, or "
    "a local stack with `countledger up --allow-writes`",
)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The rules of one server; `origins` are those whose pages may send requests, too."""

    port: int
    token: str
    allow_writes: bool = False
    origins: frozenset[str] = frozenset()

    @property
    def url(self) -> str:
        """The address that signs a browser in: the page keeps the token for its origin."""
        return address_of(self.port, self.token)

    def decide(self, head: RequestHead) -> Accepted | Refusal:
        hosts = {f"{name}:{self.port}" for name in (LOOPBACK, "localhost")}
        if head.headers.get("host", "").lower() not in hosts:
            return _WRONG_HOST
        if not self._of_our_page(head, hosts):
            return _WRONG_ORIGIN
        if not is_api(head.path):
            return Accepted()
        if not self._is_token(_bearer(head)):
            return _NO_TOKEN
        if head.method not in _READING and not self.allow_writes:
            return _READ_ONLY
        return Accepted()

    def _of_our_page(self, head: RequestHead, hosts: set[str]) -> bool:
        """No page of another site sent the request, but that of a named origin.

        A program names no site, and needs no check. A link on another site may lead to the page,
        which changes nothing.
        """
        origin = head.headers.get("origin")
        if origin in self.origins:
            return True
        if origin is not None and origin.lower() not in {f"http://{host}" for host in hosts}:
            return False
        return head.path == _PAGE or head.headers.get("sec-fetch-site", "none") in _OWN_SITES

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="replace"), self.token.encode())


def is_api(path: str) -> bool:
    """Whether a path is one of the API; the others are files of the dashboard."""
    return path == API or path.startswith(f"{API}/")


def _bearer(head: RequestHead) -> str:
    scheme, _, token = head.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


# The local server: HTTP on loopback, with bounds that no client passes.
#
# Hypercorn speaks the protocol. It closes a connection that sent no complete request line and
# headers in time, and refuses headers above a size. What it does not bound is bounded here: how
# many connections are open, and how long a client may leave an answer unread.


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
        """Take over a listening socket.

        On Linux the system closes the connection of a client that leaves an answer unread for so
        long.
        """
        super().__init__(socket.AF_INET, socket.SOCK_STREAM, fileno=fileno)
        self._most = most
        self._unread_timeout_ms = int(unread_timeout_s * 1000)
        self._accepted: WeakSet[socket.socket] = WeakSet()

    @property
    def port(self) -> int:
        port: int = self.getsockname()[1]
        return port

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; above the bound it is closed at once: `ConnectionAbortedError`."""
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
    """Listen on loopback; clients may connect from now on, and wait until `serve` runs."""
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

    `headers_timeout_s` bounds the head of a request, and how long a connection may be idle. The
    listener is closed in the end.
    """

    async def stopped() -> None:
        await stop()

    asyncio.get_running_loop().set_exception_handler(_say)
    tcp_server.ProtocolWrapper = _OfHttp1  # type: ignore[attr-defined]  # of its connections
    await hypercorn_serve(
        app, _OnListener(listener, headers_timeout_s), shutdown_trigger=stopped, mode="asgi"
    )


if TYPE_CHECKING:
    Asgi: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]


BODY_TIMEOUT_S: Final = 10.0
REQUESTS_MAX: Final = 64
_BUSY_RETRY_S: Final = 1
# Everything that the page uses comes from this server, and no page of another site may embed it.
CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": CONTENT_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class _TurnedAway(Exception):
    """A request is refused."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.says)
        self.refusal = refusal


_TOO_LARGE: Final = Refusal(
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "body-too-large",
    f"the body has more than {BODY_MAX_BYTES} bytes: send fewer events at a time",
)
_TOO_SLOW: Final = Refusal(
    HTTPStatus.REQUEST_TIMEOUT, "body-too-slow", "the body did not arrive in time: send it again"
)
_BUSY: Final = Refusal(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "busy",
    f"{REQUESTS_MAX} requests are under way: send it again in a second",
)
_NO_FILE: Final = Refusal(
    HTTPStatus.NOT_FOUND, "no-such-page", f"there is no such page; the API is below {API}"
)
_NO_METHOD: Final = Refusal(
    HTTPStatus.METHOD_NOT_ALLOWED, "wrong-method", "files of the page are read by GET or HEAD"
)
_LONG_HEAD: Final = Refusal(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "head-too-large",
    f"address and headers have more than {HEADERS_MAX_BYTES} bytes",
)
_OLD_HTTP: Final = Refusal(
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "wrong-version", "this server speaks HTTP/1.1"
)


@dataclass(slots=True)
class Gate:
    """The app that the local server serves: files by their paths, and the API below `/v1`.

    More than `requests_max` at once are refused with 503.
    """

    rules: AccessRules
    files: Mapping[str, Response]
    api: Asgi
    body_timeout_s: float = BODY_TIMEOUT_S
    requests_max: int = REQUESTS_MAX
    _under_way: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            await self._handle(scope, receive, _secured(send))
        else:  # a WebSocket: there are none
            await send({"type": "websocket.close"})

    async def _handle(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        head = head_of(scope)
        try:
            answer = self._answer(scope, head)
            if answer is None:
                await self._to_api(scope, receive, send)
                return
        except _TurnedAway as refused:
            answer = _refused(head, refused.refusal)
        await answer(scope, receive, send)

    def _answer(self, scope: Mapping[str, Any], head: RequestHead) -> Response | None:
        """The answer to a request that the rules allow; None: that of the API."""
        if not scope["http_version"].startswith("1"):
            raise _TurnedAway(_OLD_HTTP)
        if _size(scope) > HEADERS_MAX_BYTES:
            raise _TurnedAway(_LONG_HEAD)
        decided = self.rules.decide(head)
        if isinstance(decided, Refusal):
            raise _TurnedAway(decided)
        if is_api(head.path):
            return None
        return self._file(head)

    def _file(self, head: RequestHead) -> Response:
        found = self.files.get(head.path)
        if found is None:
            raise _TurnedAway(_NO_FILE)
        if head.method not in {"GET", "HEAD"}:
            raise _TurnedAway(_NO_METHOD)
        if head.headers.get("if-none-match") != found.headers["etag"]:
            return found
        known = {name: found.headers[name] for name in ("cache-control", "etag")}
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=known)

    async def _to_api(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        if self._under_way >= self.requests_max:
            raise _TurnedAway(_BUSY)
        self._under_way += 1
        try:
            body = await self._body(receive)
            given = False

            async def replay() -> Any:  # noqa: ANN401 - ASGI's
                nonlocal given
                if given:
                    return await receive()  # the end of the connection
                given = True
                return {"type": "http.request", "body": body, "more_body": False}

            await self.api(scope, replay, send)
        finally:
            self._under_way -= 1

    async def _body(self, receive: Any) -> bytes:  # noqa: ANN401 - ASGI's
        body = bytearray()
        try:
            async with asyncio.timeout(self.body_timeout_s):
                while True:
                    message = await receive()
                    body += message.get("body", b"")
                    if len(body) > BODY_MAX_BYTES:
                        raise _TurnedAway(_TOO_LARGE)
                    if not message.get("more_body"):
                        return bytes(body)
        except TimeoutError:
            raise _TurnedAway(_TOO_SLOW) from None


def head_of(scope: Mapping[str, Any]) -> RequestHead:
    """The head of a request; bytes outside of ASCII stay one character each."""
    headers = {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
    }
    query = scope["query_string"].decode("latin-1")
    return RequestHead(scope["method"].upper(), scope["path"], query, headers)


def _size(scope: Mapping[str, Any]) -> int:
    """The bytes of the address and the headers: the protocol bounds only what comes in parts."""
    headers = sum(len(name) + len(value) for name, value in scope["headers"])
    return headers + len(scope["raw_path"]) + len(scope["query_string"])


def _secured(send: Any) -> Callable[[Any], Awaitable[None]]:  # noqa: ANN401 - ASGI's
    """Send answers with the headers of security; where an answer has one of them, ours."""

    async def secured(message: Any) -> None:  # noqa: ANN401 - ASGI's
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=[*message["headers"]])
            headers.update(SECURITY_HEADERS)
            message = {**message, "headers": headers.raw}
        await send(message)

    return secured


def _refused(head: RequestHead, refusal: Refusal) -> Response:
    """The reason: a problem document, or a few words for a person's browser."""
    headers = {"cache-control": "no-store"}
    if refusal.status == HTTPStatus.UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    if refusal.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers["retry-after"] = str(_BUSY_RETRY_S)
    if "text/html" in head.headers.get("accept", ""):
        return PlainTextResponse(f"countledger: {refusal.says}\n", refusal.status, headers)
    problem = {
        "type": f"{TYPE_PREFIX}{refusal.slug}",
        "title": refusal.status.phrase,
        "status": refusal.status.value,
        "detail": refusal.says,
    }
    return JSONResponse(problem, refusal.status, headers, MEDIA_TYPE)


async def _live(receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
    """Take part in the start and the end of the server; there is nothing to do for either."""
    while True:
        event = (await receive())["type"].removeprefix("lifespan.")
        await send({"type": f"lifespan.{event}.complete"})
        if event == "shutdown":
            return


# A text has its charset by itself.
_KINDS: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_INDEX: Final = "index.html"


def page_files() -> Mapping[str, Response]:
    """The files as answers, by the paths of their addresses; `/` is the page itself."""
    found = {}
    for file in files("countledger.infra.http").joinpath("page").iterdir():
        kind = _KINDS.get(f".{file.name.rpartition('.')[2]}")
        if kind is not None:
            content = file.read_bytes()
            etag = f'"{sha256(content).hexdigest()[:32]}"'
            headers = {"cache-control": "no-cache", "etag": etag}
            path = "/" if file.name == _INDEX else f"/{file.name}"
            found[path] = Response(content, headers=headers, media_type=kind)
    return found


# The local server as a process: of `countledger serve`, and behind the front of a local stack.
#
# A front hands it the socket, and a pipe with the token. When the pipe ends, the server ends.


# No gateway waits for an answer, and the state of a stack may take a while on a busy machine.
ANSWER_TIMEOUT_S: Final = 60.0


def run(
    listener: Listener,
    rules: AccessRules,
    open_client: Callable[[], CountLedger],
    ends_with: IO[bytes] | None = None,
) -> None:
    """Serve the dashboard and the API until SIGINT, SIGTERM, or the end of a pipe."""
    # The gate has accepted a request before the API asks what it may do.
    scopes = EVERYTHING if rules.allow_writes else READ_EVERYTHING
    api = http_app(
        open_client, authorize=lambda _request: scopes, answer_timeout_s=ANSWER_TIMEOUT_S
    )
    app = NamedOrigins(Gate(rules, page_files(), api), rules.origins)
    asyncio.run(_until_stopped(app, listener, ends_with))


async def _until_stopped(app: Asgi, listener: Listener, ends_with: IO[bytes] | None) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if ends_with is not None:
        threading.Thread(target=_stop_at_end_of, args=(ends_with, loop, stop), daemon=True).start()
    await serve(app, listener, stop.wait)


def _stop_at_end_of(pipe: IO[bytes], loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    pipe.read()
    loop.call_soon_threadsafe(stop.set)


def main() -> None:
    """Serve on an inherited socket: its descriptor, that of the pipe, and what requests may do."""
    socket_fd, pipe_fd = map(int, sys.argv[1:3])
    allow_writes = sys.argv[3] == ALLOW_WRITES
    # Without a buffer, whose lock the thread that reads it would hold while this one closes it.
    with os.fdopen(pipe_fd, "rb", buffering=0) as pipe:
        token = pipe.readline().decode().strip()
        listener = Listener(socket_fd)
        rules = AccessRules(listener.port, token, allow_writes, origins=named_origins())
        run(listener, rules, CountLedger, pipe)


if __name__ == "__main__":
    main()
