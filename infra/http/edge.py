"""The outermost layer: bounds of what comes in and of its time, and headers of what goes out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException

from countledger.infra.http.problems import problem_of, problem_of_status
from countledger.ledger.errors import Unclear

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from countledger.infra.http.problems import ProblemDetails

BODY_MAX_BYTES: Final = 1_024 * 1_024
# Three bytes of percent-encoding for each byte of the longest names and values.
TARGET_MAX_BYTES: Final = 8 * 1_024
# An API Gateway waits 30 seconds for a function, and then answers by itself.
ANSWER_TIMEOUT_S: Final = 25.0
_TOO_LARGE: Final = f"the body is longer than {BODY_MAX_BYTES:,} bytes: send it in parts"
_TOO_LONG: Final = f"path and query are longer than {TARGET_MAX_BYTES:,} bytes"
_NO_TEXT: Final = "the path holds bytes that are no UTF-8: percent-encode its names as UTF-8"
_NO_QUERY: Final = "the query holds bytes that are no UTF-8: percent-encode its values as UTF-8"
SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Edge:
    """An ASGI middleware; it reads no more of a body than the bound allows.

    Attributes:
        app: the application.
        answer_timeout_s: after so many seconds an answer has begun, or a problem is the answer.
    """

    app: ASGIApp
    answer_timeout_s: float = ANSWER_TIMEOUT_S

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
        elif not _is_text(scope.get("query_string")):
            await problem_of_status(400, _NO_QUERY).response()(scope, receive, answer)
        elif not _is_text(scope.get("raw_path")):
            await problem_of_status(400, _NO_TEXT).response()(scope, receive, answer)
        else:
            await self._answer_in_time(scope, _bounded(receive), answer)

    async def _answer_in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; if its answer does not begin in time, answer instead.

        What runs in a thread cannot be stopped. It ends in its own time, and its answer is dropped.
        """
        loop = asyncio.get_running_loop()
        in_time: asyncio.Future[bool] = loop.create_future()

        def decide(value: bool) -> None:  # noqa: FBT001 - of a future
            if not in_time.done():
                in_time.set_result(value)

        async def answer(message: Message) -> None:
            decide(True)
            if in_time.result():
                await send(message)

        timer = loop.call_later(self.answer_timeout_s, decide, False)
        running = asyncio.ensure_future(self.app(scope, receive, answer))
        running.add_done_callback(lambda _: decide(True))
        try:
            if await in_time:
                await running
            else:
                await _late(self.answer_timeout_s).response()(scope, receive, send)
        except asyncio.CancelledError:
            running.cancel()
            raise
        finally:
            timer.cancel()


def _is_text(part: bytes | None) -> bool:
    """Whether a part of an address is of UTF-8; a server replaces other bytes, all by one."""
    try:
        unquote_to_bytes(part or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _late(after_s: float) -> ProblemDetails:
    return problem_of(
        Unclear(
            f"the request was not finished after {after_s:g} seconds; what it changes may have "
            "been applied or not: send it again with the same Idempotency-Key"
        )
    )


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
