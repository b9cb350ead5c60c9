"""The regions of a stack: their replicas of the ledger, their stacks, and how late they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from countledger.consumers.proof import waiting_since_ms
from countledger.consumers.region_state import Phase, RegionStateStore
from countledger.consumers.stream import LedgerStream
from countledger.consumers.totals import TotalsReader, freshness_of
from countledger.infra.deploy.region_checks import replicas_of
from countledger.infra.status.facts import FreshnessFact
from countledger.ledger.errors import AccessDenied, StackNotFound, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.connection import Connection

_NO_STACK = "no stack"


@dataclass(frozen=True, slots=True)
class RegionFact:
    """The region of a stack.

    Attributes:
        name: as `eu-west-1`.
        home: the home region, as this region's stack names it.
        phase: whether its totals are complete.
        since_ms: when that was stored, ms since the epoch; None: it never joined.
    """

    name: str
    home: str
    phase: Phase
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class RegionView:
    """A region of the ledger, as seen from another one.

    Attributes:
        name: as `eu-west-1`.
        replica: the status of its replica of the ledger, as `ACTIVE`; `missing`: there is none.
        home: whether it is the home region.
        state: `ready`, `rebuilding`, `no stack`, or why it could not be read.
        freshness: how far its totals are; None: it could not be read.
    """

    name: str
    replica: str
    home: bool
    state: str
    freshness: FreshnessFact | None = None


def region_fact(connection: Connection) -> RegionFact:
    """The state of a connection's region: one read unit.

    Raises:
        CorruptItem: its state cannot be read.
    """
    table = connection.setting("counters_table")
    state = RegionStateStore(connection.dynamo("standard"), table).read()
    home = connection.setting("home_region")
    return RegionFact(connection.region, home, state.phase, state.since_ms)


def freshness_fact(connection: Connection) -> FreshnessFact:
    """How far the totals of a connection's region are.

    One read unit for each shard of the stream; it also reads the stream where totals are behind.
    """
    table = connection.setting("counters_table")
    totals = TotalsReader(connection.dynamo("standard"), table)
    stream = LedgerStream(connection.streams(), connection.setting("ledger_stream_arn"))
    shards = stream.shards()
    progress = totals.progress(str(one.shard) for one in shards)
    fresh = freshness_of(shards, progress)
    waiting_ms = waiting_since_ms(stream, shards, progress)
    return FreshnessFact(fresh.handled_through_ms, waiting_ms, len(fresh.idle))


def views_of(connection: Connection) -> Iterator[RegionView]:
    """Each region of the ledger, that of the connection first. A few calls for each of them.

    What cannot be read of a region is said in its state, so one that is cut off hides no other.
    """
    home = connection.setting("home_region")
    for name, status in replicas_of(connection).items():
        view = RegionView(name, status, name == home, _NO_STACK)
        there = connection.in_region(name)
        try:
            fact = region_fact(there)
            yield replace(view, state=str(fact.phase), freshness=freshness_fact(there))
        except StackNotFound:
            yield view
        except (AccessDenied, Unreachable) as error:
            yield replace(view, state=f"unknown: {error}")
