"""Errors as problem details (RFC 9457): a type and a status for each class, and its fields.

The type of a problem is stable: it is made of the name of the class, which is public. A class
without a row of its own has the status of the class it is derived from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from countledger.infra.calls.access import NotAuthenticated, ScopeMissing
from countledger.infra.calls.call import HEADER, HOW, KeyMissing
from countledger.infra.calls.shapes import plain, whole_seconds
from countledger.ledger import errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TYPE_PREFIX: Final = "urn:countledger:problem:"
MEDIA_TYPE: Final = "application/problem+json"
# After a refusal for now: the shortest time that the header can name.
_SOON: Final = timedelta(seconds=1)
_LATER: Final = timedelta(seconds=30)
# Their phrases differ between the releases of Python.
_OF_STATUS: Final[Mapping[int, str]] = {
    400: "MalformedRequest",
    404: "NoSuchResource",
    405: "MethodNotAllowed",
    413: "ContentTooLarge",
    414: "UriTooLong",
    500: "InternalError",
}
_KEY: Final = ("header", HEADER)
# Of the errors in one request.
_ERRORS_MAX: Final = 20
_SAYS_MAX: Final = 300


class BadRequest(errors.BadInput):
    """The request is not one of this API: its path, a parameter, a header or its body."""


class ProblemBody(BaseModel):
    """Problem details (RFC 9457), with the fields of the exception."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(pattern=f"^{TYPE_PREFIX}[a-z-]+$")]
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str


_STATUS: Final[Mapping[type[Exception], HTTPStatus]] = {
    errors.CountledgerError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.BadInput: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.NamespaceConflict: HTTPStatus.CONFLICT,
    errors.WrongKind: HTTPStatus.CONFLICT,
    errors.CounterExists: HTTPStatus.CONFLICT,
    errors.RuleExists: HTTPStatus.CONFLICT,
    errors.ScheduleExists: HTTPStatus.CONFLICT,
    errors.SequenceExists: HTTPStatus.CONFLICT,
    errors.QuotaExists: HTTPStatus.CONFLICT,
    errors.NamespaceUnknown: HTTPStatus.NOT_FOUND,
    errors.NoSuchCounter: HTTPStatus.NOT_FOUND,
    errors.NoSuchHold: HTTPStatus.NOT_FOUND,
    errors.NoSuchSchedule: HTTPStatus.NOT_FOUND,
    errors.NoSuchRule: HTTPStatus.NOT_FOUND,
    errors.NoSuchGroup: HTTPStatus.NOT_FOUND,
    errors.NoSuchQuota: HTTPStatus.NOT_FOUND,
    errors.NotQuarantined: HTTPStatus.NOT_FOUND,
    errors.NotRanked: HTTPStatus.NOT_FOUND,
    errors.NoWindows: HTTPStatus.NOT_FOUND,
    errors.Refused: HTTPStatus.CONFLICT,
    errors.StackNotFound: HTTPStatus.NOT_FOUND,
    errors.QuotaDenied: HTTPStatus.TOO_MANY_REQUESTS,
    errors.RegionRebuilding: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.Unreachable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ServiceFailed: HTTPStatus.BAD_GATEWAY,
    errors.Throttled: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.LeaseEnded: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.Unclear: HTTPStatus.GATEWAY_TIMEOUT,
    errors.TotalBehind: HTTPStatus.GATEWAY_TIMEOUT,
    errors.OutOfTime: HTTPStatus.GATEWAY_TIMEOUT,
    errors.Unacknowledged: HTTPStatus.GATEWAY_TIMEOUT,
    errors.Unnumbered: HTTPStatus.GATEWAY_TIMEOUT,
    NotAuthenticated: HTTPStatus.UNAUTHORIZED,
    ScopeMissing: HTTPStatus.FORBIDDEN,
    BadRequest: HTTPStatus.UNPROCESSABLE_ENTITY,
}
_RETRY_AFTER: Final[Mapping[type[Exception], timedelta]] = {
    errors.Throttled: _SOON,
    errors.Unclear: _SOON,
    errors.TotalBehind: _SOON,
    errors.OutOfTime: _SOON,
    errors.Unacknowledged: _SOON,
    errors.Unnumbered: _SOON,
    errors.Unreachable: _SOON,
    errors.RegionRebuilding: _LATER,
}


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """What went wrong, for a program and for a person.

    The title says what every problem of its type is. Without `retry_after` it is not known whether
    the same request may succeed later.
    """

    name: str
    title: str
    status: HTTPStatus
    detail: str
    fields: Mapping[str, Any]
    retry_after: timedelta | None = None

    def document(self) -> dict[str, Any]:
        """The problem as JSON; the members of RFC 9457 first."""
        return {
            "type": type_of(self.name),
            "title": self.title,
            "status": int(self.status),
            "detail": self.detail,
            **self.fields,
        }

    def response(self) -> JSONResponse:
        headers = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(whole_seconds(self.retry_after))
        if self.status is HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.document(), self.status, headers=headers, media_type=MEDIA_TYPE)


