"""Routes of what happened to a counter: its entries, and its sums for each window."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import Response

from countledger.infra.http.calls import Called, CountedRoute, answered
from countledger.infra.http.cursors import PAGE_DEFAULT, Cursor, Limit, from_cursor, to_cursor
from countledger.infra.http.shapes import (
    AmountText,
    AnswerBody,
    CounterPath,
    PerText,
    ShownTime,
    TimeText,
)
from countledger.ledger.clock import to_datetime
from countledger.ledger.limits import DATE_LIMIT_MS

# How many entries of one millisecond a page may skip.
MOMENT_MAX: Final = 10_000

routes = APIRouter(route_class=CountedRoute, tags=["history"])


class EntryAnswer(AnswerBody):
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


class HeadAnswer(AnswerBody):
    """The summary of all entries that are merged."""

    generation: int
    sum: AmountText
    events: int
    entries: int
    from_at: ShownTime | None
    to_at: ShownTime | None


class EntriesAnswer(AnswerBody):
    """Entries, the newest first."""

    entries: list[EntryAnswer]
    next: str | None


class WindowSumAnswer(AnswerBody):
    """The sum of one window of business time."""

    name: str
    start: ShownTime
    end: ShownTime
    value: AmountText
    events: int
    complete: bool
    final: bool


class WindowsAnswer(AnswerBody):
    """The windows of a period, and the zone in which they begin; none, if there is no window."""

    windows: list[WindowSumAnswer]
    time_zone: str | None


@routes.get("/v1/counters/{counter}/entries", response_model=EntriesAnswer)
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
    return answered(EntriesAnswer(entries=items, next=following))


@routes.get("/v1/counters/{counter}/head", response_model=HeadAnswer)
def head(counter: CounterPath, call: Called) -> Response:
    """The one summary of all entries merged so far. Half a read unit for each 4 KB of it."""
    return answered(HeadAnswer.model_validate(call.reads(counter).head(counter)))


@routes.get("/v1/counters/{counter}/windows", response_model=WindowsAnswer)
def windows(
    counter: CounterPath,
    call: Called,
    per: PerText,
    since: Annotated[TimeText, Query(description="a time in the first window")],
    until: Annotated[
        TimeText | None, Query(description="the first time after the last window; by default now")
    ] = None,
) -> Response:
    """A counter's sums for each window. Half a read unit for each 4 KB read."""
    found = call.reads(counter).windows(counter, per, since=since, until=until)
    shown = [WindowSumAnswer.model_validate(one) for one in found]
    zone = found[0].zone if found else None
    return answered(WindowsAnswer(windows=shown, time_zone=zone))
