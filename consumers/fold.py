"""The fold: a batch of stream records becomes one change per counter. Pure.

It is tried at a sweep first, and done record by record where one of them is not well formed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from countledger.consumers.changes import CounterChanges, Row, row_of
from countledger.consumers.record import (
    MalformedRecord,
    change_of,
    created_at_ms,
    place_of,
    sequence_of,
)
from countledger.consumers.sweep import sweep
from countledger.ledger import amount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.ledger.amount import Amount


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A record that goes to the quarantine.

    Attributes:
        record: as it came.
        reason: why it can never be applied.
        sequence: its sequence number, where it has one.
    """

    record: Mapping[str, Any]
    reason: str
    sequence: int | None


@dataclass(slots=True)
class Fold:
    """What a batch does.

    Attributes:
        changes: per counter its changes, in order.
        rejected: what could not be understood.
        records: how many records there were.
        last_sequence: the last record's sequence number as the stream spells it, where any had one.
        last_created_at_ms: when the stream made that record.
    """

    changes: dict[str, CounterChanges] = field(default_factory=dict)
    rejected: list[RejectedRecord] = field(default_factory=list)
    records: int = 0
    last_sequence: str | None = None
    last_created_at_ms: int | None = None


class Reached(NamedTuple):
    """How far a batch was handled.

    Attributes:
        sequence: the sequence number of the last record handled, as the stream spells it.
        created_at_ms: when the stream made it, or the last one before it that tells.
        records: how many records that is.
    """

    sequence: str
    created_at_ms: int
    records: int


class FoldedChange(NamedTuple):
    """Changes of one counter as one change of its total.

    Attributes:
        first: the lowest sequence number in it.
        last: the highest.
        delta, events, entries: what it adds.
    """

    first: int
    last: int
    delta: Amount
    events: int
    entries: int


def fold(records: Sequence[Mapping[str, Any]], now_ms: int) -> Fold:
    """Fold a batch: one walk over the records, no model per record."""
    rows = sweep(records, now_ms)
    if rows is None:
        return fold_one_by_one(records, now_ms)
    return Fold(
        _changes(rows),
        records=len(records),
        last_sequence=records[-1]["dynamodb"]["SequenceNumber"] if records else None,
        last_created_at_ms=_last_created_at_ms(records),
    )


def fold_one_by_one(records: Sequence[Mapping[str, Any]], now_ms: int) -> Fold:
    """Fold a batch so that what cannot be understood is told from the rest."""
    result = Fold(records=len(records))
    rows: dict[str, list[Row]] = {}
    for record in records:
        sequence: int | None = None
        try:
            sequence = sequence_of(record)
            result.last_sequence = record["dynamodb"]["SequenceNumber"]
            change = change_of(record, sequence, now_ms)
        except MalformedRecord as malformed:
            result.rejected.append(RejectedRecord(record, str(malformed), sequence))
            continue
        if change is not None:
            rows.setdefault(change.counter, []).append(row_of(change))
    result.changes = _changes(rows)
    result.last_created_at_ms = _last_created_at_ms(records)
    return result


def _changes(rows: Mapping[str, Sequence[Row]]) -> dict[str, CounterChanges]:
    return {counter: CounterChanges(counter, found) for counter, found in rows.items()}


def reached(records: Sequence[Mapping[str, Any]], retry_from: int | None) -> Reached | None:
    """How far a batch was handled whose first record left has that sequence number (None: none).

    None: nothing before it tells number and time.
    """
    done = len(records) if retry_from is None else place_of(records, retry_from)
    for last in range(done - 1, -1, -1):
        created_at_ms = _last_created_at_ms(records[: last + 1])
        try:
            sequence_of(records[last])
        except MalformedRecord:
            continue
        if created_at_ms is None:
            return None
        return Reached(records[last]["dynamodb"]["SequenceNumber"], created_at_ms, done)
    return None


def after(changes: CounterChanges, watermark: int | None) -> CounterChanges:
    """The changes above a watermark: those that its total has not taken in."""
    return changes if watermark is None else changes.above(watermark)


def folded_change(changes: CounterChanges) -> FoldedChange:
    """Changes of one counter (at least one) as one."""
    sequences, deltas, events, entries = zip(*changes.rows, strict=False)
    first, last = int(sequences[0]), int(sequences[-1])
    return FoldedChange(first, last, amount.total_of(deltas), sum(events), sum(entries))


def _last_created_at_ms(records: Sequence[Mapping[str, Any]]) -> int | None:
    for record in reversed(records):
        try:
            return created_at_ms(record)
        except MalformedRecord:
            continue
    return None
