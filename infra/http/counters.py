"""Routes of counters: record events; read, set and find totals."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from anyio import to_thread
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from fastapi.sse import format_sse_event
from pydantic import Field, model_validator

from countledger import Event, IdempotencyKey, Receipt
from countledger.infra.calls.access import ScopeVerb
from countledger.infra.calls.shapes import (
    PAGE_DEFAULT,
    AmountText,
    CounterPath,
    CounterText,
    Cursor,
    DeltaText,
    InputBody,
    KeyText,
    Limit,
    LimitText,
    NoteMap,
    PrefixText,
    ShownTime,
    TimeText,
    TotalAnswer,
    TotalsAnswer,
    View,
    from_cursor,
    to_cursor,
)
from countledger.infra.calls.strict import CorrectionView
from countledger.infra.http.calls import (
    UNCHANGED,
    Called,
    CountedRoute,
    IfNoneMatch,
    RequiredKey,
    answered,
    answered_if_changed,
    key_of_part,
    tag_of,
)
from countledger.infra.http.problems import ProblemBody, problem_of
from countledger.ledger import keys
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadKey, CountledgerError, Throttled
from countledger.ledger.limits import BATCH_GET_KEYS, DATE_LIMIT_MS
from countledger.producers.event import EVENTS_MAX, Status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

    from starlette.types import Receive, Scope, Send

    from countledger import Total
    from countledger.infra.http.calls import Clients


# Routes of what happened to a counter: its entries, and its sums for each window.


# How many entries of one millisecond a page may skip.
MOMENT_MAX: Final = 10_000

history_routes = APIRouter(route_class=CountedRoute, tags=["history"])


class EntryAnswer(View):
    """One entry of a counter's ledger."""

    counter: str
    id: str
    delta: AmountText
    at: ShownTime
    origin: str
    events: int
    key: str | None
    note: dict[str, str] | None
    occurred_at: ShownTime | None


class HeadAnswer(View):
    """The summary of all entries that are merged."""

    generation: int
    sum: AmountText
    events: int
    entries: int
    from_at: ShownTime | None
    to_at: ShownTime | None


class EntriesAnswer(View):
    """Entries, the newest first."""

    items: list[EntryAnswer]
    next: str | None


@history_routes.get("/v1/counters/{counter}/entries", response_model=EntriesAnswer)
def entries(
    counter: CounterPath, call: Called, limit: Limit = PAGE_DEFAULT, cursor: Cursor = None
) -> Response:
    """A page of a counter's entries that are not merged yet, the newest first.

    Half a read unit for the head, and for each 4 KB read.
    """
    client = call.reads(counter)
    position = from_cursor(cursor, int, int)
    before, seen = None, 0
    if position is not None:
        # Several entries may be of one millisecond: that many of the oldest one were shown.
        at_ms, seen = position
        before = to_datetime(min(max(at_ms, 0), DATE_LIMIT_MS - 2) + 1)
        seen = min(max(seen, 0), MOMENT_MAX)
    found = client.entries(counter, limit=limit + seen + 1, before=before)
    shown = list(islice(found, seen, None))
    more, shown = len(shown) > limit, shown[:limit]
    following = None
    if more:
        last_ms = shown[-1].at_ms
        again = seen if position is not None and last_ms == position[0] else 0
        following = to_cursor(last_ms, again + sum(one.at_ms == last_ms for one in shown))
    items = [EntryAnswer.model_validate(one) for one in shown]
    return answered(EntriesAnswer(items=items, next=following))


@history_routes.get("/v1/counters/{counter}/head", response_model=HeadAnswer)
def head(counter: CounterPath, call: Called) -> Response:
    """The one summary of all entries merged so far. Half a read unit for each 4 KB of it."""
    return answered(HeadAnswer.model_validate(call.reads(counter).head(counter)))


# Totals as they change: server-sent events, fed by one poll that all streams of a server share.
#
# An event has all totals of its stream, so a client that missed some needs only the newest. The id
# of an event is the tag of `GET /v1/totals` of the same counters. A client that reconnects sends
# it as `Last-Event-ID`, and gets the next event when a total has changed. A slow reader is behind
# by one event at most: what changes meanwhile is in the next one.
#
# A host that buffers answers uses `BUFFERED`: a stream ends after its first event, and the
# client's own reconnection, after the `retry` of the stream, is the poll.


