"""The grammar of amounts, times and durations that come as texts; `texts` has that of names.

The library, the command line, files, HTTP, Kinesis and imports all read values here, so a text has
the same value, or the same refusal, at each of them.

amount    `parse_amount`: ASCII digits, at most one point within them, at most one sign.
time      `parse_time`: ISO 8601 with an offset, or milliseconds since the epoch.
duration  `parse_duration_ms`: a whole number with its unit.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from countledger.ledger.amount import canonical, parse_delta
from countledger.ledger.clock import show_duration, to_datetime, to_ms
from countledger.ledger.errors import BadDelta, BadSetting, BadTime, shown
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.ledger.texts import plain_text

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.errors import BadInput

# The longest text of a number: as many digits as a sum of any size has, and zeros around them.
_AMOUNT_MAX_CHARACTERS: Final = 1_000
_AMOUNT: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_WITH_EXPONENT: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]+")


def parse_amount(what: str, text: str, error: type[BadInput]) -> Amount:
    """An exact number from text such as `-5` or `12.50`: digits of ASCII, one point, one sign."""
    if len(text) <= _AMOUNT_MAX_CHARACTERS and _AMOUNT.fullmatch(text):
        return canonical(Decimal(text))
    if _WITH_EXPONENT.fullmatch(text):
        raise error(
            f"{what} {shown(text)} has an exponent: a spreadsheet may have rounded the number; "
            "write all of its digits"
        )
    raise error(
        f"{what} {shown(text)} is not a decimal number: write digits, at most one point within "
        "them, and at most one sign before them"
    )


def parse_delta_text(text: str) -> Amount:
    return parse_delta(parse_amount("delta", text, BadDelta))


# What is smaller is a time in seconds, of our days, rather than one in milliseconds of 1973.
LEAST_MS: Final = 100_000_000_000
_MILLISECONDS: Final = re.compile(r"[+-]?[0-9]{1,18}")
# What `parse_time` reads, as a pattern for the schema of a document.
TIME_PATTERN: Final = (
    r"(?:[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"[Tt ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]{1,9})?)?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"
    r"|[+-]?[0-9]{1,18})"
)
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)"
    r"(?:[.,]([0-9]{1,9}))?([Zz]|[+-][0-9]{2}(?::?[0-5][0-9])?)?"
)


def parse_time(value: object) -> datetime:
    """A moment from ISO 8601 text with an offset, or milliseconds since the epoch; else BadTime.

    What is finer than a millisecond is cut off. A number so small that it must be seconds is
    refused.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return _from_ms(value)
    if isinstance(value, str):
        text = plain_text(value)
        if _MILLISECONDS.fullmatch(text):
            return _from_ms(int(text))
        if (found := _TIME.fullmatch(text)) is not None:
            return _from_iso(text, found)
    raise _refused(value)


def _from_iso(text: str, found: re.Match[str]) -> datetime:
    day, time, fraction, offset = found.groups()
    if offset is None:
        raise BadTime(f"time {text!r} has no offset: append Z for UTC, or +02:00")
    if fraction and time.count(":") == 1:
        raise _refused(text)
    milliseconds = f"{fraction or ''}000"[:3]
    seconds = time if time.count(":") > 1 else f"{time}:00"
    try:
        moment = datetime.fromisoformat(f"{day}T{seconds}.{milliseconds}{offset.upper()}")
    except ValueError:
        raise _refused(text) from None
    return to_datetime(to_ms(moment))


def _refused(value: object) -> BadTime:
    return BadTime(
        f"time {str(value)[:40]!r} is neither ISO 8601 with an offset, as in 2030-01-31T12:00:00Z, "
        "nor milliseconds since the epoch"
    )


def _from_ms(at_ms: int) -> datetime:
    if abs(at_ms) < LEAST_MS:
        raise BadTime(
            f"time {at_ms} looks like seconds; give milliseconds since the epoch, or (for a time "
            "before 1973) ISO 8601"
        )
    return to_datetime(at_ms)


_UNITS_MS: Final = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
# Added to a time, or waited for, more would be outside of what Python can represent.
_DURATION_MAX_MS: Final = 36_525 * DAY_MS
_DURATION: Final = re.compile(r"(\d{1,15})\s*(ms|s|m|h|d)", re.ASCII)


def parse_duration_ms(text: str) -> int:
    """A duration such as `24h`, `90m`, `7d`, `30s` or `1500ms`."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise BadSetting(
            f"duration {text!r} is not a whole number with a unit: give 90m, 24h or 7d"
        )
    duration_ms = int(match[1]) * _UNITS_MS[match[2]]
    if duration_ms > _DURATION_MAX_MS:
        raise BadSetting(f"duration {text!r} is longer than {show_duration(_DURATION_MAX_MS)}")
    return duration_ms
