"""Routes of claims: values that at most one owner has. A claim's scope is its namespace here."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field

from countledger import Claim
from countledger.infra.calls.access import ScopeVerb
from countledger.infra.calls.shapes import InputBody, Text, View, from_path
from countledger.infra.http.calls import Called, CountedRoute, answered
from countledger.infra.http.problems import ProblemDetails, title_of
from countledger.ledger.errors import NotClaimed
from countledger.ledger.limits import CLAIM_ID_MAX_BYTES, OWNER_MAX_BYTES, SCOPE_MAX_BYTES

routes = APIRouter(route_class=CountedRoute, tags=["claims"])

_PARTS_MAX: Final = 20
_VALUE_MAX: Final = 1_024
Part = Annotated[str, Field(min_length=1, max_length=_VALUE_MAX)]
Parts = Annotated[list[Part], Field(min_length=1, max_length=_PARTS_MAX)]
Owner = Annotated[str, Field(min_length=1, max_length=OWNER_MAX_BYTES)]
ClaimId = Annotated[str, Field(min_length=1, max_length=CLAIM_ID_MAX_BYTES)]
ScopePath = Annotated[
    str,
    Text(
        from_path,
        r"^(?!\.{1,2}$)[ !\"$-.0->@-~]+$",
        maxLength=SCOPE_MAX_BYTES,
        description="a scope of printable ASCII; `~1` is a slash in it, `~2` a question mark",
        examples=["user-email"],
    ),
]


class ClaimInput(InputBody):
    """A value, by its parts, and its owner."""

    value: Parts
    owner: Owner
    claim_id: ClaimId | None = None


class ClaimChange(ClaimInput):
    """The value that an owner has instead."""

    to: Parts


class ClaimAnswer(View):
    """Who has a value."""

    scope: str
    value: list[str]
    owner: str
    claim_id: str | None


class DoneAnswer(View):
    """Whether this request did it; false: it was done before."""

    done: bool


@routes.post("/v1/claims/{scope}", response_model=DoneAnswer)
def take_claim(scope: ScopePath, body: ClaimInput, call: Called) -> Response:
    """Take a value for an owner. One write unit. A retry is answered as the first request."""
    client = call.may(ScopeVerb.WRITE, scope)
    return answered(DoneAnswer(done=client.claims.take(_claim(scope, body))))


@routes.get("/v1/claims/{scope}", response_model=ClaimAnswer)
def find_claim(
    scope: ScopePath,
    part: Annotated[Parts, Query(description="the parts of the value, in their order")],
    call: Called,
) -> Response:
    """Who has a value. One read unit."""
    found = call.may(ScopeVerb.READ, scope).claims.find(scope, value_of(part))
    if found is None:
        title = title_of(NotClaimed)
        detail = f"no owner has {part!r} in scope {scope!r}"
        return ProblemDetails(
            NotClaimed.__name__, title, HTTPStatus.NOT_FOUND, detail, {}
        ).response()
    return answered(
        ClaimAnswer(
            scope=scope, value=list(found.parts), owner=found.owner, claim_id=found.claim_id
        )
    )


@routes.post("/v1/claims/{scope}/changes", response_model=DoneAnswer)
def change_claim(scope: ScopePath, body: ClaimChange, call: Called) -> Response:
    """Replace an owner's value by another. Four write units."""
    client = call.may(ScopeVerb.WRITE, scope)
    done = client.claims.change(_claim(scope, body), value_of(body.to))
    return answered(DoneAnswer(done=done))


@routes.post("/v1/claims/{scope}/releases", response_model=DoneAnswer)
def release_claim(scope: ScopePath, body: ClaimInput, call: Called) -> Response:
    """Free a value, if this owner has it. One write unit, and a read unit without `claim_id`."""
    client = call.may(ScopeVerb.WRITE, scope)
    return answered(DoneAnswer(done=client.claims.release(_claim(scope, body))))


def _claim(scope: str, body: ClaimInput) -> Claim:
    return Claim(scope, value_of(body.value), body.owner, body.claim_id)


def value_of(parts: list[str]) -> str | tuple[str, ...]:
    """A value of one part is a text."""
    return parts[0] if len(parts) == 1 else tuple(parts)
