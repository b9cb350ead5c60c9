"""Progress: up to which record each stream shard has been handled, stored in `counters`.

A total says when it was last updated. Only the progress of the shards says whether more records
wait, so it distinguishes a quiet counter from a stalled stream. A record at or below the progress
is never applied again: a batch is compared with it first.

The progress item also stores two earlier positions. So one read shows how far the shard had been
handled some time ago (`passed`). By now each write of an invocation that read less than that has
landed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, optional, require
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CorruptItem, NewerFormat, ProgressLost
from countledger.ledger.limits import LATE_WRITE_MS, PROGRESS_LIFE_MS, SECOND_MS
from countledger.ledger.operations import Absent, Add, Assign, Compare, Drop, Update, all_unchanged

if TYPE_CHECKING:
    from datetime import datetime

    from countledger.ledger.operations import Clause

# Texts of one length compare like their numbers.
_DIGITS: Final = 40
_NOTHING: Final = "0"
# A position after each sequence number: nothing of the shard is left.
END: Final = 10**_DIGITS


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """What has been handled of one stream shard.

    Attributes:
        shard: stream label and shard id.
        sequence: the sequence number of the last record handled, as the stream's text.
        handled_through_ms: when the stream created that record (whole seconds), ms since the epoch.
        handled_at_ms: when it was handled, ms since the epoch.
        records: how many records were handled in total.
        updates: how many updates of totals were made for them.
        write_units: the write units of these updates and of the progress itself.
        earlier: an earlier position, as a sequence number.
        earlier_at_ms: when the shard was at `earlier`, ms since the epoch.
        landed: a position long before `earlier`: each write of an invocation that began before
            this position was stored has landed.
        attempted: the first sequence number of the last batch whose attempts were counted.
        attempts: how many invocations began there and did not end.
    """

    shard: str
    sequence: str
    handled_through_ms: int
    handled_at_ms: int
    records: int
    updates: int
    write_units: float
    earlier: int | None = None
    earlier_at_ms: int | None = None
    landed: int | None = None
    attempted: int | None = None
    attempts: int = 0

    @property
    def position(self) -> int:
        """The sequence number of the last record handled; 0 where none was handled yet."""
        return int(self.sequence)

    @property
    def handled_through(self) -> datetime:
        """When the stream created the last record handled, in UTC."""
        return to_datetime(self.handled_through_ms)

    @property
    def handled_at(self) -> datetime:
        """When that record was handled, in UTC."""
        return to_datetime(self.handled_at_ms)

    def passed(self, now_ms: int, late_ms: int = LATE_WRITE_MS) -> int | None:
        """The position up to which no late write can land any more; None: unknown.

        Args:
            now_ms: the time, ms since the epoch.
            late_ms: how long after a position is stored a write that did not know it may land.
        """
        if now_ms - self.handled_at_ms >= late_ms:
            return self.position
        if self.earlier_at_ms is not None and now_ms - self.earlier_at_ms >= late_ms:
            return self.earlier
        return self.landed


def history_after(
    before: ShardProgress, now_ms: int, late_ms: int
) -> tuple[int | None, int | None, int | None]:
    """`earlier`, `earlier_at_ms` and `landed` for the progress that follows `before`.

    A position stays `earlier` until it is old enough to become `landed`; then a newer position
    becomes `earlier`. So `landed` is at most twice `late_ms` old.
    """
    if before.earlier is None or before.earlier_at_ms is None:
        return before.position, before.handled_at_ms, before.landed
    if now_ms - before.earlier_at_ms >= late_ms:
        return before.position, before.handled_at_ms, before.earlier
    return before.earlier, before.earlier_at_ms, before.landed


def opening_of(table: str, shard: str, now_ms: int) -> Update:
    """Create a shard's progress before its first batch: nothing was handled. One write unit.

    Conditional on the shard having no progress.
    """
    nothing = ShardProgress(shard, _NOTHING, 0, now_ms, 0, 0, 0)
    return Update(table, keys.progress_key(shard), _clauses(nothing), Absent("position"))


def advance_of(table: str, progress: ShardProgress) -> Update:
    """Move a shard's progress forward, and add up its numbers. One write unit.

    Conditional on a lower progress being stored. It never creates one: absent progress was lost.
    """
    condition = Compare("position", "<", _padded(progress.position))
    clauses = (*_clauses(progress), Drop("attempted"), Drop("attempts"))
    return Update(table, keys.progress_key(progress.shard), clauses, condition)


def recovery_of(table: str, progress: ShardProgress, found: Item | None) -> Update:
    """Replace progress that is lost or cannot be read. One write unit.

    Conditional on the item being as found.
    """
    same = all_unchanged(found or {}, "position", "handled_at")
    names = ("earlier", "earlier_at", "landed", "attempted", "attempts")
    numbers = ("records", "updates", "write_units")
    clauses = tuple(clause for clause in _clauses(progress) if clause.name not in numbers)
    zeros = tuple(Assign(name, 0) for name in numbers)
    drops = tuple(Drop(name) for name in names)
    key = keys.progress_key(progress.shard)
    return Update(table, key, (*clauses, *zeros, *drops), same)


def attempt_started_of(table: str, shard: str, first: int, attempts: int) -> Update:
    """Store, before a batch is applied, the number of this attempt at it. One write unit."""
    clauses = (Assign("attempted", _padded(first)), Assign("attempts", attempts))
    return Update(
        table, keys.progress_key(shard), clauses, Compare("position", "<", _padded(first))
    )


def attempt_ended_of(table: str, shard: str, first: int) -> Update:
    """Remove the stored attempt, because its invocation came to an end. One write unit."""
    condition = Compare("attempted", "=", _padded(first))
    drops = (Drop("attempted"), Drop("attempts"))
    return Update(table, keys.progress_key(shard), drops, condition)


def _clauses(progress: ShardProgress) -> tuple[Clause, ...]:
    history = (
        ("earlier", None if progress.earlier is None else _padded(progress.earlier)),
        ("earlier_at", progress.earlier_at_ms),
        ("landed", None if progress.landed is None else _padded(progress.landed)),
    )
    expires_at = (progress.handled_at_ms + PROGRESS_LIFE_MS) // SECOND_MS
    return (
        Assign("sequence", progress.sequence),
        Assign("position", _padded(progress.position)),
        Assign("handled_through", progress.handled_through_ms),
        Assign("handled_at", progress.handled_at_ms),
        Assign("expires_at", expires_at),
        *(Assign(name, value) for name, value in history if value is not None),
        Add("records", progress.records),
        Add("updates", progress.updates),
        Add("write_units", round(progress.write_units)),
    )


def _padded(sequence: int) -> str:
    return str(sequence).zfill(_DIGITS)


def decode_progress(item: Item) -> ShardProgress:
    """The progress in an item of `counters`.

    Raises:
        CorruptItem: an attribute is absent or of another type, or a text is not a number.
    """
    check_format(item)
    sequence = require(item, "sequence", str)
    if _position_in(item, "position") != _number(item, "sequence", sequence):
        raise CorruptItem(f"progress {item.get('counter')!r}: `position` is not `sequence`")
    return ShardProgress(
        shard=require(item, "counter", str).removeprefix(keys.STREAM_PREFIX),
        sequence=sequence,
        handled_through_ms=require(item, "handled_through", int),
        handled_at_ms=require(item, "handled_at", int),
        records=require(item, "records", int),
        updates=require(item, "updates", int),
        write_units=require(item, "write_units", int),
        earlier=_position_in(item, "earlier"),
        earlier_at_ms=optional(item, "earlier_at", int),
        landed=_position_in(item, "landed"),
        attempted=_position_in(item, "attempted"),
        attempts=optional(item, "attempts", int) or 0,
    )


def known_progress(item: Item) -> ShardProgress:
    """As `decode_progress`, where progress that cannot be read must not pass for none.

    Raises:
        ProgressLost: it cannot be read. The error names the shard and the command that recovers it.
        NewerFormat: a later release wrote it.
    """
    try:
        return decode_progress(item)
    except NewerFormat:
        raise
    except CorruptItem as error:
        shard = str(item["counter"]).removeprefix(keys.STREAM_PREFIX)
        raise lost(shard, str(error)) from error


def lost(shard: object, reason: str = "it is not there") -> ProgressLost:
    """The error for a shard whose progress is lost."""
    return ProgressLost(
        f"the progress of stream shard {shard} is lost ({reason}), so none of its records is "
        "applied: they might count twice. Run `countledger repair --lost-progress`, then "
        "`countledger repair --all` (docs/runbook.md, 'The progress of a shard is lost')"
    )


def _position_in(item: Item, name: str) -> int | None:
    text = optional(item, name, str)
    return None if text is None else _number(item, name, text)


def _number(item: Item, name: str, text: str) -> int:
    if len(text) > _DIGITS or not text.isdecimal():
        raise CorruptItem(f"progress {item.get('counter')!r}: {name!r} is {text[:60]!r}")
    return int(text)
