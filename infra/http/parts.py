"""Routes of the parts of a stack: the shards of its stream, and its regions."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from countledger.consumers.lag import shard_lags
from countledger.consumers.stream import LedgerStream
from countledger.consumers.totals import TotalsReader
from countledger.infra.http.access import ScopeVerb
from countledger.infra.http.calls import Called, CountedRoute, answered
from countledger.infra.http.shapes import AnswerBody, ShownTime
from countledger.ledger.clock import to_datetime

routes = APIRouter(route_class=CountedRoute, tags=["stack"])


class ShardLagAnswer(AnswerBody):
    """How far a stream shard has been handled; `waiting_since`: its oldest record that is not."""

    shard: str
    handled_through: ShownTime | None
    waiting_since: ShownTime | None


class ShardLagsAnswer(AnswerBody):
    """The shards that may have something to handle, at a moment."""

    at: ShownTime
    shards: list[ShardLagAnswer]


class LedgerRegionAnswer(AnswerBody):
    """A region; `state`: `ready`, `rebuilding`, `no stack`, or why it could not be read."""

    name: str
    home: bool
    replica: str
    state: str
    handled_through: ShownTime | None
    waiting_since: ShownTime | None


class LedgerRegionsAnswer(AnswerBody):
    """The regions of the ledger at a moment, that of the stack first."""

    at: ShownTime
    regions: list[LedgerRegionAnswer]


@routes.get("/v1/shards", response_model=ShardLagsAnswer)
def list_shards(call: Called) -> Response:
    """The lag of each shard of the stream. Half a read unit each, and a few calls."""
    connection = call.may(ScopeVerb.READ).connection
    totals = TotalsReader(connection.dynamo("standard"), connection.setting("counters_table"))
    stream = LedgerStream(connection.streams(), connection.setting("ledger_stream_arn"))
    shards = [
        ShardLagAnswer(
            shard=one.shard,
            handled_through=_moment(one.handled_through_ms),
            waiting_since=_moment(one.waiting_since_ms),
        )
        for one in shard_lags(totals, stream)
    ]
    return answered(ShardLagsAnswer(at=_moment(connection.clock.now_ms()), shards=shards))


@routes.get("/v1/regions", response_model=LedgerRegionsAnswer)
def list_regions(call: Called) -> Response:
    """The regions of the ledger, and how late each is. A few calls for each of them."""
    # What a function loads at its start is what most requests need.
    from countledger.infra.status.regions import views_of  # noqa: PLC0415

    connection = call.may(ScopeVerb.READ).connection
    regions = []
    for one in views_of(connection):
        through_ms = one.freshness.handled_through_ms if one.freshness else None
        since_ms = one.freshness.waiting_since_ms if one.freshness else None
        regions.append(
            LedgerRegionAnswer(
                name=one.name,
                home=one.home,
                replica=one.replica,
                state=one.state,
                handled_through=_moment(through_ms),
                waiting_since=_moment(since_ms),
            )
        )
    return answered(LedgerRegionsAnswer(at=_moment(connection.clock.now_ms()), regions=regions))


def _moment(at_ms: int | None) -> object:
    return None if at_ms is None else to_datetime(at_ms)
