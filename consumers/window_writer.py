"""Writes one counter's changes into the items of its windows, after its total.

Each item has its own watermark of the shard, by the same attribute and the same condition as the
total: effect and watermark are one write. So each item is decided by its own watermark alone. What
the total contains already (a crash between the two writes) is still written here, and what an item
contains already is dropped, whatever the total says.

The items of a counter are named by an id that its total gets with its first windowed entry. A
counter that is deleted and used again gets another total and another id, so it never meets the
windows of the deleted one. The id is part of the total's own answer, hence total first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from countledger.consumers import progress
from countledger.consumers.record import worth_of
from countledger.ledger import amount, keys
from countledger.ledger.errors import ConditionFailed, RequestRejected, ServiceFailed, SumOverflow
from countledger.ledger.indexes import day_clauses
from countledger.ledger.limits import FORMAT, MINUTE_MS
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    Compare,
    Update,
)
from countledger.ledger.total import new_windows_id, windows_id_of, windows_names
from countledger.ledger.windows import EVENTS, SUM, accepts, cells_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from countledger.consumers.total_writer import CounterChanges, Row
    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Clause
    from countledger.ledger.windows import Cell, WindowSetting


# What changes of one counter add to its windows. Pure.
#
# The cells of a change follow from its entry and the namespace's setting, never from a clock. So a
# change that is delivered again, or written in another region, adds to the same cells.
#
# INSERT    adds to the cells of the entry
# MODIFY    takes the old image from its cells and adds the new image to its own


# Sequence number (also as the stream's text), delta, events: a `Row` begins with them.
_Worth: TypeAlias = "tuple[str | int, Amount, int] | Sequence[Any]"
# The changes that add to the same cells.
_Group: TypeAlias = "tuple[tuple[Cell, ...], Sequence[_Worth]]"


class CellPart:
    """Changes (at least one) of the same cells: sequence number, delta and events of each."""

    __slots__ = ("delta", "events", "first", "last", "worths")

    def __init__(self, worths: Sequence[_Worth]) -> None:
        self.worths = worths
        self.first, self.last = int(worths[0][0]), int(worths[-1][0])
        self.delta: Amount = amount.total_of([one[1] for one in worths])
        self.events: int = sum([one[2] for one in worths])

    def above(self, sequence: int) -> CellPart | None:
        if self.first > sequence:
            return self
        left = [one for one in self.worths if int(one[0]) > sequence]
        return CellPart(left) if left else None

    def up_to(self, sequence: int) -> CellPart | None:
        left = [one for one in self.worths if int(one[0]) <= sequence]
        return CellPart(left) if left else None


class FoldedItem(NamedTuple):
    """All that changes add to one item of windows: delta and events for each cell, by number.

    From `expires_at` on TTL may remove the item, in seconds; None: never.
    """

    first: int
    last: int
    delta: Amount
    events: int
    cells: Mapping[str, tuple[Amount, int]]
    expires_at: int | None


class ItemChanges(NamedTuple):
    """Changes of one counter to one item of its windows, which its key names.

    The parts have the number of their cell. From `expires_at` on TTL may remove the item, in
    seconds; None: never.
    """

    item: str
    expires_at: int | None
    parts: Sequence[tuple[str, CellPart]]

    @property
    def is_empty(self) -> bool:
        return not self.parts

    def above(self, sequence: int | None) -> ItemChanges:
        """The changes above a watermark, which the item does not contain yet."""
        if sequence is None:
            return self
        return self._of((number, part.above(sequence)) for number, part in self.parts)

    def up_to(self, sequence: int) -> ItemChanges:
        return self._of((number, part.up_to(sequence)) for number, part in self.parts)

    def sequences(self) -> list[int]:
        """The sequence numbers of the changes, each once and in order."""
        return sorted({int(one[0]) for _, part in self.parts for one in part.worths})

    def folded(self) -> FoldedItem:
        """Combine the changes (at least one)."""
        if len(self.parts) == 1:
            number, one = self.parts[0]
            only = {number: (one.delta, one.events)}
            return FoldedItem(one.first, one.last, one.delta, one.events, only, self.expires_at)
        cells: dict[str, tuple[Amount, int]] = {}
        for number, part in self.parts:
            delta, events = cells.get(number, (0, 0))
            cells[number] = amount.add(delta, part.delta), events + part.events
        return FoldedItem(
            min(part.first for _, part in self.parts),
            max(part.last for _, part in self.parts),
            amount.total_of(delta for delta, _ in cells.values()),
            sum(events for _, events in cells.values()),
            cells,
            self.expires_at,
        )

    def _of(self, parts: Iterable[tuple[str, CellPart | None]]) -> ItemChanges:
        left = [(number, part) for number, part in parts if part is not None]
        return ItemChanges(self.item, self.expires_at, left)


@dataclass(slots=True)
class WindowChanges:
    """What changes of one counter add to the windows of one setting; the coarse items are first.

    `delta` and `events` are what they add in all windows; months add up to it. So many are
    `refused`: they count when they were recorded, because the setting does not accept their own
    time.
    """

    setting: WindowSetting
    delta: Amount = 0
    events: int = 0
    refused: int = 0
    items: list[ItemChanges] = field(default_factory=list)


def window_changes(
    changes: CounterChanges, settings: Sequence[WindowSetting]
) -> list[WindowChanges]:
    """What changes of one counter add to its windows, for each setting that an entry belongs to.

    An entry whose time cannot be read is in no window, as one from before the windows began.
    """
    result = []
    for setting in settings:
        groups, refused = _by_cells(changes, setting)
        if groups:
            result.append(_of_setting(setting, groups, refused))
    return result


def _of_setting(setting: WindowSetting, groups: Collection[_Group], refused: int) -> WindowChanges:
    found: dict[str, tuple[int | None, list[tuple[str, CellPart]]]] = {}
    delta: Amount = 0
    events = 0
    for cells, worths in groups:
        part = CellPart(worths)
        delta, events = amount.add(delta, part.delta), events + part.events
        for item, number, expires_at in cells:
            if item in found:
                found[item][1].append((number, part))
            else:
                found[item] = expires_at, [(number, part)]
    items = [ItemChanges(item, expires, parts) for item, (expires, parts) in found.items()]
    return WindowChanges(setting, delta, events, refused, items)


def _by_cells(changes: CounterChanges, setting: WindowSetting) -> tuple[Collection[_Group], int]:
    """The changes by their cells, and how many have a time that the setting does not accept."""
    rows = changes.rows
    cells = _cells_of_all(rows, setting)
    if cells is not None:
        return ((cells, rows),), 0
    # By identity: `cells_of` returns the same tuple for the same minute, nearly always.
    groups: dict[int, tuple[tuple[Cell, ...], list[_Worth]]] = {}
    refused = 0
    for row in rows:
        stream = row[4]
        worths = ((stream["NewImage"], row),) if row[3] else _modified(stream, row[0])
        for image, worth in worths:
            times = _times_in(image)
            if times is None or not setting.holds_at(times[0]):
                continue
            at_ms, occurred_ms = times
            if occurred_ms is not None and not accepts(setting, at_ms, occurred_ms):
                refused += 1
                occurred_ms = None
            cells = cells_of(setting, at_ms, occurred_ms)
            group = groups.get(id(cells))
            if group is None:
                group = groups[id(cells)] = cells, []
            group[1].append(worth)
    return groups.values(), refused


def _cells_of_all(rows: Sequence[Row], setting: WindowSetting) -> tuple[Cell, ...] | None:
    """The cells of all changes, if they are new entries of one minute without a time of their own.

    That is so for nearly every batch of a counter whose events are on time. It takes a third of the
    time to find that out for all of them at once. None: they are read one by one.
    """
    try:
        images = [row[4]["NewImage"] for row in rows if row[3]]
        times = [int(one["at"]["N"]) for one in images if "occurred_at" not in one]
    except (KeyError, TypeError, ValueError):
        return None
    if len(times) < len(rows):
        return None
    first, last = min(times), max(times)
    if first // MINUTE_MS < last // MINUTE_MS or not (
        setting.holds_at(first) and setting.holds_at(last)
    ):
        return None
    return cells_of(setting, first)


def _modified(
    stream: Mapping[str, Any], sequence: str | int
) -> Iterator[tuple[Mapping[str, Any], _Worth]]:
    """The old image, with what it takes away, and the new one."""
    delta, events = worth_of(stream["OldImage"], "old")
    yield stream["OldImage"], (sequence, amount.negated(delta), -events)
    yield stream["NewImage"], (sequence, *worth_of(stream["NewImage"], "new"))


def _times_in(image: Mapping[str, Any]) -> tuple[int, int | None] | None:
    """When an entry was created, and its own time if it has one; None: they cannot be read."""
    try:
        at_ms = int(image["at"]["N"])
        occurred = image.get("occurred_at")
        return at_ms, None if occurred is None else int(occurred["N"])
    except (KeyError, TypeError, ValueError):
        return None


_READABLE: Final = AnyOf(Absent("v"), Compare("v", "=", FORMAT))
_NEXT_VERSION: Final = Add("version", 1)


def windowed_clauses(
    changes: Iterable[WindowChanges], shard: str, first: int
) -> tuple[Clause, ...]:
    """What the update of a total adds for windows: their id, and the sum of all months.

    A new id is made of the shard and the first sequence number of the update.
    """
    clauses: list[Clause] = []
    for one in changes:
        windows, total, events = windows_names(one.setting.id)
        new_id = new_windows_id(one.setting.id, shard, first)
        clauses += (AssignOnce(windows, new_id), Add(total, one.delta), Add(events, one.events))
    return tuple(clauses)


def item_update_of(  # noqa: PLR0917 - of one write
    table: str, key: Key, step: FoldedItem, shard: str, now_ms: int, also: Iterable[Clause] = ()
) -> Update:
    """The one write of changes into an item of windows. One write unit below 1 KB.

    `also`: what its ranking adds; two write units more, of the index.

    Conditional on the shard's watermark being lower than the first of the changes.
    """
    mark = progress.attribute(shard)
    clauses: list[Clause] = [
        Add("sum", step.delta),
        Add("events", step.events),
        _NEXT_VERSION,
        Assign(mark, progress.encode(step.last, now_ms)),
        *also,
    ]
    if step.expires_at is not None:
        clauses.append(Assign("expires_at", step.expires_at))
    for number, (delta, events) in step.cells.items():
        clauses += (Add(SUM + number, delta), Add(EVENTS + number, events))
    condition = AllOf(
        _READABLE, AnyOf(Absent(mark), Compare(mark, "<", progress.floor(step.first)))
    )
    return Update(table, key, tuple(clauses), condition, returning="ALL_NEW")


@dataclass(frozen=True, slots=True)
class WindowWriter:
    """Writes the windows of one batch; the SDK may retry: a second application is refused.

    `clean_up` removes watermarks that refuse nothing any more from an item that was written.
    """

    dynamo: DynamoClient
    table: str
    shard: str
    quarantine: Callable[[int, str], None]
    now_ms: int
    clean_up: Callable[[Key, Item], None]

    def write(self, counter: str, total: Item, changes: Iterable[WindowChanges]) -> int:
        """Apply changes of one counter, which its total contains; how many items were written.

        One write unit for each item below 1 KB; the others contained their changes already. A
        change that the service calls invalid (the item was edited by hand) is quarantined before a
        later one moves the item's watermark past it. After an error all changes must come again.
        """
        written = 0
        for one in changes:
            windows = windows_id_of(total, one.setting.id)
            if windows is None:
                windows = self._named(counter, one)
            for item in one.items:
                written += self._write(counter, windows, item, one.setting)
        return written

    def _named(self, counter: str, changes: WindowChanges) -> str:
        """Give the windows of a total an id: the total was made by a repair, or edited by hand."""
        setting, first = changes.setting.id, changes.items[0].sequences()[0]
        clause = AssignOnce(windows_names(setting)[0], new_windows_id(setting, self.shard, first))
        condition = Compare("part", "=", keys.TOTAL)
        update = Update(self.table, keys.total_key(counter), (clause,), condition, "ALL_NEW")
        try:
            found = windows_id_of(self.dynamo.update(update) or {}, setting)
        except ConditionFailed:
            found = None
        if found is None:
            raise ServiceFailed(f"the total of counter {counter!r} was deleted meanwhile")
        return found

    def _write(
        self, counter: str, windows: str, changes: ItemChanges, setting: WindowSetting
    ) -> int:
        try:
            return self._apply(counter, windows, changes, setting)
        except RequestRejected as rejection:
            sequences = changes.sequences()
            if len(sequences) > 1:
                middle = sequences[len(sequences) // 2 - 1]
                first = self._write(counter, windows, changes.up_to(middle), setting)
                return first + self._write(counter, windows, changes.above(middle), setting)
            reason = f"windows {changes.item!r} of counter {counter!r}: {rejection}"
            self.quarantine(sequences[0], reason)
            return 0

    def _apply(
        self, counter: str, windows: str, changes: ItemChanges, setting: WindowSetting
    ) -> int:
        """Write the changes that the item does not contain yet; 0: it contains all."""
        key = keys.window_key(counter, windows, changes.item)

        def update_of(left: ItemChanges) -> Update:
            step = left.folded()
            if not amount.fits(step.delta):
                raise SumOverflow("the sum needs more than 38 digits")
            also = day_clauses(setting, counter, changes.item, Add("total", step.delta))
            return item_update_of(self.table, key, step, self.shard, self.now_ms, also)

        what = f"windows {changes.item!r} of counter {counter!r}"
        wrote, item = progress.write_above(self.dynamo, self.shard, changes, update_of, what=what)
        if wrote is None:
            return 0
        self.clean_up(key, item)
        return 1
