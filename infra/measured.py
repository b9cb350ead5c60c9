"""What a stack's own numbers say of its workload: progress of the stream, schedules, replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.compaction.regions import survey_of
from countledger.ledger.limits import DAY_MS, HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger import CountLedger
    from countledger.compaction.retire import Retire
    from countledger.consumers.progress import ShardProgress

# Less than that tells nothing of a day.
_SPAN_MIN_MS: Final = HOUR_MS


class Pace(NamedTuple):
    """How many entries come.

    Attributes:
        entries_per_day: how many.
        total_units: write units for each of them, of totals and progress.
    """

    entries_per_day: float
    total_units: float


def pace_of(progress: Sequence[ShardProgress]) -> Pace | None:
    """The pace that the progress of the stream's shards tells; None: too little is known. Pure.

    Shards follow each other within a day. What the first of them counts was made before its last
    record; of the others it was made behind it, so those are counted over that time.
    """
    if not progress:
        return None
    ends = [one.handled_through_ms for one in progress]
    span_ms = max(ends) - min(ends)
    later = [one for one in progress if one.handled_through_ms > min(ends)]
    records = sum(one.records for one in later)
    if span_ms < _SPAN_MIN_MS or not records:
        return None
    units = sum(one.write_units for one in later)
    return Pace(records * DAY_MS / span_ms, units / records)


def regions_of(client: CountLedger) -> int:
    """Over how many regions the ledger spans. One DescribeTable call."""
    connection = client.connection
    described = connection.door("standard").describe(connection.setting("ledger_table"))
    return 1 + len(survey_of(described, connection.region).others)


def retire_of(client: CountLedger) -> Retire | None:
    """How most schedules have merged entries deleted; None: there is no schedule.

    Half a read unit for each namespace.
    """
    ways = [schedule.retire for schedule in client.schedules.list()]
    return max(set(ways), key=ways.count) if ways else None
