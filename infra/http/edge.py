"""The outermost layer: bounds of what comes in, and headers of what goes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException

from countledger.infra.http.problems import problem_of_status

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_MAX_BYTES: Final = 1_024 * 1_024
# Three bytes of percent-encoding for each byte of the longest names and values.
TARGET_MAX_BYTES: Final = 8 * 1_024
_TOO_LARGE: Final = f"the body is longer than {BODY_MAX_BYTES:,} bytes: send it in parts"
_TOO_LONG: Final = f"path and query are longer than {TARGET_MAX_BYTES:,} bytes"
SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Edge:
    """An ASGI middleware; it reads no more of a body than the bound allows."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on within the bounds, and its answer with its headers."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _with_headers(send)
        size = Headers(scope=scope).get("content-length", "0")
        target = len(scope.get("raw_path") or scope["path"]) + len(scope.get("query_string", b""))
        if target > TARGET_MAX_BYTES:
            await problem_of_status(414, _TOO_LONG).response()(scope, receive, answer)
        elif not size.isdecimal() or int(size[:20]) > BODY_MAX_BYTES:
            await problem_of_status(413, _TOO_LARGE).response()(scope, receive, answer)
        else:
            await self.app(scope, _bounded(receive), answer)


def _bounded(receive: Receive) -> Receive:
    left = BODY_MAX_BYTES

    async def part() -> MutableMapping[str, Any]:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise HTTPException(413, _TOO_LARGE)
        return message

    return part


def _with_headers(send: Send) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return answer
