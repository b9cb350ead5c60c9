"""Writes one counter's changes into its total, then into its windows.

Effect and watermark are one write, in the total as in each item of windows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, overload

from countledger.consumers import progress
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
from countledger.ledger.attributes import check_format
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    NewerFormat,
    RequestRejected,
    ServiceFailed,
    SumOverflow,
)
from countledger.ledger.limits import DUE_RULE_LIFE_MS, FORMAT, RANK_RULE_LIFE_MS, WINDOWS_LIFE_MS
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    Compare,
    Drop,
    Update,
)
from countledger.ledger.recent import Recent
from countledger.ledger.total import new_incarnation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from countledger.consumers.window_writer import WindowChanges
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item, Key, OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.indexes import DueRule
    from countledger.ledger.operations import Clause
    from countledger.ledger.windows import WindowSetting


# What a namespace's schedule, ranking and windows add to the writes of a counter's total.
#
# Each is read at most once a minute.
#
# A counter with enough entries is put into the due index, from which the dispatcher compacts it. A
# total of a ranked namespace gets its position on the board in the update that creates the total.
# The windows of a counter are written after its total.
#
# The modules of schedules, rankings and windows are loaded at the first namespace that has one:
# most functions start without.


_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class SettingOf(Generic[_V]):
    """A setting of the namespace of a counter, as it was a minute ago at most.

    Functions that are called again share what is `known`.
    """

    connection: Connection
    key: Callable[[str], Key]
    decode: Callable[[Item | None], _V]
    known: Recent[str, _V]
    consistent: bool = False
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __call__(self, counter: str) -> _V:
        """Half a read unit a minute for each namespace; a whole one for a consistent read."""
        namespace, now_ms = keys.namespace_of(counter), self.connection.clock.now_ms()
        known = self.known.get(namespace, now_ms)
        if known is not None:
            return known.value
        # The writers of a batch ask at once; one of them reads.
        with self._lock:
            return self.known.of(namespace, now_ms, self._read)

    def _read(self, namespace: str) -> _V:
        connection = self.connection
        item = connection.retrying.get(
            connection.counters, self.key(namespace), consistent=self.consistent
        )
        return self.decode(item)


DueRuleOf: TypeAlias = "Callable[[str], DueRule | None]"


def new_due_rules() -> Recent[str, DueRule | None]:
    """A new or changed schedule is seen after a minute at the latest."""
    return Recent(DUE_RULE_LIFE_MS)


def due_rule_of(
    connection: Connection, known: Recent[str, DueRule | None] | None = None
) -> DueRuleOf:
    """By counter, from how many entries its namespace's schedule merges it; None: none does."""
    known = new_due_rules() if known is None else known
    return SettingOf(connection, keys.schedule_key, _due_rule_in, known)


def _due_rule_in(schedule: Item | None) -> DueRule | None:
    if schedule is None:
        return None
    from countledger.ledger.indexes import rule_in  # noqa: PLC0415 - at the first schedule
    from countledger.ledger.tombstones import present  # noqa: PLC0415 - the same

    if present(schedule) is None:
        return None
    try:
        return rule_in(schedule)
    except CorruptItem:
        # The dispatcher reports it, when it runs for this schedule.
        return None


def rank_clauses_of(connection: Connection) -> Callable[[str], tuple[Clause, ...]]:
    """By counter, what to add to the update of its total, so that it is on its board."""
    known: Recent[str, int | None] = Recent(RANK_RULE_LIFE_MS)
    partitions_of = SettingOf(connection, keys.ranking_key, _partitions_in, known)

    def clauses(counter: str) -> tuple[Clause, ...]:
        partitions = partitions_of(counter)
        if partitions is None:
            return ()
        from countledger.ledger.indexes import clauses_for  # noqa: PLC0415 - at the first ranking

        return clauses_for(counter, partitions)

    return clauses


def _partitions_in(ranking: Item | None) -> int | None:
    if ranking is None:
        return None
    from countledger.ledger.indexes import partitions_to_write  # noqa: PLC0415 - as above

    return partitions_to_write(ranking)


WindowsOf: TypeAlias = "Callable[[str], tuple[WindowSetting, ...]]"


