"""Routes of counters: record events, read totals."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import AliasChoices, Field

from countledger import Receipt
from countledger.infra.http.calls import Called, CountedRoute, answered
from countledger.infra.http.conditional import UNCHANGED, IfNoneMatch, answered_if_changed
from countledger.infra.http.idempotency import RequiredKey
from countledger.infra.http.shapes import (
    AmountText,
    AnswerBody,
    CounterPath,
    DeltaText,
    InputBody,
    ShownTime,
    TimeText,
)
from countledger.producers.event import Status

routes = APIRouter(route_class=CountedRoute)

NoteMap = Annotated[
    dict[str, str], Field(description="short texts of your own, at most 1,024 bytes in all")
]


class EntryInput(InputBody):
    """One event, without its counter."""

    delta: DeltaText
    occurred_at: TimeText | None = None
    note: NoteMap | None = None


class ReceiptAnswer(AnswerBody):
    """The acknowledgement of one entry: it counts exactly once."""

    counter: str
    id: str
    status: Status


class TotalAnswer(AnswerBody):
    """A counter's current value."""

    counter: str
    value: Annotated[AmountText, Field(validation_alias=AliasChoices("value", "total"))]
    events: int
    entries: int
    version: int
    updated_at: ShownTime | None
    method: str | None
    bins: int


@routes.post(
    "/v1/counters/{counter}/entries",
    status_code=201,
    response_model=ReceiptAnswer,
    responses={200: {"model": ReceiptAnswer, "description": "a duplicate: it counted before"}},
    tags=["counters"],
)
def record(counter: CounterPath, body: EntryInput, key: RequiredKey, call: Called) -> Response:
    """Add to a counter, exactly once. One write unit for each KB."""
    receipt = call.writes(counter).record(
        counter, body.delta, key=key, occurred_at=body.occurred_at, note=body.note
    )
    return answered(ReceiptAnswer.model_validate(receipt), _status_of(receipt))


def _status_of(receipt: Receipt) -> int:
    return 201 if receipt.status is Status.RECORDED else 200


@routes.get(
    "/v1/counters/{counter}",
    response_model=TotalAnswer,
    responses=UNCHANGED,
    tags=["counters"],
)
def total(counter: CounterPath, call: Called, if_none_match: IfNoneMatch = None) -> Response:
    """A counter's total, exact up to the lag of the stream. Half a read unit, and for each bin."""
    found = call.reads(counter).total(counter)
    return answered_if_changed(TotalAnswer.model_validate(found), if_none_match)
