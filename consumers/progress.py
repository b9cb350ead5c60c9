"""Progress: up to where each stream shard has been handled, kept in `counters`.

A total tells when it was last updated; only the progress of the shards tells whether that is all
there is. So a quiet counter and a stalled stream can be told apart. And whatever is at or below it
is never applied again: a batch is compared with it before anything else is done.

Beside its position it keeps two that it had before, so that one read tells how far the shard had
been handled some time ago (`passed`): by then every write of an invocation has landed that knew
only of less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, optional, require
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CorruptItem
from countledger.ledger.expressions import Absent, Add, AllOf, Assign, Compare, Drop
from countledger.ledger.limits import LATE_WRITE_MS, PROGRESS_LIFE_MS, SECOND_MS
from countledger.ledger.operations import Update

if TYPE_CHECKING:
    from datetime import datetime

    from countledger.ledger.expressions import Clause, Condition

# Texts of one length compare like the numbers that they spell.
_DIGITS: Final = 40
_NOTHING: Final = "0"
# A position after each sequence number: nothing of the shard is left.
END: Final = 10**_DIGITS


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
        earlier: a position that it had before, as a sequence number.
        earlier_at_ms: when it had that position, ms since the epoch.
        settled: a position that it had long before `earlier`: no write lands any more that was
            made without knowing of it.
        attempted: with which sequence number the last batch began that was counted.
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
    settled: int | None = None
    attempted: int | None = None
    attempts: int = 0

    @property
    def position(self) -> int:
        """The sequence number of the last record handled; 0 of a shard that was only opened."""
        return int(self.sequence)

    @property
    def handled_through(self) -> datetime:
        """When the stream made the last record handled, in UTC."""
        return to_datetime(self.handled_through_ms)

    @property
    def handled_at(self) -> datetime:
        """When that record was handled, in UTC."""
        return to_datetime(self.handled_at_ms)

    def passed(self, now_ms: int, late_ms: int = LATE_WRITE_MS) -> int | None:
        """The position below which no write can land any more, or None where none is known.

        Args:
            now_ms: the time, ms since the epoch.
            late_ms: for how long a write may land that did not know of a position.
        """
        if now_ms - self.handled_at_ms >= late_ms:
            return self.position
        if self.earlier_at_ms is not None and now_ms - self.earlier_at_ms >= late_ms:
            return self.earlier
        return self.settled


def history_after(
    before: ShardProgress, now_ms: int, late_ms: int
) -> tuple[int | None, int | None, int | None]:
    """`earlier`, `earlier_at_ms` and `settled` of the progress that follows another one.

    A position stays `earlier` until it is old enough to be `settled`; only then a newer one
    follows it. So `settled` is late by twice that time at the most.
    """
    if before.earlier is None or before.earlier_at_ms is None:
        return before.position, before.handled_at_ms, before.settled
    if now_ms - before.earlier_at_ms >= late_ms:
        return before.position, before.handled_at_ms, before.earlier
    return before.earlier, before.earlier_at_ms, before.settled


def opening_of(table: str, shard: str, now_ms: int) -> Update:
    """Let a shard have progress before its first batch: nothing was handled. One write unit.

    On condition that it has none.
    """
    nothing = ShardProgress(shard, _NOTHING, 0, now_ms, 0, 0, 0)
    return Update(table, keys.progress_key(shard), _clauses(nothing), Absent("position"))


def advance_of(table: str, progress: ShardProgress) -> Update:
    """Move a shard's progress on, never back; its numbers are added up. One write unit.

    On condition that it has a lower one: none is ever made by this, for what is not there was lost.
    """
    condition = Compare("position", "<", _spelled(progress))
    clauses = (*_clauses(progress), Drop("attempted"), Drop("attempts"))
    return Update(table, keys.progress_key(progress.shard), clauses, condition)


def recovery_of(table: str, progress: ShardProgress, found: Item | None) -> Update:
    """Let a shard have progress again whose own is lost or cannot be read. One write unit.

    On condition that what was found is still there.
    """
    there = (found or {}).get("position")
    same: Condition = Absent("position") if there is None else Compare("position", "=", there)
    at = (found or {}).get("handled_at")
    unmoved: Condition = Absent("handled_at") if at is None else Compare("handled_at", "=", at)
    names = ("earlier", "earlier_at", "settled", "attempted", "attempts")
    numbers = ("records", "updates", "write_units")
    clauses = tuple(clause for clause in _clauses(progress) if clause.name not in numbers)
    anew = tuple(Assign(name, 0) for name in numbers)
    drops = tuple(Drop(name) for name in names)
    key = keys.progress_key(progress.shard)
    return Update(table, key, (*clauses, *anew, *drops), AllOf(same, unmoved))


def attempt_started_of(table: str, shard: str, first: int, attempts: int) -> Update:
    """Note, before anything is applied, how often the batch that begins there was begun.

    One write unit.
    """
    clauses = (Assign("attempted", _padded(first)), Assign("attempts", attempts))
    return Update(
        table, keys.progress_key(shard), clauses, Compare("position", "<", _padded(first))
    )


def attempt_ended_of(table: str, shard: str, first: int) -> Update:
    """Note that an invocation whose batch begins there came to its end. One write unit."""
    condition = Compare("attempted", "=", _padded(first))
    drops = (Drop("attempted"), Drop("attempts"))
    return Update(table, keys.progress_key(shard), drops, condition)


def _clauses(progress: ShardProgress) -> tuple[Clause, ...]:
    history = (
        ("earlier", None if progress.earlier is None else _padded(progress.earlier)),
        ("earlier_at", progress.earlier_at_ms),
        ("settled", None if progress.settled is None else _padded(progress.settled)),
    )
    expires_at = (progress.handled_at_ms + PROGRESS_LIFE_MS) // SECOND_MS
    return (
        Assign("sequence", progress.sequence),
        Assign("position", _spelled(progress)),
        Assign("handled_through", progress.handled_through_ms),
        Assign("handled_at", progress.handled_at_ms),
        Assign("expires_at", expires_at),
        *(Assign(name, value) for name, value in history if value is not None),
        Add("records", progress.records),
        Add("updates", progress.updates),
        Add("write_units", round(progress.write_units)),
    )


def _spelled(progress: ShardProgress) -> str:
    return progress.sequence.zfill(_DIGITS)


def _padded(sequence: int) -> str:
    return str(sequence).zfill(_DIGITS)


def decode_progress(item: Item) -> ShardProgress:
    """The progress in an item of `counters`.

    Raises:
        CorruptItem: an attribute is absent, of another type, or no number where it should be one.
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
        settled=_position_in(item, "settled"),
        attempted=_position_in(item, "attempted"),
        attempts=optional(item, "attempts", int) or 0,
    )


def lost_text(shard: object, reason: str = "it is not there") -> str:
    """The error text for a shard whose progress is lost."""
    return (
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
