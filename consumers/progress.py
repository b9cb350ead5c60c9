"""Progress: up to where each stream shard has been handled, kept in `counters`.

A total tells when it was last updated; only the progress of the shards tells whether that is all
there is. So a quiet counter and a stalled stream can be told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, require
from countledger.ledger.clock import to_datetime
from countledger.ledger.expressions import Absent, Add, AnyOf, Assign, Compare
from countledger.ledger.limits import DAY_MS, SECOND_MS
from countledger.ledger.operations import Update

if TYPE_CHECKING:
    from datetime import datetime

# Shards are replaced every few hours and forgotten by the service after a day.
_LIFE_MS: Final = 7 * DAY_MS
# Texts of one length compare like the numbers that they spell.
_DIGITS: Final = 40


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """What has been handled of one stream shard.

    Attributes:
        shard: stream label and shard id.
        sequence: the sequence number of the last record handled, as the stream spells it.
        handled_through_ms: when the stream made that record (whole seconds), ms since the epoch.
        handled_at_ms: when it was handled, ms since the epoch.
        records: how many records were handled in all.
        updates: how many updates of totals that took.
        write_units: the write units that those and the progress itself consumed.
    """

    shard: str
    sequence: str
    handled_through_ms: int
    handled_at_ms: int
    records: int
    updates: int
    write_units: float

    @property
    def handled_through(self) -> datetime:
        """When the stream made the last record handled, in UTC."""
        return to_datetime(self.handled_through_ms)

    @property
    def handled_at(self) -> datetime:
        """When that record was handled, in UTC."""
        return to_datetime(self.handled_at_ms)


def advance_of(table: str, progress: ShardProgress) -> Update:
    """Move a shard's progress on, never back; its numbers are added up. One write unit."""
    position = progress.sequence.zfill(_DIGITS)
    expires_at = (progress.handled_at_ms + _LIFE_MS) // SECOND_MS
    return Update(
        table,
        keys.progress_key(progress.shard),
        (
            Assign("sequence", progress.sequence),
            Assign("position", position),
            Assign("handled_through", progress.handled_through_ms),
            Assign("handled_at", progress.handled_at_ms),
            Assign("expires_at", expires_at),
            Add("records", progress.records),
            Add("updates", progress.updates),
            Add("write_units", round(progress.write_units)),
        ),
        AnyOf(Absent("position"), Compare("position", "<", position)),
    )


def decode_progress(item: Item) -> ShardProgress:
    """The progress in an item of `counters`.

    Raises:
        CorruptItem: an attribute is absent or of another type.
    """
    check_format(item)
    return ShardProgress(
        shard=require(item, "counter", str).removeprefix(keys.STREAM_PREFIX),
        sequence=require(item, "sequence", str),
        handled_through_ms=require(item, "handled_through", int),
        handled_at_ms=require(item, "handled_at", int),
        records=require(item, "records", int),
        updates=require(item, "updates", int),
        write_units=require(item, "write_units", int),
    )
