"""The OpenAPI 3.1 document: what FastAPI generates, and what is the same for every operation."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.http.calls import READ_UNITS, WRITE_UNITS
from countledger.infra.http.problems import MEDIA_TYPE, ProblemBody

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

OPENAPI_PATH: Final = "/v1/openapi.json"
# What any operation may answer besides its own answers.
PROBLEMS: Final = (400, 401, 403, 404, 405, 409, 413, 414, 422, 429, 500, 502, 503, 504)
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
