"""The items of windows, and of their settings: what is stored, and how it is read. Pure."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import date, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.ledger import keys
from countledger.ledger.attributes import (
    check_format,
    describe,
    optional,
    require,
    require_amount,
)
from countledger.ledger.calendar import Per, Window, window_on, windows_in, zone_with
from countledger.ledger.clock import to_ms
from countledger.ledger.errors import CorruptItem, shown
from countledger.ledger.windows import EVENTS, HALF_HOUR_MS, SUM, WindowSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item

_CELL: Final = re.compile(f"[{SUM}{EVENTS}][0-9]{{2}}")
_STORED: Final = tuple(one.name for one in fields(WindowSetting) if one.init)


class Slot(NamedTuple):
    """One window of an item, with what the item says about it.

    Attributes:
        window: its name, start and end.
        sum: of the deltas in it.
        events: how many events they carried.
    """

    window: Window
    sum: Amount
    events: int


def slots_of(setting: WindowSetting, item: Item) -> list[Slot]:
    """The windows in an item, in order; windows to which nothing was added are left out.

    A month item holds days, a day item hours, and an hour item minutes.

    Raises:
        CorruptItem: an attribute or the key cannot be read.
        NewerFormat: a later release wrote it.
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
    """The windows that an item can hold, by the names of their cells.

    Raises:
        CorruptItem: no item has that name (`Cell.item`).
    """
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


def encode_settings(namespace: str, settings: Sequence[WindowSetting], revision: str = "0") -> Item:
    """The item of all settings of a namespace, the oldest first; `revision` names this state."""
    return {
        **keys.windows_key(namespace),
        "revision": revision,
        "settings": [
            {name: value for name in _STORED if (value := getattr(setting, name)) is not None}
            | {"finest": str(setting.finest)}
            for setting in settings
        ],
    }


def decode_settings(item: Item | None) -> tuple[WindowSetting, ...]:
    """The settings in an item, the oldest first; none without an item.

    Raises:
        CorruptItem: an attribute is absent, of another type, or breaks its rule.
        NewerFormat: a later release wrote it.
    """
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
            ranked=optional(one, "ranked", int) or 0,
        )
        zone_with(setting.zone, setting.rules)
    except CorruptItem as error:
        raise CorruptItem(f"{describe(item)}: {error}", item) from error
    except ValueError as error:
        raise CorruptItem(f"{describe(item)}: a setting cannot be read: {error}", item) from error
    return setting
