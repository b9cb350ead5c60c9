"""The calendar of windows and quotas: minutes, hours, days and months of a time zone. Pure.

A window is an interval of real time with a name. Every moment belongs to exactly one window of each
kind:

- a minute is a minute of UTC;
- an hour begins when the clocks of the zone show a full hour, also in zones that differ from UTC by
  half an hour; where the clocks change, an hour ends (zones that move by 30 minutes have one short
  hour then);
- a day begins when the clocks first show its midnight, or jump over it; it has 23 or 25 hours where
  the clocks change;
- a month begins with its first day.

The rules of the zones are those of the package `tzdata`, whose version is that of the installation,
and never those of the operating system: all processes must agree on where a day ends. What must
not change with an installation stores its rules (`rules_of`), and reads them from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from importlib.resources import files
from io import BytesIO
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import tzdata

from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadSetting, shown
from countledger.ledger.limits import HOUR_MS, MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DAY: Final = timedelta(days=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class Per(StrEnum):
    """For which time a limit is given."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Window:
    """One minute, hour, day or month; `end_ms` is the first millisecond of the next one.

    The name, as `2026-11-22`, is unique among the windows of its kind and time zone.
    """

    name: str
    start_ms: int
    end_ms: int


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo:
    """A time zone with the rules of the installed `tzdata`; BadSetting if no zone has that name."""
    return zone_with(name, rules_of(name))


@lru_cache(maxsize=256)
def zone_with(name: str, rules: bytes) -> ZoneInfo:
    """A time zone with these rules; ValueError if they are not in the format of `rules_of`."""
    return ZoneInfo.from_file(BytesIO(rules), key=name)


def rules_of(name: str) -> bytes:
    """The rules of a time zone in the installed `tzdata`: TZif of up to 3 KB; else BadSetting."""
    if name not in _names():
        raise BadSetting(
            f"time zone {shown(name)} is not in the IANA database: give a name such as "
            "Europe/Berlin or UTC"
        )
    return files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def rules_version() -> str:
    """The version of the installed rules, as `2026b`."""
    return str(tzdata.IANA_VERSION)


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split())


@lru_cache(maxsize=1_024)
def _known(zone: ZoneInfo, per: Per, minute: int) -> Window:
    """As `window_of`. Every window is made of whole minutes, also where a zone's offset was not."""
    found = _OF[per](minute * MINUTE_MS, zone)
    return Window(found.name, _whole_minute(found.start_ms), _whole_minute(found.end_ms))


def window_of(at_ms: int, per: Per, zone: ZoneInfo) -> Window:
    """The window that a moment of the years 2 to 9998 belongs to."""
    return _known(zone, per, at_ms // MINUTE_MS)


def window_on(day: date, per: Per, zone: ZoneInfo) -> Window:
    """The day of that date, or the month that it is in.

    ValueError if the zone left out the date, or it is in the first or the last year of dates.
    """
    if not MINYEAR < day.year < MAXYEAR:
        raise ValueError(f"{day.isoformat()} is outside the years {MINYEAR + 1} to {MAXYEAR - 1}")
    found = window_of(_begin_ms(day, zone), per, zone)
    if not day.isoformat().startswith(found.name):
        raise ValueError(f"{day.isoformat()} is no day in time zone {zone.key}")
    return found


def windows_in(start_ms: int, end_ms: int, per: Per, zone: ZoneInfo) -> Iterator[Window]:
    """The windows that have a moment in common with an interval, in order."""
    while start_ms < end_ms:
        window = window_of(start_ms, per, zone)
        yield window
        start_ms = window.end_ms


def _whole_minute(at_ms: int) -> int:
    return -(-at_ms // MINUTE_MS) * MINUTE_MS


def _minute(at_ms: int, _zone: ZoneInfo) -> Window:
    start_ms = at_ms // MINUTE_MS * MINUTE_MS
    return Window(f"{to_datetime(start_ms):%Y-%m-%dT%H:%MZ}", start_ms, start_ms + MINUTE_MS)


def _hour(at_ms: int, zone: ZoneInfo) -> Window:
    offset_ms = _offset_ms(at_ms, zone)
    start_ms = (at_ms + offset_ms) // HOUR_MS * HOUR_MS - offset_ms
    end_ms = start_ms + HOUR_MS
    if _offset_ms(start_ms, zone) != offset_ms:
        start_ms = _first(start_ms, at_ms, lambda ms: _offset_ms(ms, zone) == offset_ms)
    if _offset_ms(end_ms - 1, zone) != offset_ms:
        end_ms = _first(at_ms, end_ms, lambda ms: _offset_ms(ms, zone) != offset_ms)
    minutes = abs(offset_ms) // MINUTE_MS
    sign = "-" if offset_ms < 0 else "+"
    shown_offset = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}"
    local = to_datetime(at_ms).astimezone(zone)
    return Window(f"{local:%Y-%m-%dT%H}{shown_offset}", start_ms, end_ms)


def _day(at_ms: int, zone: ZoneInfo) -> Window:
    day = to_datetime(at_ms).astimezone(zone).date()
    # Where clocks go back over midnight, the first midnight counts.
    while _begin_ms(day, zone) > at_ms:
        day -= _DAY
    while _begin_ms(day + _DAY, zone) <= at_ms:
        day += _DAY
    return Window(day.isoformat(), _begin_ms(day, zone), _begin_ms(day + _DAY, zone))


def _month(at_ms: int, zone: ZoneInfo) -> Window:
    day = date.fromisoformat(_day(at_ms, zone).name).replace(day=1)
    after = (day + 31 * _DAY).replace(day=1)
    return Window(f"{day:%Y-%m}", _begin_ms(day, zone), _begin_ms(after, zone))


_OF: Final[dict[Per, Callable[[int, ZoneInfo], Window]]] = {
    Per.MINUTE: _minute,
    Per.HOUR: _hour,
    Per.DAY: _day,
    Per.MONTH: _month,
}


def _begin_ms(day: date, zone: ZoneInfo) -> int:
    """When a day begins. In a gap, the earlier offset gives the moment of the change itself."""
    return (datetime(day.year, day.month, day.day, tzinfo=zone) - _EPOCH) // _MS


def _offset_ms(at_ms: int, zone: ZoneInfo) -> int:
    return (to_datetime(at_ms).astimezone(zone).utcoffset() or timedelta(0)) // _MS


def _first(before_ms: int, after_ms: int, holds: Callable[[int], bool]) -> int:
    """The first millisecond at which something holds: not at the former, from then on."""
    while after_ms - before_ms > 1:
        middle_ms = (before_ms + after_ms) // 2
        if holds(middle_ms):
            after_ms = middle_ms
        else:
            before_ms = middle_ms
    return after_ms
