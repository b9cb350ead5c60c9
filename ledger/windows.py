"""Windows: the sums of a counter for each minute, hour, day and month of business time. Pure.

Business time is an entry's `occurred_at`, or `at` where it has none. The setting of a namespace
says which windows its counters have. A setting never changes: switching on, each change and
switching off write a new one, or its end, at a time a little ahead. An entry belongs to the setting
that holds at the entry's own `at`, and in no window if there is none. The calendar is part of the
setting, so no two processes disagree about it, whatever `tzdata` each has.

    item      sort key                        a cell for each      kept
    month     w#<id>#month#2026-11            day (01 to 31)       for ever
    day       w#<id>#day#2026-11-22           hour (00, 01, ...)   `keep_ms` after the day
    hour      w#<id>#hour#...T13:30           minute (30 to 59)    the same

The id is of this counter's windows under this setting; the total names it. A counter that is
deleted and used again gets another total and another id, so it never meets the old windows.

Where days are ranked, the item of a day is in the index of its ranking. It is kept for that where
only days are counted, too, with one cell (00) for the whole day.

Hours are numbered within their day, which has 23 to 26 of them. Minutes are those of UTC, half an
hour in each item, so that an item stays below 1 KB. Two numbers of each cell are attributes of the
item, `s<cell>` (sum) and `n<cell>` (events), because a nested attribute cannot be created and added
to in one update.

**The window of an entry is a function of the entry and its setting alone**, never of a clock:
deliveries, repairs and regions agree. Business time that the setting does not accept counts at
`at`: before 1970, further ahead of `at` than clocks may differ, or longer ago than `max_lateness`.
What was created later than `keep_ms` after the end of its day counts in day and month alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, describe, optional, require, require_amount
from countledger.ledger.calendar import Per, Window, window_of, window_on, windows_in, zone_with
from countledger.ledger.clock import show_duration, to_datetime, to_ms
from countledger.ledger.errors import BadSetting, CorruptItem, shown
from countledger.ledger.limits import (
    DATE_LIMIT_MS,
    DAY_MS,
    HORIZON_MAX_MS,
    HORIZON_MIN_MS,
    HOUR_MS,
    MINUTE_MS,
    RANK_PARTITIONS_MAX,
    SECOND_MS,
    SIGNED_REQUEST_LIFE_MS,
    STREAM_RECORD_MAX_AGE_MS,
    WINDOWS_KEPT_MAX_MS,
    WINDOWS_KEPT_MIN_MS,
    WINDOWS_LATENESS_MAX_MS,
    late_write_ms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item


FINEST: Final = (Per.MINUTE, Per.HOUR, Per.DAY)
SUM: Final = "s"
EVENTS: Final = "n"

HALF_HOUR_MS: Final = HOUR_MS // 2
_PLACES_KEPT: Final = 4_096
# The calendar needs some days before and after.
LATEST_MS: Final = DATE_LIMIT_MS - 366 * DAY_MS


class Cell(NamedTuple):
    """One place where an entry adds its delta and its events.

    Attributes:
        item: which item beside the counter's total, as `keys.window_part` takes it.
        name: of the cell in the item: two digits.
        expires_at: when TTL may remove the item, in seconds; None: it is kept for ever.
    """

    item: str
    name: str
    expires_at: int | None


class _Place(NamedTuple):
    """The cells of a minute of business time."""

    month: tuple[Cell]
    all: tuple[Cell, ...]
    kept_until_ms: int


@dataclass(frozen=True, slots=True)
class WindowSetting:
    """Which windows the counters of a namespace have, for the entries of a period.

    Attributes:
        id: names the windows of a counter in its total; no other setting has it.
        finest: minute, hour or day; a finer setting has the windows of the coarser ones, too.
        rules: of the zone, as `calendar.rules_of` returns them from `rules_version`.
        keep_ms: for how long after their day minutes and hours are kept.
        max_lateness_ms: what happened longer before it was recorded counts when it was recorded;
            None: it counts when it happened, however long ago, and so no window is ever final.
        skew_ms: by how much clocks may differ.
        replication_ms: the longest time in which an entry reaches every region.
        from_ms: the first `at` of its entries.
        ended_ms: the first `at` that is not in the period any more; None: it has no end.
        ranked: over how many partitions the days of the counters are ranked; 0: they are not.
    """

    id: str
    finest: Per
    zone: str
    rules: bytes = field(repr=False)
    rules_version: str
    keep_ms: int
    max_lateness_ms: int | None
    horizon_ms: int
    skew_ms: int
    replication_ms: int
    from_ms: int
    ended_ms: int | None = None
    ranked: int = 0
    _places: dict[int, _Place] = field(
        default_factory=dict, init=False, repr=False, compare=False, hash=False
    )

    def __post_init__(self) -> None:
        if self.finest not in FINEST:
            raise BadSetting(
                f"windows by {shown(str(self.finest))} do not exist: give {', '.join(FINEST)}"
            )
        _check("keep", self.keep_ms, WINDOWS_KEPT_MIN_MS, WINDOWS_KEPT_MAX_MS)
        if self.max_lateness_ms is not None:
            _check("max lateness", self.max_lateness_ms, MINUTE_MS, WINDOWS_LATENESS_MAX_MS)
        _check("horizon", self.horizon_ms, HORIZON_MIN_MS, HORIZON_MAX_MS)
        if type(self.ranked) is not int or not 0 <= self.ranked <= RANK_PARTITIONS_MAX:
            raise BadSetting(
                f"a ranking of days has 1 to {RANK_PARTITIONS_MAX} partitions (0: no ranking), not "
                f"{shown(self.ranked)}"
            )
        if self.ended_ms is not None and self.ended_ms < self.from_ms:
            raise BadSetting(
                f"windows that begin at {to_datetime(self.from_ms).isoformat()} cannot end at "
                f"{to_datetime(self.ended_ms).isoformat()}"
            )

    @property
    def calendar(self) -> ZoneInfo:
        return zone_with(self.zone, self.rules)

    @property
    def late_entry_ms(self) -> int:
        """For how long after its `at` an entry may still become visible, in milliseconds."""
        return self.horizon_ms + self.replication_ms + self.skew_ms + SIGNED_REQUEST_LIFE_MS

    @property
    def late_write_ms(self) -> int:
        """For how long after its `at` an entry may still be added to a window."""
        return self.late_entry_ms + STREAM_RECORD_MAX_AGE_MS + late_write_ms(self.skew_ms)

    def has(self, per: Per) -> bool:
        """Whether there are windows of a kind: the finest one, and all coarser ones."""
        return per not in FINEST or FINEST.index(per) >= FINEST.index(self.finest)

    def holds_at(self, at_ms: int) -> bool:
        return self.from_ms <= at_ms and (self.ended_ms is None or at_ms < self.ended_ms)


def _check(what: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadSetting(f"{what} {shown(value)} is no whole number of milliseconds")
    if not least <= value <= most:
        raise BadSetting(
            f"{what} of windows {show_duration(value)} is out of range: give "
            f"{show_duration(least)} to {show_duration(most)}"
        )


def accepts(setting: WindowSetting, at_ms: int, occurred_at_ms: int) -> bool:
    """Whether an entry of that `at` counts when it happened, and not when it was recorded."""
    if not 0 <= occurred_at_ms <= at_ms + setting.skew_ms:
        return False
    latest = setting.max_lateness_ms
    return latest is None or occurred_at_ms >= at_ms - latest


def business_time_ms(setting: WindowSetting, at_ms: int, occurred_at_ms: int | None) -> int:
    """The time that decides about the windows of an entry: its business time, if it is accepted."""
    if occurred_at_ms is None or not accepts(setting, at_ms, occurred_at_ms):
        return at_ms
    return occurred_at_ms


def cells_of(
    setting: WindowSetting, at_ms: int, occurred_at_ms: int | None = None
) -> tuple[Cell, ...]:
    """The cells of an entry, the coarsest first: of its month, then day, then hour.

    The setting is the one that holds at the entry's `at`.
    """
    minute = business_time_ms(setting, at_ms, occurred_at_ms) // MINUTE_MS
    place = setting._places.get(minute)  # noqa: SLF001 - the setting's own cache
    if place is None:
        place = _place_of(setting, minute)
    return place.all if at_ms <= place.kept_until_ms else place.month


def item_name(setting: WindowSetting, kind: Per, at_ms: int) -> str:
    """The name of the item of a kind (month, day or hour) that holds a moment."""
    if kind is Per.HOUR:
        return f"{to_datetime(at_ms // HALF_HOUR_MS * HALF_HOUR_MS):%Y-%m-%dT%H:%M}"
    return window_of(at_ms, kind, setting.calendar).name


def _place_of(setting: WindowSetting, minute: int) -> _Place:
    at_ms, zone = min(minute * MINUTE_MS, LATEST_MS), setting.calendar
    day = window_of(at_ms, Per.DAY, zone)
    month = Cell(f"{Per.MONTH}#{day.name[:7]}", day.name[8:], None)
    fine: list[Cell] = []
    if setting.finest is not Per.DAY or setting.ranked:
        hour = 0
        if setting.finest is not Per.DAY:
            hour = sum(1 for _ in windows_in(day.start_ms, at_ms + 1, Per.HOUR, zone)) - 1
        item = f"{Per.DAY}#{day.name}"
        fine.append(Cell(item, f"{hour:02d}", _expires_at(setting, day)))
    if setting.finest is Per.MINUTE:
        item = f"{Per.HOUR}#{item_name(setting, Per.HOUR, at_ms)}"
        # In zones with a quarter of an hour, an item may belong to two days: it is kept as long as
        # the later one.
        end_ms = (at_ms // HALF_HOUR_MS + 1) * HALF_HOUR_MS
        last = window_of(end_ms - 1, Per.DAY, zone)
        fine.append(Cell(item, f"{at_ms // MINUTE_MS % 60:02d}", _expires_at(setting, last)))
    places = setting._places  # noqa: SLF001 - the setting's own cache
    if len(places) >= _PLACES_KEPT:
        places.clear()
    found = _Place((month,), (month, *fine), day.end_ms + setting.keep_ms)
    places[minute] = found
    return found


def _expires_at(setting: WindowSetting, day: Window) -> int:
    """In seconds: later than any write of an entry that counts in an hour or minute of the day."""
    return -(-(day.end_ms + setting.keep_ms + setting.late_write_ms) // SECOND_MS)


# The items of windows, and of their settings: what is stored, and how it is read. Pure.


_CELL: Final = re.compile(f"[{SUM}{EVENTS}][0-9]{{2}}")
_STORED: Final = tuple(one.name for one in fields(WindowSetting) if one.init)


class Slot(NamedTuple):
    """One window of an item, with what the item says about it."""

    window: Window
    sum: Amount
    events: int


def slots_of(setting: WindowSetting, item: Item) -> list[Slot]:
    """The windows in an item, in order; windows to which nothing was added are left out.

    A month item holds days, a day item hours, and an hour item minutes.
    """
    check_format(item)
    _, _, name = require(item, "part", str).removeprefix(keys.WINDOW_PREFIX).partition("#")
    try:
        windows = windows_of_item(setting, name)
    except CorruptItem as error:
        raise CorruptItem(f"{describe(item)}: {error}", item) from error
    found: list[Slot] = []
    for cell, window in windows.items():
        if EVENTS + cell in item or SUM + cell in item:
            events = require(item, EVENTS + cell, int)
            found.append(Slot(window, require_amount(item, SUM + cell), events))
    unknown = {name for name in item if _CELL.fullmatch(name) and name[1:] not in windows}
    if unknown:
        raise CorruptItem(f"{describe(item)}: {min(unknown)!r} is no window of it", item)
    return found


def windows_of_item(setting: WindowSetting, item: str) -> dict[str, Window]:
    """The windows that an item (`Cell.item`) can hold, by the names of their cells."""
    zone = setting.calendar
    kind, _, name = item.partition("#")
    try:
        match kind:
            case Per.MONTH:
                first = date.fromisoformat(f"{name}-01")
                month = window_on(first, Per.MONTH, zone)
                days = windows_in(month.start_ms, month.end_ms, Per.DAY, zone)
                return {day.name[8:]: day for day in days}
            case Per.DAY:
                day = window_on(date.fromisoformat(name), Per.DAY, zone)
                hours = windows_in(day.start_ms, day.end_ms, Per.HOUR, zone)
                return {f"{number:02d}": hour for number, hour in enumerate(hours)}
            case Per.HOUR:
                start_ms = to_ms(datetime.fromisoformat(f"{name}+00:00"))
                minutes = windows_in(start_ms, start_ms + HALF_HOUR_MS, Per.MINUTE, zone)
                return {one.name[14:16]: one for one in minutes}
            case _:
                pass
    except ValueError:
        pass
    raise CorruptItem(f"{shown(item)} is no item of windows")


def encode_settings(namespace: str, settings: Sequence[WindowSetting]) -> Item:
    """The item of all settings of a namespace, the oldest first."""
    return {
        **keys.windows_key(namespace),
        "settings": [
            {name: value for name in _STORED if (value := getattr(setting, name)) is not None}
            | {"finest": str(setting.finest)}
            for setting in settings
        ],
    }


def decode_settings(item: Item | None) -> tuple[WindowSetting, ...]:
    """The settings in an item, the oldest first; none without an item."""
    if item is None:
        return ()
    check_format(item)
    return tuple(_decode_setting(item, one) for one in require(item, "settings", list))


def _decode_setting(item: Item, one: object) -> WindowSetting:
    if not isinstance(one, dict):
        raise CorruptItem(f"{describe(item)}: a setting is {shown(one)}, not a map", item)
    try:
        setting = WindowSetting(
            id=require(one, "id", str),
            finest=Per(require(one, "finest", str)),
            zone=require(one, "zone", str),
            rules=require(one, "rules", bytes),
            rules_version=require(one, "rules_version", str),
            keep_ms=require(one, "keep_ms", int),
            max_lateness_ms=optional(one, "max_lateness_ms", int),
            horizon_ms=require(one, "horizon_ms", int),
            skew_ms=require(one, "skew_ms", int),
            replication_ms=require(one, "replication_ms", int),
            from_ms=require(one, "from_ms", int),
            ended_ms=optional(one, "ended_ms", int),
            ranked=require(one, "ranked", int),
        )
        zone_with(setting.zone, setting.rules)
    except CorruptItem as error:
        raise CorruptItem(f"{describe(item)}: {error}", item) from error
    except ValueError as error:
        raise CorruptItem(f"{describe(item)}: a setting cannot be read: {error}", item) from error
    return setting
