"""How many entries come to a stack, and how they are kept: what an estimate of its cost needs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.compaction.regions import survey_of
from countledger.compaction.report import Retire
from countledger.consumers.record import made_at_ms
from countledger.ledger.clock import SystemClock
from countledger.ledger.limits import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger import CountLedger
    from countledger.consumers.progress import ShardProgress
    from countledger.ledger.clock import Clock
    from countledger.ledger.errors import CorruptItem

SPAN_MIN_MS: Final = HOUR_MS
# A stream shows its records for a day: of a shard that begins later it shows all.
_SHOWN_WHOLE_MS: Final = 23 * HOUR_MS


class Pace(NamedTuple):
    """How many entries come.

    Attributes:
        entries_per_day: how many.
        total_units: write units for each of them, of totals and progress.
    """

    entries_per_day: float
    total_units: float


def pace_of(
    progress: Sequence[ShardProgress],
    begun_ms: Mapping[str, int],
    now_ms: int,
    least_ms: int = SPAN_MIN_MS,
) -> Pace | None:
    """The pace of entries, from the progress of the stream's shards; None: too few data. Pure.

    Progress counts a shard from its beginning. Of those that began within the day all that they
    counted was made since the first of them began.

    Args:
        progress: of shards.
        begun_ms: when the first record was made that the stream still shows of a shard.
        now_ms: the time.
        least_ms: a shorter span is too short for a rate per day.
    """
    whole = [one for one in progress if begun_ms.get(one.shard, 0) > now_ms - _SHOWN_WHOLE_MS]
    records = sum(one.records for one in whole)
    span_ms = max((now_ms - begun_ms[one.shard] for one in whole), default=0)
    if not records or span_ms < max(least_ms, 1):
        return None
    units = sum(one.write_units for one in whole)
    return Pace(records * DAY_MS / span_ms, units / records)


def measure(
    client: CountLedger, clock: Clock | None = None, least_ms: int = SPAN_MIN_MS
) -> Pace | None:
    """How many entries come to a stack: half a read unit and two calls for each stream shard.

    Args:
        client: of the stack.
        clock: gives the time.
        least_ms: as `pace_of`.
    """
    now_ms = (clock or SystemClock()).now_ms()
    stream = client.audit.verifier.stream
    begun_ms: dict[str, int] = {}
    for one in stream.shards():
        for record in islice(stream.after(one.shard, None), 1):
            begun_ms[str(one.shard)] = int(made_at_ms(record))
    return pace_of(client.freshness().shards, begun_ms, now_ms, least_ms)


def regions_of(client: CountLedger) -> int:
    """Over how many regions the ledger spans. One DescribeTable call."""
    connection = client.connection
    described = connection.dynamo("standard").describe(connection.setting("ledger_table"))
    return 1 + len(survey_of(described, connection.region).others)


def _left_out(_error: CorruptItem) -> None:
    """`schedule list` names it; an estimate goes without it."""


def retire_of(client: CountLedger) -> Retire | None:
    """How most schedules have merged entries deleted, of two alike the safer; None: no schedule.

    Half a read unit for each namespace.
    """
    ways = [schedule.retire for schedule in client.schedules.list(on_corrupt=_left_out)]
    return max(Retire, key=ways.count) if ways else None
