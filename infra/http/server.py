"""The local server's outermost app: who may pass, how much, and the files of the dashboard.

What passes goes to the API. A body is collected here, within a size and a time, so that a slow
client waits at the gate and not inside the API.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.datastructures import MutableHeaders

from countledger.infra.http.access_rules import API, AccessRules, Refusal, RequestHead, is_api
from countledger.infra.http.api import BODY_MAX_BYTES
from countledger.infra.http.listening import HEADERS_MAX_BYTES
from countledger.infra.http.problems import MEDIA_TYPE, TYPE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import TypeAlias


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
    """The app that the local server serves.

    Attributes:
        rules: who may pass.
        files: of the page as answers, by their paths.
        api: handles what is below `/v1`.
        body_timeout_s: how long a body may take.
        requests_max: how many requests the API handles at once; more are refused with 503.
    """

    rules: AccessRules
    files: Mapping[str, Response]
    api: Asgi
    body_timeout_s: float = BODY_TIMEOUT_S
    requests_max: int = REQUESTS_MAX
    _under_way: int = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        """Handle one connection of ASGI."""
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
