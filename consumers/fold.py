"""The fold: a batch of stream records becomes one change for each counter. Pure.

Nearly every record is the INSERT of a recent entry, written by this release. For these records a
check costs more per call than per byte. So `sweep` gathers the texts of a batch and checks them all
at once, and parses each distinct number once; that takes a third of the time. Any other record is
read by `change_of`. If one record of the batch is malformed, the whole batch is read record by
record instead, so that the malformed records are found. `sweep` accepts nothing that `change_of`
refuses.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, overload

from countledger.consumers.record import (
    FAR_AHEAD_S,
    EntryChange,
    MalformedRecord,
    are_sequences,
    change_of,
    created_at_ms,
    index_of,
    sequence_of,
    surely_young_from_s,
    worth_of,
)
from countledger.consumers.rejected import RejectedRecord
from countledger.ledger import amount, keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.ledger.amount import Amount

# Sequence number (also as the stream's text), delta, events, entries, and the record's `dynamodb`
# part, in which windows find the times. A row becomes an `EntryChange` only where it is read one by
# one, which is seldom.
Row: TypeAlias = "tuple[str | int, Amount, int, int, Mapping[str, Any]]"


class CounterChanges(Sequence[EntryChange]):
    """Changes of one counter, in order.

    Attributes:
        counter: its name.
        rows: one for each change.
    """

    __slots__ = ("counter", "rows")

    def __init__(self, counter: str, rows: Sequence[Row]) -> None:
        """The changes in these rows."""
        self.counter = counter
        self.rows = rows

    @overload
    def __getitem__(self, index: int) -> EntryChange: ...

    @overload
    def __getitem__(self, index: slice) -> CounterChanges: ...

    def __getitem__(self, index: int | slice) -> EntryChange | CounterChanges:
        """One change, or a slice."""
        if isinstance(index, slice):
            return CounterChanges(self.counter, self.rows[index])
        sequence, delta, events, entries, _ = self.rows[index]
        return EntryChange(int(sequence), self.counter, delta, events, entries)

    def above(self, sequence: int) -> CounterChanges:
        """The changes after a sequence number."""
        return CounterChanges(self.counter, [row for row in self.rows if int(row[0]) > sequence])

    def __len__(self) -> int:
        """The number of changes."""
        return len(self.rows)


def row_of(change: EntryChange, record: Mapping[str, Any]) -> Row:
    """The row of a change."""
    stream = record["dynamodb"]
    return change.sequence, change.delta, change.events, change.entries, stream


_NOT_WELL_FORMED: Final = (KeyError, TypeError, AttributeError, ValueError, MalformedRecord)


def sweep(records: Sequence[Mapping[str, Any]], now_ms: int) -> Mapping[str, list[Row]] | None:
    """What records add to totals, by counter and in order; None: a record may be malformed."""
    try:
        return _sweep(records, now_ms)
    except _NOT_WELL_FORMED:
        return None


def _sweep(records: Sequence[Mapping[str, Any]], now_ms: int) -> Mapping[str, list[Row]] | None:
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    deltas: dict[str, Amount] = {}
    counts: dict[str, int] = {}
    entries: list[str] = []
    sequences: list[str] = []
    young_s = surely_young_from_s(now_ms)
    for record in records:
        stream = record["dynamodb"]
        sequence = stream["SequenceNumber"]
        if (
            record["eventName"] != "INSERT"
            or not young_s <= stream["ApproximateCreationDateTime"] < FAR_AHEAD_S
            or "v" in (image := stream["NewImage"])
        ):
            change = change_of(record, sequence_of(record), now_ms)
            if change is not None:
                rows[change.counter].append(row_of(change, record))
            continue
        key = stream["Keys"]
        counter = key["counter"]["S"]
        delta = deltas.get(image["delta"]["N"])
        events = counts.get(image["events"]["N"]) if "events" in image else 1
        if delta is None or events is None:
            delta, events = worth_of(image, "new")
            deltas[image["delta"]["N"]] = delta
            if "events" in image:
                counts[image["events"]["N"]] = events
        entries.append(key["entry"]["S"])
        sequences.append(sequence)
        rows[counter].append((sequence, delta, events, 1, stream))
    if sequences and not (set(map(type, rows)) == {str} and are_sequences(sequences)):
        return None
    return rows if keys.are_entries(entries) else None


@dataclass(slots=True)
class Fold:
    """What a batch adds to totals.

    Attributes:
        changes: for each counter its changes, in order.
        rejected: malformed records.
        records: the number of records.
        last_sequence: the last sequence number in the batch, as the stream's text.
        last_created_at_ms: when the stream created the last record that has a time.
    """

    changes: dict[str, CounterChanges] = field(default_factory=dict)
    rejected: list[RejectedRecord] = field(default_factory=list)
    records: int = 0
    last_sequence: str | None = None
    last_created_at_ms: int | None = None


class Reached(NamedTuple):
    """How far a batch was handled.

    Attributes:
        sequence: the sequence number of the last record handled, as the stream's text.
        created_at_ms: when the stream created it, or the last record before it that has a time.
        records: how many records were handled.
    """

    sequence: str
    created_at_ms: int
    records: int


class FoldedChange(NamedTuple):
    """All changes of one counter as one change of its total.

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
    """Fold a batch, by `sweep` if all records are well formed."""
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
    """Fold a batch record by record, so that malformed records are found."""
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
            rows.setdefault(change.counter, []).append(row_of(change, record))
    result.changes = _changes(rows)
    result.last_created_at_ms = _last_created_at_ms(records)
    return result


def _changes(rows: Mapping[str, Sequence[Row]]) -> dict[str, CounterChanges]:
    return {counter: CounterChanges(counter, found) for counter, found in rows.items()}


def reached(records: Sequence[Mapping[str, Any]], retry_from: int | None) -> Reached | None:
    """How far a batch was handled; None: no handled record has a number, or none has a time.

    Args:
        records: the batch.
        retry_from: the sequence number of the first record not handled; None: all were handled.
    """
    done = len(records) if retry_from is None else index_of(records, retry_from)
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
    """The changes above a watermark, which its total does not contain yet."""
    return changes if watermark is None else changes.above(watermark)


def folded_change(changes: CounterChanges) -> FoldedChange:
    """Combine the changes of one counter (at least one)."""
    if len(changes.rows) == 1:
        only = changes[0]
        return FoldedChange(only.sequence, only.sequence, only.delta, only.events, only.entries)
    sequences, deltas, events, entries, _ = zip(*changes.rows, strict=False)
    first, last = int(sequences[0]), int(sequences[-1])
    return FoldedChange(first, last, amount.total_of(deltas), sum(events), sum(entries))


def _last_created_at_ms(records: Sequence[Mapping[str, Any]]) -> int | None:
    for record in reversed(records):
        try:
            return created_at_ms(record)
        except MalformedRecord:
            continue
    return None