def new_window_settings() -> Recent[str, tuple[WindowSetting, ...]]:
    return Recent(WINDOWS_LIFE_MS)


def windows_of(
    connection: Connection,
    known: Recent[str, tuple[WindowSetting, ...]] | None = None,
    on_corrupt: OnCorrupt = lambda _: None,
) -> WindowsOf:
    """By counter, the windows of its namespace.

    Settings that cannot be read give no windows, and their error goes to `on_corrupt` at each read:
    the totals of all namespaces go on, and those of this one are rebuilt from the ledger once the
    settings are corrected. Settings of a later release raise `NewerFormat`: nothing is written
    until that release replaces this one.
    """

    def decode(item: Item | None) -> tuple[WindowSetting, ...]:
        if item is None:
            return ()
        from countledger.ledger.windows import decode_settings  # noqa: PLC0415 - at first windows

        try:
            return decode_settings(item)
        except NewerFormat:
            raise
        except CorruptItem as error:
            on_corrupt(error)
            return ()

    known = new_window_settings() if known is None else known
    return SettingOf(connection, keys.windows_key, decode, known, consistent=True)


@dataclass(frozen=True, slots=True)
class DueMarker:
    """Puts the counters of a batch into the index; its SDK may retry: a second mark is refused."""

    dynamo: DynamoClient
    table: str
    rule_of: DueRuleOf
    now_ms: int

    def mark(self, total: Item) -> None:
        """Put a counter into the index if it has enough entries and is not in it: two write units.

        If that fails now, the batch must be delivered again.
        """
        rule = self.rule_of(total["counter"])
        if rule is None:
            return
        from countledger.ledger.indexes import due_state_of, mark_of  # noqa: PLC0415 - the same

        try:
            update = mark_of(self.table, due_state_of(total), rule, self.now_ms)
            if update is not None:
                self.dynamo.update(update)
        except (ConditionFailed, CorruptItem, RequestRejected):
            # Marked meanwhile, or corrupted by hand: a retry would block the stream for nothing.
            return


# The fold: a batch of stream records becomes one change for each counter. Pure.
#
# Nearly every record is the INSERT of a recent entry, written by this release. For these records a
# check costs more per call than per byte. So `sweep` gathers the texts of a batch and checks them
# all at once, and parses each distinct number once; that takes a third of the time. Any other
# record is read by `change_of`. If one record of the batch is malformed, the whole batch is read
# record by record instead, so that the malformed records are found. `sweep` accepts nothing that
# `change_of` refuses.


# Sequence number (also as the stream's text), delta, events, entries, and the record's `dynamodb`
# part, in which windows find the times. A row becomes an `EntryChange` only where it is read one by
# one, which is seldom.
Row: TypeAlias = "tuple[str | int, Amount, int, int, Mapping[str, Any]]"


class CounterChanges(Sequence[EntryChange]):
    """Changes of one counter, in order."""

    __slots__ = ("counter", "rows")

    def __init__(self, counter: str, rows: Sequence[Row]) -> None:
        self.counter = counter
        self.rows = rows

    @overload
    def __getitem__(self, index: int) -> EntryChange: ...

    @overload
    def __getitem__(self, index: slice) -> CounterChanges: ...

    def __getitem__(self, index: int | slice) -> EntryChange | CounterChanges:
        if isinstance(index, slice):
            return CounterChanges(self.counter, self.rows[index])
        sequence, delta, events, entries, _ = self.rows[index]
        return EntryChange(int(sequence), self.counter, delta, events, entries)

    @property
    def is_empty(self) -> bool:
        return not self.rows

    def above(self, sequence: int | None) -> CounterChanges:
        """The changes after a watermark; None: all."""
        if sequence is None:
            return self
        return CounterChanges(self.counter, [row for row in self.rows if int(row[0]) > sequence])

    def __len__(self) -> int:
        return len(self.rows)


def row_of(change: EntryChange, record: Mapping[str, Any]) -> Row:
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
    """What a batch adds to totals, and its last sequence number, as the stream's text.

    `last_created_at_ms` is that of the last record that has a time.
    """

    changes: dict[str, CounterChanges] = field(default_factory=dict)
    rejected: list[RejectedRecord] = field(default_factory=list)
    records: int = 0
    last_sequence: str | None = None
    last_created_at_ms: int | None = None


