"""The application: the routes below /v1, errors as problem details, and its bounds.

It is one ASGI application. A server of this machine mounts it, and a Lambda function runs it
behind an API Gateway (`handler.py`):

    app = http_app(lambda: CountLedger(), authorize=lambda request: READ_EVERYTHING)

`authorize` gets a request of Starlette and returns the `Scopes` of the caller, or raises
`NotAuthenticated`; there is no default, so that no API is open by mistake. Nothing outside of /v1
is answered but by `404`: mount other resources, such as files, beside it.

Its document (OpenAPI 3.1) is what FastAPI generates, and what is the same for every operation.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from countledger.infra.http import (
    alerts,
    claims,
    counters,
    groups,
    history,
    holds,
    numbers,
    quotas,
    stack,
    strict,
)
from countledger.infra.http.calls import READ_UNITS, WRITE_UNITS
from countledger.infra.http.edge import ANSWER_TIMEOUT_S, Edge
from countledger.infra.http.lending import CLIENTS_DEFAULT, Clients
from countledger.infra.http.live import LIVE_DEFAULT, LiveBounds, LiveTotals
from countledger.infra.http.problems import (
    MEDIA_TYPE,
    ProblemBody,
    problem_of_request,
    problem_of_status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fastapi import Request
    from fastapi.responses import Response
    from fastapi.routing import APIRoute

    from countledger import CountLedger
    from countledger.infra.http.access import Scopes


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
    """The name of an operation, of which generators make a function: that of its function."""
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
    history.routes,
    strict.routes,
    holds.routes,
    quotas.routes,
    numbers.routes,
    claims.routes,
    groups.routes,
    alerts.routes,
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

    Args:
        open_client: opens a client of the stack; each request in work has one of its own.
        authorize: what the caller of a request may do.
        clients: how many clients are opened at most, and so how many requests are in work.
        answer_timeout_s: after so many seconds without an answer a request is a problem `unclear`.
        live: the bounds of streams of totals; `BUFFERED` for a host that buffers answers.
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
