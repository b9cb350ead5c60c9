"""Time is handed in: one clock for the product, another for tests and simulations."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from countledger.ledger.errors import BadTime, shown

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """What the code asks of time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Return after that many milliseconds."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def sleep_ms(self, duration_ms: float) -> None:
        """Return after that many milliseconds."""
        time.sleep(duration_ms / 1_000)


def to_ms(moment: object) -> int:
    """Milliseconds since the epoch of an aware datetime.

    Raises:
        BadTime: it is no datetime, names no point in time because it has no offset, or lies
            outside the years 1 to 9999 of UTC.
    """
    if not isinstance(moment, datetime):
        raise BadTime(f"time {shown(moment)} is a {type(moment).__name__}, not a datetime")
    if moment.utcoffset() is None:
        raise BadTime(f"time {moment.isoformat()} has no offset: give an aware datetime, as in UTC")
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise BadTime(f"time {moment.isoformat()} lies outside the years 1 to 9999") from None
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def to_datetime(at_ms: int) -> datetime:
    """The moment, in UTC.

    Raises:
        BadTime: it lies outside the years 1 to 9999.
    """
    try:
        return _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        raise BadTime(f"time {shown(at_ms)} ms lies outside the years 1 to 9999") from None


def show_duration(duration_ms: int) -> str:
    """A duration for a person, exactly: `24 h`, `90 s`, `1500 ms`."""
    for unit_ms, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if duration_ms and duration_ms % unit_ms == 0:
            return f"{duration_ms // unit_ms} {unit}"
    return f"{duration_ms} ms"
