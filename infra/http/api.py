"""The application: the routes below /v1, errors as problem details, and its bounds.

It is one ASGI application. A server of this machine mounts it, and a Lambda function runs it
behind an API Gateway (`functions.py`):

    app = http_app(lambda: CountLedger(), authorize=lambda request: READ_EVERYTHING)

`authorize` gets a request of Starlette and returns the `Scopes` of the caller, or raises
`NotAuthenticated`; there is no default, so that no API is open by mistake. Nothing outside of /v1
is answered but by `404`: mount other resources, such as files, beside it.

Its document (OpenAPI 3.1) is what FastAPI generates, and what is the same for every operation.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from countledger.infra.calls.alerts import ALERTS
from countledger.infra.calls.call import HEADER
from countledger.infra.calls.claims import CLAIMS
from countledger.infra.calls.groups import GROUPS, NAMESPACES
from countledger.infra.calls.holds import HOLDS
from countledger.infra.calls.quotas import QUOTAS
from countledger.infra.calls.sequences import SEQUENCES
from countledger.infra.calls.strict import STRICT
from countledger.infra.calls.windows import WINDOWS
from countledger.infra.http import (
    counters,
    stack,
)
from countledger.infra.http.calls import CLIENTS_DEFAULT, READ_UNITS, WRITE_UNITS, Clients
from countledger.infra.http.counters import LIVE_DEFAULT, LiveBounds, LiveTotals
from countledger.infra.http.problems import (
    MEDIA_TYPE,
    ProblemBody,
    problem_of,
    problem_of_request,
    problem_of_status,
)
from countledger.infra.http.routes import routes_of
from countledger.ledger.errors import BadSetting, Unclear

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, MutableMapping

    from fastapi import Request
    from fastapi.responses import Response
    from fastapi.routing import APIRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from countledger import CountLedger
    from countledger.infra.calls.access import Scopes
    from countledger.infra.http.problems import ProblemDetails


# CORS: which pages of other origins may call the API. None, unless they are named.
#
# An origin is named exactly, and never all of them. Their pages send a token, no cookie: the
# answers do not allow credentials. The answer to a request of any other origin has no header of
# CORS, so a browser hides it from the page.


CORS_VARIABLE: Final = "COUNTLEDGER_CORS_ORIGINS"
_ORIGIN: Final = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_SENT: Final = ("Authorization", HEADER, "If-None-Match", "Last-Event-ID")
_SHOWN: Final = ("ETag", "Retry-After", "Allow", READ_UNITS, WRITE_UNITS)


def named_origins(origins: Iterable[str] = ()) -> frozenset[str]:
    """These origins, and those in `COUNTLEDGER_CORS_ORIGINS`, where commas are between them."""
    named = [*origins, *os.environ.get(CORS_VARIABLE, "").split(",")]
    found = frozenset(one.strip() for one in named if one.strip())
    for one in sorted(found):
        if not _ORIGIN.fullmatch(one):
            raise BadSetting(
                f"{one[:80]!r} is no origin: name each as the browser sends it, such as "
                f"https://app.example or http://localhost:3000, in --cors-origin or {CORS_VARIABLE}"
            )
    return found


class NamedOrigins:
    """An ASGI middleware that answers the requests of CORS, for the pages of named origins."""

    def __init__(self, app: ASGIApp, origins: frozenset[str]) -> None:
        """Without any origin, CORS is off."""
        self.app = app
        self.origins = origins
        self._cors = CORSMiddleware(
            app, origins, _METHODS, _SENT, expose_headers=_SHOWN, allow_private_network=True
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = scope["type"] == "http" and Headers(scope=scope).get("origin") in self.origins
        await (self._cors if named else self.app)(scope, receive, send)


# The outermost layer: bounds of what comes in and of its time, and headers of what goes out.


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
    """An ASGI middleware that bounds bodies; an answer that does not begin in time is a problem."""

    app: ASGIApp
    answer_timeout_s: float = ANSWER_TIMEOUT_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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


OPENAPI_PATH: Final = "/v1/openapi.json"
# What any operation may answer besides its own answers.
PROBLEMS: Final = (
    *(400, 401, 403, 404, 405, 408, 409, 413, 414, 421, 422, 429, 431),
    *(500, 502, 503, 504),
)
_UNITS: Final = {
    name: {"description": f"the {what} units of this request", "schema": {"type": "string"}}
    for name, what in ((READ_UNITS, "read"), (WRITE_UNITS, "write"))
}
_RETRY: Final = {
    "Retry-After": {
        "description": "after so many seconds the same request may succeed",
        "schema": {"type": "integer", "minimum": 1},
    }
}


def operation_name(route: APIRoute) -> str:
    """The name of an operation, of which generators make a function."""
    return route.name


def with_problems(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the problems and the headers that every operation has."""
    components = document.setdefault("components", {})
    components.setdefault("schemas", {})["ProblemBody"] = ProblemBody.model_json_schema()
    components["headers"] = {**_UNITS, **_RETRY}
    components["responses"] = {f"Problem{status}": _response(status) for status in PROBLEMS}
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "a JWT with scopes"}
    }
    document["security"] = [{"token": []}]
    for operations in document["paths"].values():
        for operation in operations.values():
            answers = operation["responses"]
            for answer in answers.values():
                units = {name: {"$ref": f"#/components/headers/{name}"} for name in _UNITS}
                answer.setdefault("headers", {}).update(units)
            for status in PROBLEMS:
                answers[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    return document


def _response(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ProblemBody"}
    retry = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}
    return {
        "description": HTTPStatus(status).phrase,
        "content": {MEDIA_TYPE: {"schema": schema}},
        **({"headers": retry} if status in {429, 503, 504} else {}),
    }


ROUTERS: Final = (
    counters.routes,
    counters.history_routes,
    routes_of(WINDOWS),
    routes_of(STRICT),
    routes_of(HOLDS),
    routes_of(QUOTAS),
    routes_of(SEQUENCES),
    routes_of(CLAIMS),
    routes_of(GROUPS),
    routes_of(NAMESPACES),
    routes_of(ALERTS),
    stack.routes,
)
_UNEXPECTED: Final = "an error in this API; its log has the details"


def http_app(
    open_client: Callable[[], CountLedger],
    authorize: Callable[[Request], Scopes],
    *,
    clients: int = CLIENTS_DEFAULT,
    live: LiveBounds = LIVE_DEFAULT,
    answer_timeout_s: float = ANSWER_TIMEOUT_S,
) -> FastAPI:
    """The application; nothing is opened before the first request.

    Each request in work has a client of its own, so `clients` bounds how many are in work. After
    the time-out a request without an answer is a problem `unclear`. `live` is `BUFFERED` for a host
    that buffers answers.
    """
    app = FastAPI(
        title="countledger",
        version="1",
        docs_url=None,
        redoc_url=None,
        openapi_url=OPENAPI_PATH,
        redirect_slashes=False,
        generate_unique_id_function=operation_name,
    )
    app.state.clients = Clients(open_client, clients)
    app.state.authorize = authorize
    app.state.live = LiveTotals(app.state.clients, live)
    for routes in ROUTERS:
        app.include_router(routes)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(Edge, answer_timeout_s=answer_timeout_s)
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = with_problems(generate())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI documents it
    return app


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - for types
    return problem_of_request(error.errors()).response()


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - for types
    response = problem_of_status(error.status_code, str(error.detail)).response()
    response.headers.update(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        paths = request.app.openapi()["paths"]
        response.headers["Allow"] = ", ".join(methods_of(paths, request.url.path))
    return response


def methods_of(paths: Mapping[str, Mapping[str, Any]], path: str) -> list[str]:
    """The methods of a path: the framework names those of its first route alone."""
    found = {
        method.upper()
        for template, operations in paths.items()
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path)
        for method in operations
    }
    return sorted(found)


async def _unexpected(_request: Request, _error: Exception) -> Response:
    return problem_of_status(500, _UNEXPECTED).response()
