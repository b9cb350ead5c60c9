"""Routes of counters: record events; read, set and find totals."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response
from pydantic import Field, model_validator

from countledger import Event, IdempotencyKey, Receipt
from countledger.infra.http.access import ScopeVerb
from countledger.infra.http.calls import (
    UNCHANGED,
    Called,
    CountedRoute,
    IfNoneMatch,
    answered,
    answered_if_changed,
)
from countledger.infra.http.cursors import PAGE_DEFAULT, Cursor, Limit, from_cursor, to_cursor
from countledger.infra.http.idempotency import RequiredKey, key_of_part
from countledger.infra.http.live import EVENT_SCHEMA, EVENT_STREAM, LiveEvent, LiveResponse
from countledger.infra.http.problems import ProblemBody, problem_of
from countledger.infra.http.shapes import (
    AmountText,
    AnswerBody,
    CounterPath,
    CounterText,
    DeltaText,
    InputBody,
    KeyText,
    LimitText,
    NoteMap,
    PrefixText,
    ShownTime,
    TimeText,
    TotalAnswer,
    TotalsAnswer,
)
from countledger.ledger import keys
from countledger.ledger.errors import BadKey
from countledger.ledger.limits import BATCH_GET_KEYS
from countledger.producers.event import EVENTS_MAX, Status

routes = APIRouter(route_class=CountedRoute, tags=["counters"])

BATCH_MAX = 1_000


class EntryInput(InputBody):
    """One event, without its counter."""

    delta: DeltaText
    occurred_at: TimeText | None = None
    note: NoteMap | None = None


class EventInput(EntryInput):
    """One event of a batch."""

    counter: CounterText
    key: Annotated[
        KeyText | None,
        Field(description="by default that of the request, and the event's position"),
    ] = None
    key_at: Annotated[TimeText | None, Field(description="the time of `key`")] = None
    events: Annotated[int, Field(ge=1, le=EVENTS_MAX)] = 1

    @model_validator(mode="after")
    def _time_of_a_key(self) -> Self:
        if self.key_at is not None and self.key is None:
            raise BadKey("key_at is the time of key, and there is no key: give both, or neither")
        return self


class BatchInput(InputBody):
    """Several events."""

    events: Annotated[list[EventInput], Field(min_length=1, max_length=BATCH_MAX)]


class ReceiptAnswer(AnswerBody):
    """The acknowledgement of one entry: it counts exactly once."""

    counter: str
    id: str
    status: Literal[Status.RECORDED, Status.DUPLICATE]
    stored_at: ShownTime | None = None
    occurred_at: ShownTime | None = None
    events: int | None = None


class FailedEvent(AnswerBody):
    """An event that was not acknowledged, and why."""

    counter: str
    status: Literal["failed"] = "failed"
    problem: ProblemBody


class BatchAnswer(AnswerBody):
    """The outcome of each event, in the order of the request."""

    outcomes: list[ReceiptAnswer | FailedEvent]


class ValueInput(InputBody):
    """What a ledger counter is set to."""

    value: LimitText
    note: NoteMap | None = None


class CorrectionAnswer(AnswerBody):
    """How a ledger counter was brought to a value."""

    counter: str
    value: AmountText
    delta: AmountText
    became: str


class SnapshotAnswer(AnswerBody):
    """Totals of one moment; those in `as_materialized` are exact up to the lag of the stream."""

    totals: list[TotalAnswer]
    read_at: ShownTime
    as_materialized: list[str]


Names = Annotated[list[CounterText], Query(min_length=1, max_length=BATCH_GET_KEYS)]


@routes.post(
    "/v1/counters/{counter}/entries",
    status_code=201,
    response_model=ReceiptAnswer,
    responses={200: {"model": ReceiptAnswer, "description": "a duplicate: it counted before"}},
)
def record(counter: CounterPath, body: EntryInput, key: RequiredKey, call: Called) -> Response:
    """Add to a counter, exactly once. One write unit for each KB."""
    receipt = call.writes(counter).record(
        counter, body.delta, key=key, occurred_at=body.occurred_at, note=body.note
    )
    status = 201 if receipt.status is Status.RECORDED else 200
    return answered(ReceiptAnswer.model_validate(receipt), status)


@routes.post("/v1/entries", response_model=BatchAnswer)
def record_many(body: BatchInput, key: RequiredKey, call: Called) -> Response:
    """Record up to 1,000 events; an outcome for each. One write unit for each KB of each.

    An event without a key of its own has that of the request and its position: the same request
    again, in the same order, counts nothing twice.
    """
    for one in body.events:
        call.writes(one.counter)
    events = [
        Event(one.counter, one.delta, _key_of(one, key, n), one.occurred_at, one.note, one.events)
        for n, one in enumerate(body.events)
    ]
    outcomes = [
        ReceiptAnswer.model_validate(found)
        if isinstance(found, Receipt)
        else FailedEvent(counter=event.counter, problem=ProblemBody(**problem_of(found).document()))
        for event, found in zip(events, call.ledger.record_many(events), strict=True)
    ]
    return answered(BatchAnswer(outcomes=outcomes))


def _key_of(one: EventInput, key: str | IdempotencyKey, position: int) -> str | IdempotencyKey:
    if one.key is None:
        return key_of_part(key, position)
    return one.key if one.key_at is None else IdempotencyKey(one.key, one.key_at)


@routes.get("/v1/counters/{counter}", response_model=TotalAnswer, responses=UNCHANGED)
def total(counter: CounterPath, call: Called, if_none_match: IfNoneMatch = None) -> Response:
    """A counter's total, exact up to the lag of the stream. Half a read unit, and for each bin."""
    found = call.reads(counter).total(counter)
    return answered_if_changed(TotalAnswer.model_validate(found), if_none_match)


