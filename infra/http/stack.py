"""Routes of the stack: its state, namespaces and quarantine, its stream's shards, its regions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, Response
from pydantic import ConfigDict

from countledger.consumers.proof import shard_lags
from countledger.infra.calls.access import ScopeVerb
from countledger.infra.calls.shapes import PAGE_DEFAULT, Limit, ShownTime, View, show_time
from countledger.infra.http.calls import Called, CountedRoute, answered
from countledger.ledger.clock import to_datetime

routes = APIRouter(route_class=CountedRoute, tags=["stack"])


class ShardAnswer(View):
    """How far a stream shard has been handled."""

    shard: str
    handled_through: ShownTime


class FreshnessAnswer(View):
    """Up to which moment totals are complete."""

    handled_through: ShownTime | None
    up_to_date: bool | None
    idle: list[str]
    shards: list[ShardAnswer]


class NamespaceAnswer(View):
    """A namespace and its settings."""

    name: str
    kind: str
    spread: int
    horizon_ms: int
    description: str | None


class NamespacesAnswer(View):
    """The namespaces that the caller may read, by name."""

    items: list[NamespaceAnswer]


class QuarantinedAnswer(View):
    """A record that could not be applied; its content is shown by the command line alone."""

    id: str
    source: str
    where: str
    reason: str
    kind: str
    counter: str | None
    at: ShownTime


class QuarantineAnswer(View):
    """The records that wait for a person, the newest first."""

    items: list[QuarantinedAnswer]


class FindingAnswer(View):
    """Where action is required."""

    subject: str
    says: str
    do: str


class StatusAnswer(View):
    """The state of the stack; the other fields are those of `countledger status --json`."""

    model_config = ConfigDict(extra="allow")

    healthy: bool
    findings: list[FindingAnswer]


@routes.get("/v1/freshness", response_model=FreshnessAnswer)
def freshness(
    call: Called,
    prove: Annotated[
        Literal["true", "false"], Query(description="look into the stream, too: more requests")
    ] = "false",
) -> Response:
    """The time up to which totals are complete. Half a read unit for each stream shard."""
    found = call.may(ScopeVerb.READ).freshness(prove=prove == "true")
    return answered(FreshnessAnswer.model_validate(found))


@routes.get("/v1/namespaces", response_model=NamespacesAnswer)
def list_namespaces(call: Called) -> Response:
    """The namespaces that the caller may read. Half a read unit for each 4 KB."""
    found = call.ledger.namespaces.list()
    shown = [one for one in found if call.scopes.allows(ScopeVerb.READ, one.name)]
    return answered(NamespacesAnswer(items=[NamespaceAnswer.model_validate(one) for one in shown]))


@routes.get("/v1/quarantine", response_model=QuarantineAnswer)
def list_quarantine(call: Called, limit: Limit = PAGE_DEFAULT) -> Response:
    """The records in quarantine. Half a read unit for each 4 KB of all of them."""
    found = call.may(ScopeVerb.READ).quarantine.list(limit=limit)
    return answered(
        QuarantineAnswer(items=[QuarantinedAnswer.model_validate(one) for one in found])
    )


@routes.get("/v1/status", response_model=StatusAnswer)
def status(call: Called) -> Response:
    """The state of the stack, and where action is required. Some twenty calls of other services."""
    # What a function loads at its start is what most requests need.
    from countledger.infra.status.facts import document  # noqa: PLC0415
    from countledger.infra.status.findings import findings  # noqa: PLC0415
    from countledger.infra.status.gathering import Gathering  # noqa: PLC0415

    facts = Gathering(call.may(ScopeVerb.READ)).facts()
    shown = document(facts, findings(facts))
    return JSONResponse(jsonable_encoder(shown, custom_encoder={datetime: show_time}))


class ShardLagAnswer(View):
    """How far a stream shard has been handled; `waiting_since`: its oldest record that is not."""

    shard: str
    handled_through: ShownTime | None
    waiting_since: ShownTime | None


class ShardLagsAnswer(View):
    """The shards that may have something to handle, at a moment."""

    at: ShownTime
    items: list[ShardLagAnswer]


class LedgerRegionAnswer(View):
    """A region; `state`: `ready`, `rebuilding`, `no stack`, or why it could not be read."""

    name: str
    home: bool
    replica: str
    state: str
    handled_through: ShownTime | None
    waiting_since: ShownTime | None


class LedgerRegionsAnswer(View):
    """The regions of the ledger at a moment, that of the stack first."""

    at: ShownTime
    items: list[LedgerRegionAnswer]


@routes.get("/v1/shards", response_model=ShardLagsAnswer)
def list_shards(call: Called) -> Response:
    """The lag of each shard of the stream. Half a read unit each, and a few calls."""
    connection = call.may(ScopeVerb.READ).connection
    shards = [
        ShardLagAnswer(
            shard=one.shard,
            handled_through=_moment(one.handled_through_ms),
            waiting_since=_moment(one.waiting_since_ms),
        )
        for one in shard_lags(connection)
    ]
    return answered(ShardLagsAnswer(at=_moment(connection.clock.now_ms()), items=shards))


@routes.get("/v1/regions", response_model=LedgerRegionsAnswer)
def list_regions(call: Called) -> Response:
    """The regions of the ledger, and how late each is. A few calls for each of them."""
    # What a function loads at its start is what most requests need.
    from countledger.infra.status.gathering import views_of  # noqa: PLC0415

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
    return answered(LedgerRegionsAnswer(at=_moment(connection.clock.now_ms()), items=regions))


def _moment(at_ms: int | None) -> object:
    return None if at_ms is None else to_datetime(at_ms)
