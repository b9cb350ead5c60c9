"""What changes of one counter add to its windows. Pure.

The cells of a change follow from its entry and the namespace's setting, never from a clock. So a
change that is delivered again, or written in another region, adds to the same cells.

INSERT    adds to the cells of the entry
MODIFY    takes the old image from its cells and adds the new image to its own
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from countledger.consumers.record import worth_of
from countledger.ledger import amount
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.windows import accepts, cells_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from countledger.consumers.total_writer import CounterChanges, Row
    from countledger.ledger.amount import Amount
    from countledger.ledger.windows import Cell, WindowSetting

# Sequence number (also as the stream's text), delta, events: a `Row` begins with them.
_Worth: TypeAlias = "tuple[str | int, Amount, int] | Sequence[Any]"
# The changes that add to the same cells.
_Group: TypeAlias = "tuple[tuple[Cell, ...], Sequence[_Worth]]"


class CellPart:
    """Changes that add to the same cells.

    Attributes:
        worths: sequence number, delta and events of each, in order.
        first: the lowest sequence number.
        last: the highest.
        delta, events: what they add together.
    """

    __slots__ = ("delta", "events", "first", "last", "worths")

    def __init__(self, worths: Sequence[_Worth]) -> None:
        """Of these (at least one)."""
        self.worths = worths
        self.first, self.last = int(worths[0][0]), int(worths[-1][0])
        self.delta: Amount = amount.total_of([one[1] for one in worths])
        self.events: int = sum([one[2] for one in worths])

    def above(self, sequence: int) -> CellPart | None:
        """The changes after a sequence number; None: there are none."""
        if self.first > sequence:
            return self
        left = [one for one in self.worths if int(one[0]) > sequence]
        return CellPart(left) if left else None

    def up_to(self, sequence: int) -> CellPart | None:
        """The changes up to a sequence number; None: there are none."""
        left = [one for one in self.worths if int(one[0]) <= sequence]
        return CellPart(left) if left else None


class FoldedItem(NamedTuple):
    """All that changes add to one item of windows.

    Attributes:
        first: the lowest sequence number in it.
        last: the highest.
        delta, events: what it adds in all cells.
        cells: delta and events for each cell, by number.
        expires_at: from when on TTL may remove the item, in seconds; None: never.
    """

    first: int
    last: int
    delta: Amount
    events: int
    cells: Mapping[str, tuple[Amount, int]]
    expires_at: int | None


class ItemChanges(NamedTuple):
    """Changes of one counter to one item of its windows.

    Attributes:
        item: the item, as its key names it.
        expires_at: from when on TTL may remove the item, in seconds; None: never.
        parts: the changes, with the number of their cell.
    """

    item: str
    expires_at: int | None
    parts: Sequence[tuple[str, CellPart]]

    def above(self, sequence: int | None) -> ItemChanges:
        """The changes above a watermark, which the item does not contain yet."""
        if sequence is None:
            return self
        return self._of((number, part.above(sequence)) for number, part in self.parts)

    def up_to(self, sequence: int) -> ItemChanges:
        """The changes up to a sequence number."""
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
    """What changes of one counter add to the windows of one setting.

    Attributes:
        setting: of the namespace.
        delta, events: what they add in all windows; months add up to it.
        refused: how many of them count when they were recorded, because the setting does not accept
            their own time.
        items: the changes of each item, the coarse ones first.
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