class Reached(NamedTuple):
    """How far a batch was handled: its last record, by the stream's text.

    `created_at_ms` is when the stream created it, or the last record before it that has a time.
    """

    sequence: str
    created_at_ms: int
    records: int


class FoldedChange(NamedTuple):
    """All changes of one counter as one change of its total."""

    first: int
    last: int
    delta: Amount
    events: int
    entries: int


def fold(records: Sequence[Mapping[str, Any]], now_ms: int) -> Fold:
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
    """How far a batch was handled, up to the first record to deliver again.

    None: no handled record has a number, or none has a time.
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


def folded_change(changes: CounterChanges) -> FoldedChange:
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


_CLEANED_AT_ONCE: Final = 100
_SHOWN: Final = 60
_NEXT_VERSION: Final = Add("version", 1)
_READABLE: Final = AnyOf(Absent("v"), Compare("v", "=", FORMAT))
# Strict counters and sequences have the same key, and bounds.
_NOT_STRICT: Final = Absent("method")


class Written(NamedTuple):
    """What became of one counter's changes; `error` is why those left could not be written now.

    `applied` are those that this call applied to the total, `rejected` those that can never be
    applied and were quarantined, `windows` the items of windows that it wrote. `refused_times`
    count in the windows of their recording, because their own time is ahead, before 1970 or too
    long ago.
    """

    applied: int = 0
    duplicates: int = 0
    rejected: int = 0
    windows: int = 0
    refused_times: int = 0
    error: CountledgerError | None = None


def update_of(table: str, counter: str, step: FoldedChange, shard: str, now_ms: int) -> Update:
    """The one write of a change: its effect and the shard's watermark. One write unit below 1 KB.

    Conditional on the watermark being lower than the change's first record.
    """
    mark = progress.attribute(shard)
    return Update(
        table,
        keys.total_key(counter),
        (
            Add("total", step.delta),
            Add("events", step.events),
            Add("entries", step.entries),
            _NEXT_VERSION,
            Assign("updated_at", now_ms),
            Assign(mark, progress.encode(step.last, now_ms)),
            AssignOnce("incarnation", new_incarnation(shard, step.first, now_ms)),
        ),
        AllOf(
            _READABLE,
            _NOT_STRICT,
            AnyOf(Absent(mark), Compare(mark, "<", progress.floor(step.first))),
        ),
        returning="ALL_NEW",
    )


def and_also(update: Update, also: tuple[Clause, ...]) -> Update:
    return replace(update, clauses=(*update.clauses, *also)) if also else update


def clean_up_of(table: str, key: Key, stale: Mapping[str, bytes]) -> Update:
    """Remove watermarks that refuse nothing any more, unless one of them has moved."""
    return Update(
        table,
        key,
        tuple(Drop(name) for name in stale),
        AllOf(*(Compare(name, "=", value) for name, value in stale.items())),
    )


@dataclass(frozen=True, slots=True)
class TotalWriter:
    """Writes the totals of one batch; the SDK may retry, because a second application is refused.

    `removable` says which watermarks of a total can be removed; None: by their age alone. `index`
    puts a counter with enough entries into the due index; `also` are the clauses of a ranking.
    """

    dynamo: DynamoClient
    table: str
    shard: str
    quarantine: Callable[[EntryChange, str], None]
    now_ms: int
    index: Callable[[Item], None] | None = None
    also: Callable[[str], tuple[Clause, ...]] | None = None
    removable: Callable[[Item], dict[str, bytes]] | None = None
    windows: Callable[[str], Sequence[WindowSetting]] | None = None

    def write(self, counter: str, changes: CounterChanges) -> Written:
        """Apply changes of one counter, in order, to its total and then to its windows.

        One write unit, and one for each item of windows that they touch.

        If the service calls the update invalid, the changes are halved until the invalid one is
        alone. It is quarantined *before* a later change moves the watermark past it, so it is not
        lost.
        """
        try:
            windowed = self._window_changes(counter, changes)
            applied, item = self._apply(counter, changes, windowed)
            windows = self._write_windows(counter, item, windowed)
        except RequestRejected as rejection:
            if len(changes) > 1:
                half = len(changes) // 2
                first = self.write(counter, changes[:half])
                return first if first.error else _both(first, self.write(counter, changes[half:]))
            try:
                self.quarantine(changes[0], str(rejection))
            except CountledgerError as error:
                return Written(error=error)
            return Written(rejected=1)
        except CountledgerError as error:
            return Written(error=error)
        return Written(
            applied,
            len(changes) - applied,
            windows=windows,
            refused_times=sum(one.refused for one in windowed) if windows else 0,
            error=self._indexed(item),
        )

    def _window_changes(self, counter: str, changes: CounterChanges) -> list[WindowChanges]:
        settings = self.windows(counter) if self.windows is not None else ()
        if not settings:
            return []
        from countledger.consumers.window_writer import window_changes  # noqa: PLC0415 - at first windows

        return window_changes(changes, settings)

    def _write_windows(self, counter: str, total: Item, windowed: Sequence[WindowChanges]) -> int:
        """Write windows, whether the total contained their changes before or not."""
        if not windowed:
            return 0
        from countledger.consumers.window_writer import WindowWriter  # noqa: PLC0415 - as above

        def quarantine(sequence: int, reason: str) -> None:
            self.quarantine(EntryChange(sequence, counter, 0, 0, 0), reason)

        writer = WindowWriter(
            self.dynamo, self.table, self.shard, quarantine, self.now_ms, self._clean_up
        )
        return writer.write(counter, total, windowed)

    def _indexed(self, item: Item) -> CountledgerError | None:
        """Put the counter into the due index; an error makes the changes come again, so it too."""
        try:
            if self.index is not None:
                self.index(item)
        except CountledgerError as error:
            return error
        return None

    def _apply(
        self, counter: str, changes: CounterChanges, windowed: Sequence[WindowChanges]
    ) -> tuple[int, Item]:
        """Write the changes that are not applied yet; their number, and the total's item now."""
        if not keys.is_counter(counter):
            raise RequestRejected(f"{counter[:_SHOWN]!r} is not the name of a counter")
        also = () if self.also is None else self.also(counter)

        def update_with(left: CounterChanges) -> Update:
            step = folded_change(left)
            if not amount.fits(step.delta):
                raise SumOverflow(f"counter {counter!r}: the sum needs more than 38 digits")
            update = update_of(self.table, counter, step, self.shard, self.now_ms)
            windows = windowed if left is changes else self._window_changes(counter, left)
            if windows:
                update = and_also(update, _of_windows(windows, self.shard, step.first))
            return and_also(update, also)

        def check(found: Item) -> None:
            check_format(found)
            if "method" in found:
                raise RequestRejected(
                    f"counter {counter!r} is strict or a sequence: entries are not added to it"
                )

        what = f"counter {counter!r}"
        wrote, item = progress.write_above(
            self.dynamo, self.shard, changes, update_with, what=what, check=check
        )
        if wrote is None:
            return 0, item
        self._clean_up(keys.total_key(counter), item)
        return len(wrote), item

    def _clean_up(self, key: Key, item: Item) -> None:
        """Remove watermarks if several can be removed: a write of its own, one write unit."""
        try:
            # The watermarks of a repair become stale together; one expression is limited in size.
            gone = dict(islice(self._removable(item).items(), _CLEANED_AT_ONCE))
            if gone:
                self.dynamo.update(clean_up_of(self.table, key, gone))
        except (ConditionFailed, ServiceFailed):
            # The changes are applied; the next update of this counter tries again.
            return

    def _removable(self, item: Item) -> dict[str, bytes]:
        if self.removable is not None:
            return self.removable(item)
        stale = progress.stale(item, self.now_ms)
        return stale if len(stale) >= progress.STALE_ENOUGH else {}


def _of_windows(windowed: Sequence[WindowChanges], shard: str, first: int) -> tuple[Clause, ...]:
    from countledger.consumers.window_writer import windowed_clauses  # noqa: PLC0415 - as above

    return windowed_clauses(windowed, shard, first)


def _both(first: Written, second: Written) -> Written:
    return second._replace(
        applied=first.applied + second.applied,
        duplicates=first.duplicates + second.duplicates,
        rejected=first.rejected + second.rejected,
        windows=first.windows + second.windows,
        refused_times=first.refused_times + second.refused_times,
    )