def type_of(name: str) -> str:
    """The type of the problem of a class: `BadDelta` is `urn:countledger:problem:bad-delta`."""
    return TYPE_PREFIX + re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def problem_of(error: errors.CountledgerError) -> ProblemDetails:
    kind = type(error)
    return ProblemDetails(
        kind.__name__,
        title_of(kind),
        row_of(_STATUS, kind),
        str(error),
        {name: plain(value, name) for name, value in vars(error).items() if value is not None},
        row_of(_RETRY_AFTER, kind, None),
    )


def problem_of_status(status: int, detail: str) -> ProblemDetails:
    """The problem of a request that has no route, or that is too large."""
    name = _OF_STATUS.get(status, "Refused")
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", name)
    return ProblemDetails(name, words.capitalize(), HTTPStatus(status), detail, {})


def problem_of_request(found: Sequence[Mapping[str, Any]]) -> ProblemDetails:
    """The problem of a request that breaks the schema: each error with its place."""
    if any(one["type"] == "missing" and one["loc"] == _KEY for one in found):
        return problem_of(KeyMissing(f"this request requires {HOW}"))
    kinds = [_kind_of(one) for one in found]
    places = [
        {"at": "/".join(map(str, one["loc"])), "type": type_of(kind.__name__), "says": _says(one)}
        for one, kind in zip(found[:_ERRORS_MAX], kinds, strict=False)
    ]
    detail = "; ".join(f"{one['at']}: {one['says']}" for one in places)
    shared = kinds[0] if len(set(kinds)) == 1 else BadRequest
    status = row_of(_STATUS, shared)
    return ProblemDetails(shared.__name__, title_of(shared), status, detail, {"errors": places})


def _kind_of(found: Mapping[str, Any]) -> type[errors.BadInput]:
    """The class of an error that a check of the library raised; else of a bad request."""
    kind = type(found.get("ctx", {}).get("error"))
    return kind if issubclass(kind, errors.BadInput) else BadRequest


def _says(found: Mapping[str, Any]) -> str:
    """What an error says: the words of the library, where the check is its own."""
    cause = found.get("ctx", {}).get("error")
    if found["type"] == "json_invalid":
        return f"the body is no JSON: {cause}"[:_SAYS_MAX]
    if found["loc"] == ("body",) and isinstance(found.get("input"), bytes):
        return "the body is not sent as JSON: send the header Content-Type: application/json"
    return str(cause if isinstance(cause, Exception) else found["msg"])[:_SAYS_MAX]


def status_of(kind: type[errors.CountledgerError]) -> HTTPStatus:
    status: HTTPStatus = row_of(_STATUS, kind)
    return status


def title_of(kind: type) -> str:
    """The first sentence of a class's docstring."""
    return (kind.__doc__ or kind.__name__).partition("\n")[0].rstrip(".")


def row_of(table: Mapping[type[Exception], Any], kind: type, *default: Any) -> Any:  # noqa: ANN401 - a row
    """The row of a class, or of the nearest class that it is derived from."""
    rows = (table[one] for one in kind.__mro__ if one in table)
    return next(rows, *default)
