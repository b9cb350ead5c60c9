"""Time is a parameter: one clock for the product, another for tests and simulations; and waits."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from countledger.ledger.errors import BadTime, shown
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.ledger.suspension import sleep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_LAST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
# The least and the most of a unit that are shown in that unit alone.
_WHOLE: Final = (
    (DAY_MS, "d", 2, inf),
    (HOUR_MS, "h", 1, 99),
    (MINUTE_MS, "min", 1, 99),
    (SECOND_MS, "s", 1, 999),
    (1, "ms", 0, 99_999),
)
_PAIRS: Final = (
    (DAY_MS, "d", HOUR_MS, "h"),
    (HOUR_MS, "h", MINUTE_MS, "min"),
    (MINUTE_MS, "min", SECOND_MS, "s"),
)
# With more of the larger unit than this, a reader would want the next one.
_PAIR_MOST: Final = 100
_POLL_MS: Final = 100
_POLL_GROWTH: Final = 2

_T = TypeVar("_T")


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def sleep_ms(self, duration_ms: float) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep_ms(self, duration_ms: float) -> None:
        sleep(duration_ms / 1_000)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with full jitter: `base_ms` caps the first wait, `cap_ms` every one."""

    attempts: int = 8
    base_ms: float = 50
    cap_ms: float = 5_000

    def waits_ms(self, random: Random) -> Iterator[float]:
        """The wait before each attempt but the first, drawn evenly from zero to its ceiling."""
        for attempt in range(self.attempts - 1):
            yield random.uniform(0, min(self.cap_ms, self.base_ms * 2**attempt))

    def tries(self, clock: Clock, random: Random) -> Iterator[None]:
        """Once for each attempt, when it is its turn: the first at once, the others after waits."""
        yield
        for wait_ms in self.waits_ms(random):
            clock.sleep_ms(wait_ms)
            yield


def to_ms(moment: object) -> int:
    """Milliseconds since the epoch of an aware datetime of the years 1 to 9999; else BadTime."""
    if not isinstance(moment, datetime):
        raise BadTime(f"time {shown(moment)} is a {type(moment).__name__}, not a datetime")
    try:
        offset = moment.utcoffset()
    except Exception:  # noqa: BLE001 - a class of an app's own, as that of `pandas.NaT`
        raise BadTime(f"time {shown(moment)} is no point in time") from None
    if offset is None:
        raise BadTime(f"time {shown(moment)} has no offset: give an aware datetime, as in UTC")
    # Subclasses of `datetime` and `timedelta` calculate in ways of their own.
    local = datetime(
        moment.year,
        moment.month,
        moment.day,
        moment.hour,
        moment.minute,
        moment.second,
        moment.microsecond,
        UTC,
    )
    shift = timedelta(offset.days, offset.seconds, offset.microseconds)
    at_ms = (local - _EPOCH - shift) // timedelta(milliseconds=1)
    if not _FIRST_MS <= at_ms <= _LAST_MS:
        raise BadTime(f"time {shown(moment)} is outside the years 1 to 9999")
    return at_ms


def to_datetime(at_ms: int) -> datetime:
    """The moment, in UTC; BadTime if it is outside the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        raise BadTime(f"time {shown(at_ms)} ms is outside the years 1 to 9999") from None


def show_duration(duration_ms: int) -> str:
    """A duration for a person: `24 h`, `7 d`, `1500 ms`, `9455 d 9 h`, `about 3 h 12 min`.

    Exact where a few digits of one unit, or two units next to each other, can say it; what is said
    with `about` is rounded to the smaller of two units.
    """
    sign, length_ms = ("-" if duration_ms < 0 else ""), abs(duration_ms)
    for unit_ms, unit, least, most in _WHOLE:
        count, rest = divmod(length_ms, unit_ms)
        if rest == 0 and least <= count <= most:
            return f"{sign}{count} {unit}"
    pairs = [pair for pair in _PAIRS if length_ms >= pair[0]]
    exact = [p for p in pairs if length_ms % p[2] == 0 and length_ms < _PAIR_MOST * p[0]]
    large_ms, large, small_ms, small = (exact or pairs)[0]
    rounded_ms = (length_ms + small_ms // 2) // small_ms * small_ms
    first, rest = divmod(rounded_ms, large_ms)
    about = "" if rounded_ms == length_ms else "about "
    second = f" {rest // small_ms} {small}" if rest else ""
    return f"{about}{sign}{first} {large}{second}"


def polled(
    clock: Clock, patience_ms: int, missing: Callable[[], _T | None], ends: Callable[[_T], bool]
) -> _T | None:
    """Ask until nothing is missing; what is missing when the patience is over, or if it ends it."""
    until_ms, wait_ms = clock.now_ms() + patience_ms, _POLL_MS
    while True:
        found = missing()
        if found is None or ends(found) or clock.now_ms() + wait_ms > until_ms:
            return found
        clock.sleep_ms(wait_ms)
        wait_ms *= _POLL_GROWTH
