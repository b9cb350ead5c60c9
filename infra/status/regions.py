"""The regions of a stack: their replicas of the ledger, their stacks, and how late they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from countledger.consumers.assembly import auditor_of
from countledger.consumers.over_regions import Phase, RegionStateStore
from countledger.consumers.proof import proven_freshness
from countledger.consumers.record import LedgerStream
from countledger.consumers.totals import TotalsReader
from countledger.consumers.verify import Judgement
from countledger.infra.deploy.region_checks import replicas_of
from countledger.infra.status.facts import FreshnessFact
from countledger.ledger import keys
from countledger.ledger.assembly import exact_of, namespaces_of
from countledger.ledger.errors import AccessDenied, StackNotFound, Unreachable
from countledger.ledger.operations import Compare, Scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.connection import Connection

_NO_STACK = "no stack"
_SEGMENTS = 8
_PAGE = 500
_HAS_TOTAL = Compare("part", "=", keys.TOTAL)
_WRONG = frozenset({Judgement.DRIFT, Judgement.UNREADABLE})


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
        drift: the totals of some counters against the region's ledger; None: none was compared.
    """

    name: str
    replica: str
    home: bool
    state: str
    freshness: FreshnessFact | None = None
    drift: RegionDrift | None = None


class RegionDrift(NamedTuple):
    """What a comparison of some totals of a region with its ledger found.

    Attributes:
        compared: how many counters were compared.
        drifted: those whose total is wrong, or cannot be read.
    """

    compared: int
    drifted: tuple[str, ...]


def drift_of(connection: Connection, number: int, random: Random) -> RegionDrift:
    """Verify a few counters of a region, chosen from one page of its totals.

    Reads up to 4 MB of the totals to find them, and then all entries of each. A total that is late
    is no drift, and one that could not be compared now is not counted.
    """
    dynamo, table = connection.dynamo("standard"), connection.setting("counters_table")
    segments = list(range(_SEGMENTS))
    random.shuffle(segments)
    namespaces = namespaces_of(connection)
    found: list[str] = []
    for segment in segments:
        page = dynamo.page(
            Scan(table, _HAS_TOTAL, ("counter",), segment, _SEGMENTS, page_size=_PAGE)
        )
        names = (str(item["counter"]) for item in page.items)
        found += (one for one in names if namespaces.is_of_a_ledger(one))
        if len(found) >= number:
            break
    chosen = random.sample(sorted(found), min(number, len(found)))
    auditor = auditor_of(connection, exact_of(connection), namespaces)
    verdicts = list(auditor.verify_many(chosen))
    wrong = tuple(one.counter for one in verdicts if one.verdict in _WRONG)
    exact = sum(one.verdict is Judgement.EXACT for one in verdicts)
    return RegionDrift(exact + len(wrong), tuple(sorted(wrong)))


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
    fresh = proven_freshness(totals, stream)
    return FreshnessFact(fresh.handled_through_ms, fresh.waiting_since_ms, len(fresh.idle))


def views_of(connection: Connection, sample: int = 0) -> Iterator[RegionView]:
    """Each region of the ledger, that of the connection first. A few calls for each of them.

    What cannot be read of a region is said in its state, so one that is cut off hides no other.

    Args:
        connection: to one of them.
        sample: how many counters of each are verified, at what `drift_of` costs; of a region that
            is rebuilding none is.
    """
    home = connection.setting("home_region")
    for name, status in replicas_of(connection).items():
        view = RegionView(name, status, name == home, _NO_STACK)
        there = connection.in_region(name)
        try:
            fact = region_fact(there)
            view = replace(view, state=str(fact.phase), freshness=freshness_fact(there))
            if sample and fact.phase is Phase.READY:
                view = replace(view, drift=drift_of(there, sample, Random()))  # noqa: S311 - a sample
            yield view
        except StackNotFound:
            yield view
        except (AccessDenied, Unreachable) as error:
            yield replace(view, state=f"unknown: {error}")
