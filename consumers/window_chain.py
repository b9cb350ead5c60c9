"""What windows must add up to, and which of them differ from their entries. Pure.

minutes = hour, hours = day, days = what the total says is in windows; and where the entries are
still there (or archived), each cell = its entries. The ledger itself is compared with the total by
`verify`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.ledger import amount
from countledger.ledger.calendar import Per, Window, window_of
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.windows import EVENTS, SUM, cells_of, slots_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.entry import Entry
    from countledger.ledger.windows import WindowSetting

Worth: TypeAlias = "tuple[Amount, int]"
"""A sum and a number of events."""

_NOTHING: Final[Worth] = (0, 0)


@dataclass(frozen=True, slots=True)
class CountedWindows:
    """Windows of a counter, counted again from entries.

    Attributes:
        whole: of all entries of the setting.
        cells: by item, then by cell.
        expires_at: by item, when TTL may remove it, in seconds; None: never.
    """

    whole: Worth
    cells: Mapping[str, Mapping[str, Worth]]
    expires_at: Mapping[str, int | None]


def counted(setting: WindowSetting, entries: Iterable[Entry]) -> CountedWindows:
    """Count windows again."""
    whole = _NOTHING
    cells: defaultdict[str, defaultdict[str, Worth]] = defaultdict(
        lambda: defaultdict(lambda: _NOTHING)
    )
    expires: dict[str, int | None] = {}
    for entry in entries:
        if not setting.holds_at(entry.at_ms):
            continue
        worth = (entry.delta, entry.events)
        whole = _plus(whole, worth)
        for cell in cells_of(setting, entry.at_ms, entry.occurred_at_ms):
            expires[cell.item] = cell.expires_at
            cells[cell.item][cell.name] = _plus(cells[cell.item][cell.name], worth)
    return CountedWindows(whole, cells, expires)


def name_in(item: Item) -> str:
    """Which item of windows this is, as `Cell.item`."""
    return str(item["part"]).split("#", 2)[2]


def windows_id_in(item: Item) -> str:
    """The id of the windows that an item is of."""
    return str(item["part"]).split("#", 2)[1]


def cells_in(item: Item) -> dict[str, Worth]:
    """The cells of a stored item, whatever they hold."""
    names = {name[1:] for name in item if _is_cell(name)}
    return {name: (item.get(SUM + name, 0), item.get(EVENTS + name, 0)) for name in names}


def _is_cell(attribute: str) -> bool:
    return attribute[:1] in (SUM, EVENTS) and len(attribute) == 3 and attribute[1:].isdigit()  # noqa: PLR2004 - letter and digits


def is_expired(item: Item, now_ms: int) -> bool:
    """Whether an item counts as gone, although TTL has not removed it yet."""
    expires_at = item.get("expires_at")
    return isinstance(expires_at, int) and expires_at * SECOND_MS <= now_ms


def broken_links(
    setting: WindowSetting, items: Sequence[Item], windowed: Worth, now_ms: int
) -> Iterator[str]:
    """Where windows do not add up, each as text.

    Hours and minutes are compared while they are kept: later events count in their day alone.

    Args:
        setting: of the windows.
        items: all items of a counter's windows, those that are expired left out.
        windowed: what the total says is in windows.
        now_ms: the time, ms since the epoch.

    Raises:
        CorruptItem: an item cannot be read.
    """
    slots: dict[str, dict[Window, Worth]] = {kind: {} for kind in (Per.MONTH, Per.DAY, Per.HOUR)}
    for item in items:
        found = {slot.window: (slot.sum, slot.events) for slot in slots_of(setting, item)}
        slots[name_in(item).partition("#")[0]] |= found
        whole = (item.get("sum"), item.get("events"))
        if whole != _sum(found.values()):
            added = _shown(_sum(found.values()))
            yield f"{name_in(item)} says {_shown(whole)}, and its windows add up to {added}"
        if setting.ranked and "ranked" in item and item.get("total") != item.get("sum"):
            yield f"{name_in(item)} is ranked by {item.get('total')}, and its sum is {whole[0]}"
    days = _sum(slots[Per.MONTH].values())
    if days != windowed:
        yield f"days add up to {_shown(days)}, and the total counted {_shown(windowed)} in windows"
    if setting.has(Per.HOUR) or setting.ranked:
        yield from _compared(setting, slots[Per.DAY], slots[Per.MONTH], Per.DAY, now_ms)
    if setting.has(Per.MINUTE):
        yield from _compared(setting, slots[Per.HOUR], slots[Per.DAY], Per.HOUR, now_ms)


def _compared(
    setting: WindowSetting,
    fine: Mapping[Window, Worth],
    coarse: Mapping[Window, Worth],
    per: Per,
    now_ms: int,
) -> Iterator[str]:
    """Compare windows with the finer ones in them."""
    sums: defaultdict[Window, Worth] = defaultdict(lambda: _NOTHING)
    for window, worth in fine.items():
        larger = window_of(window.start_ms, per, setting.calendar)
        sums[larger] = _plus(sums[larger], worth)
    for window in sorted({*sums, *coarse}, key=lambda one: one.start_ms):
        day = window_of(window.start_ms, Per.DAY, setting.calendar)
        is_kept = day.end_ms + setting.keep_ms > now_ms + setting.skew_ms
        whole = coarse.get(window, _NOTHING)
        if is_kept and sums[window] != whole:
            finer = Per.MINUTE if per is Per.HOUR else Per.HOUR
            yield (
                f"{per} {window.name}: its {finer}s add up to {_shown(sums[window])}, and it is "
                f"{_shown(whole)}"
            )


def differences(
    found: CountedWindows, items: Sequence[Item], windowed: Worth, now_ms: int
) -> Iterator[str]:
    """Where windows differ from their entries, each as text."""
    if windowed != found.whole:
        yield f"the total counted {_shown(windowed)} in windows, of entries {_shown(found.whole)}"
    stored = {name_in(item): cells_in(item) for item in items}
    for name in sorted({*stored, *found.cells}):
        expires_at = found.expires_at.get(name)
        if expires_at is not None and expires_at * SECOND_MS <= now_ms:
            continue
        there, here = stored.get(name, {}), found.cells.get(name, {})
        for cell in sorted({*there, *here}):
            one, other = there.get(cell, _NOTHING), here.get(cell, _NOTHING)
            if one != other:
                yield f"{name}, cell {cell}: {_shown(one)}, and its entries {_shown(other)}"


def _plus(one: Worth, other: Worth) -> Worth:
    return amount.add(one[0], other[0]), one[1] + other[1]


def _sum(worths: Iterable[Worth]) -> Worth:
    whole = _NOTHING
    for worth in worths:
        whole = _plus(whole, worth)
    return whole


def _shown(worth: tuple[object, object]) -> str:
    return f"{worth[0]} of {worth[1]} event(s)"