@dataclass(frozen=True, slots=True)
class LiveBounds:
    """What streams may take of a server.

    A stream lasts `duration_s` (0: until its first event), and sends a comment after `heartbeat_s`
    without an event. `counters` bounds the different ones that all streams follow.
    """

    duration_s: float = 300
    streams: int = 16
    counters: int = BATCH_GET_KEYS
    poll_s: float = 1
    heartbeat_s: float = 15
    retry_ms: int = 1_000


LIVE_DEFAULT: Final = LiveBounds()
EVENT_STREAM: Final = "text/event-stream"
# Of one event: the keyword `itemSchema` of OpenAPI 3.2, which readers of 3.1 pass over.
EVENT_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "event": {"type": "string", "enum": ["totals", "problem"]},
        "id": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "retry": {"type": "integer"},
    },
}
BUFFERED: Final = LiveBounds(duration_s=0, retry_ms=5_000)


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """What a stream says; two events with one tag say the same.

    Its name is `totals`, with the body of `GET /v1/totals`, or `problem`.
    """

    tag: str
    name: str
    data: str

    @classmethod
    def of_totals(cls, totals: Iterable[Total]) -> LiveEvent:
        shown = TotalsAnswer(items=[TotalAnswer.model_validate(one) for one in totals])
        body = bytes(answered(shown).body)
        return cls(tag_of(body), "totals", body.decode())

    @classmethod
    def of_problem(cls, error: CountledgerError) -> LiveEvent:
        """The totals could not be read; the stream goes on."""
        body = bytes(problem_of(error).response().body)
        return cls(tag_of(body), "problem", body.decode())

    def encoded(self) -> bytes:
        """As a stream has it; after a problem a client keeps the id of the last totals."""
        known = self.tag if self.name == "totals" else None
        return format_sse_event(data_str=self.data, event=self.name, id=known)


@dataclass(eq=False, slots=True)
class _Stream:
    """One client: the tag of what it was sent last, and what is to be sent."""

    counters: tuple[str, ...]
    newest: LiveEvent
    known: str | None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False

    def show(self, event: LiveEvent) -> None:
        self.newest = event
        if event.tag != self.known:
            self.changed.set()

    def end(self) -> None:
        self.ended = True
        self.changed.set()

    def take(self) -> bytes:
        """An event, or nothing."""
        self.changed.clear()
        if self.newest.tag == self.known:
            return b""
        self.known = self.newest.tag
        return self.newest.encoded()


class LiveTotals:
    """The streams of a server, and the one poll that feeds them.

    Half a read unit for each counter that any stream follows, and each poll; for a strict counter
    with bins as much for each bin. Without streams nothing is read.
    """

    def __init__(self, clients: Clients, bounds: LiveBounds) -> None:
        self.bounds = bounds
        self._clients = clients
        self._streams: set[_Stream] = set()
        self._poll: asyncio.Task[None] | None = None

    @contextmanager
    def followed(
        self, counters: Iterable[str], newest: LiveEvent, known: str | None
    ) -> Iterator[AsyncIterator[bytes]]:
        """A stream while the block lasts; `known` is the last event that the client has."""
        bounds, stream = self.bounds, _Stream(tuple(counters), newest, known)
        if len(self._streams) >= bounds.streams:
            raise Throttled(f"{bounds.streams} streams are open: poll /v1/totals, or try again")
        if len({*self._names(), *stream.counters}) > bounds.counters:
            raise Throttled(
                f"the streams of this server follow {bounds.counters} counters in all: poll "
                "/v1/totals, or try again"
            )
        self._streams.add(stream)
        if bounds.duration_s > 0 and (self._poll is None or self._poll.done()):
            self._poll = asyncio.get_running_loop().create_task(self._read_again())
        try:
            yield self._parts(stream)
        finally:
            self._streams.discard(stream)
            if not self._streams and self._poll is not None:
                self._poll.cancel()
                self._poll = None

    def _names(self) -> set[str]:
        return {name for stream in self._streams for name in stream.counters}

    async def _parts(self, stream: _Stream) -> AsyncIterator[bytes]:
        now = asyncio.get_running_loop().time
        ends_at = now() + self.bounds.duration_s
        yield format_sse_event(retry=self.bounds.retry_ms)
        while True:
            if part := stream.take():
                yield part
            left_s = ends_at - now()
            if left_s <= 0 or stream.ended:
                return
            try:
                async with asyncio.timeout(min(left_s, self.bounds.heartbeat_s)):
                    await stream.changed.wait()
            except TimeoutError:
                yield format_sse_event(comment="unchanged")

    async def _read_again(self) -> None:
        """Read the totals that are followed, until nobody follows any."""
        try:
            while self._streams:
                await asyncio.sleep(self.bounds.poll_s)
                names = sorted(self._names())
                try:
                    async with self._clients.lent() as client:
                        found = await to_thread.run_sync(client.totals, names)
                except CountledgerError as error:
                    self._show_problem(LiveEvent.of_problem(error))
                else:
                    self._show(found)
        except Exception:
            for stream in self._streams:
                stream.end()
            raise

    def _show(self, found: Mapping[str, Total]) -> None:
        for stream in self._streams:
            # A stream that came during the read gets its totals by the next one.
            if found.keys() >= {*stream.counters}:
                stream.show(LiveEvent.of_totals(found[name] for name in stream.counters))

    def _show_problem(self, event: LiveEvent) -> None:
        for stream in self._streams:
            stream.show(event)