@routes.put("/v1/counters/{counter}/value", response_model=CorrectionAnswer)
def set_value(counter: CounterPath, body: ValueInput, key: RequiredKey, call: Called) -> Response:
    """Set a ledger counter to a value, by one entry. One write unit, and an exact read."""
    client = call.administers(counter)
    found = client.set_value(counter, body.value, key=key, note=body.note)
    return answered(CorrectionAnswer.model_validate(found))


@routes.get("/v1/totals", response_model=TotalsAnswer, responses=UNCHANGED)
def totals(counter: Names, call: Called, if_none_match: IfNoneMatch = None) -> Response:
    """The totals of up to 100 counters, not of one moment. Half a read unit each."""
    for one in counter:
        call.reads(one)
    found = call.ledger.totals(counter).values()
    body = TotalsAnswer(totals=[TotalAnswer.model_validate(one) for one in found])
    return answered_if_changed(body, if_none_match)


@routes.get(
    "/v1/totals/live",
    status_code=200,
    response_class=Response,
    responses={200: {"content": {EVENT_STREAM: {"itemSchema": EVENT_SCHEMA}}}},
)
def live_totals(
    counter: Names,
    call: Called,
    request: Request,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID",
            max_length=100,
            description="the id of the last event that the client has",
        ),
    ] = None,
) -> Response:
    """The totals of up to 100 counters as server-sent events, whenever one of them changes.

    Half a read unit each for the first event, and then half a unit each for every second; streams
    of one counter share its reads. A stream ends after five minutes, and behind API Gateway after
    its first event: a client reconnects, as `retry` of the stream says.
    """
    for one in counter:
        call.reads(one)
    newest = LiveEvent.of_totals(call.ledger.totals(counter).values())
    return LiveResponse(request.app.state.live, dict.fromkeys(counter), newest, last_event_id)


@routes.get("/v1/snapshot", response_model=SnapshotAnswer)
def snapshot(counter: Names, call: Called) -> Response:
    """The totals of up to 100 counters, all of one moment. Two read units each."""
    for one in counter:
        call.reads(one)
    found = call.ledger.snapshot(counter)
    body = SnapshotAnswer(
        totals=[TotalAnswer.model_validate(one) for one in found.totals.values()],
        read_at=found.read_at,
        as_materialized=list(found.as_materialized),
    )
    return answered(body)


class FoundCountersAnswer(TotalsAnswer):
    """A page of counters."""

    items_read: int


@routes.get("/v1/counters", response_model=FoundCountersAnswer)
def find_counters(
    call: Called,
    prefix: Annotated[PrefixText, Query(description="with its colon, a namespace")] = "",
    limit: Limit = PAGE_DEFAULT,
    cursor: Cursor = None,
) -> Response:
    """A page of the counters whose names begin with a prefix, in no order, with their totals.

    It reads a part of the table of totals, at most 20,000 items (`items_read`), and no further ones
    after two seconds: half a read unit for each 4 KB of them. A page may have few counters, or
    none, and still have a next one. A prefix without a colon requires the scope of all namespaces.
    """
    namespace, colon, _ = prefix.partition(":")
    client = call.may(ScopeVerb.READ, namespace) if colon else call.may(ScopeVerb.READ)
    position = from_cursor(cursor, str)
    page = client.names_page(prefix, after=position[0] if position else None, limit=limit)
    found = client.totals(filter(keys.is_counter, page.names)).values() if page.names else ()
    return answered(
        FoundCountersAnswer(
            totals=[TotalAnswer.model_validate(one) for one in found],
            next=None if page.after is None else to_cursor(page.after),
            items_read=page.items_read,
        )
    )