class LiveResponse(StreamingResponse):
    """A stream as the answer to a request; the bounds of the server may refuse it."""

    media_type = EVENT_STREAM

    def __init__(
        self, live: LiveTotals, counters: Iterable[str], newest: LiveEvent, known: str | None
    ) -> None:
        # A proxy that collects an answer before it passes it on would hold back the events.
        super().__init__((), headers={"X-Accel-Buffering": "no"})
        self._follow = partial(live.followed, counters, newest, known)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._follow() as self.body_iterator:
                await super().__call__(scope, receive, send)
        except Throttled as error:
            await problem_of(error).response()(scope, receive, send)


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


class ReceiptAnswer(View):
    """The acknowledgement of one entry: it counts exactly once."""

    counter: str
    id: str
    status: Literal[Status.RECORDED, Status.DUPLICATE]
    stored_at: ShownTime | None = None
    occurred_at: ShownTime | None = None
    events: int | None = None


class FailedEvent(View):
    """An event that was not acknowledged, and why."""

    counter: str
    status: Literal["failed"] = "failed"
    problem: ProblemBody


class BatchAnswer(View):
    """The outcome of each event, in the order of the request."""

    items: list[ReceiptAnswer | FailedEvent]


class ValueInput(InputBody):
    """What a ledger counter is set to."""

    value: LimitText
    note: NoteMap | None = None


class SnapshotAnswer(View):
    """Totals of one moment; those in `as_materialized` are exact up to the lag of the stream."""

    items: list[TotalAnswer]
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
    return answered(BatchAnswer(items=outcomes))


def _key_of(one: EventInput, key: str | IdempotencyKey, position: int) -> str | IdempotencyKey:
    if one.key is None:
        return key_of_part(key, position)
    return one.key if one.key_at is None else IdempotencyKey(one.key, one.key_at)


@routes.get("/v1/counters/{counter}", response_model=TotalAnswer, responses=UNCHANGED)
def total(counter: CounterPath, call: Called, if_none_match: IfNoneMatch = None) -> Response:
    """A counter's total, exact up to the lag of the stream. Half a read unit, and for each bin."""
    found = call.reads(counter).total(counter)
    return answered_if_changed(TotalAnswer.model_validate(found), if_none_match)


@routes.put("/v1/counters/{counter}/value", response_model=CorrectionView)
def set_value(counter: CounterPath, body: ValueInput, key: RequiredKey, call: Called) -> Response:
    """Set a ledger counter to a value, by one entry. One write unit, and an exact read."""
    client = call.administers(counter)
    found = client.set_value(counter, body.value, key=key, note=body.note)
    return answered(CorrectionView.of(found))


@routes.get("/v1/totals", response_model=TotalsAnswer, responses=UNCHANGED)
def totals(counter: Names, call: Called, if_none_match: IfNoneMatch = None) -> Response:
    """The totals of up to 100 counters, not of one moment. Half a read unit each."""
    for one in counter:
        call.reads(one)
    found = call.ledger.totals(counter).values()
    body = TotalsAnswer(items=[TotalAnswer.model_validate(one) for one in found])
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
        items=[TotalAnswer.model_validate(one) for one in found.totals.values()],
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
            items=[TotalAnswer.model_validate(one) for one in found],
            next=None if page.after is None else to_cursor(page.after),
            items_read=page.items_read,
        )
    )
