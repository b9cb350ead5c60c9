"""The grammar of values from outside, one for each kind: texts, amounts, times.

The library, the command line, files, HTTP, Kinesis and imports all read values here, so a text has
the same value, or the same refusal, wherever it comes in. What is returned is always of the plain
type: a subclass of an app (`class Scope(str, Enum)`) formats and compares in its own way, and goes
no further than this.

text      `check_text`: what identifies something and is compared by its bytes. Two texts that look
          alike must not be two: it is in Unicode NFC, without characters that cannot be seen and
          without blanks at its ends. Emoji sequences are allowed.
amount    `parse_amount`: ASCII digits, at most one point within them, at most one sign.
time      `parse_time`: ISO 8601 with an offset, or milliseconds since the epoch.
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from unicodedata import is_normalized, name, normalize

from countledger.ledger.amount import canonical, parse_delta
from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.errors import BadDelta, BadTime, shown

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.errors import BadInput

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Zero width, bidirectional controls, fillers, variation selectors and tags: what Unicode calls
# ignorable by default, and the marks of annotations.
INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_ELEMENT: Final = (
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff][\ufe0e\ufe0f]?[\U0001f3fb-\U0001f3ff]?"
)
# Emoji joined by zero width joiners, flags of regions, and keycaps.
_EMOJI: Final = re.compile(
    "\U0001f3f4[\U000e0020-\U000e007e]+\U000e007f"
    f"|[0-9#*]\ufe0f\u20e3|{_ELEMENT}(?:\u200d{_ELEMENT})*"
)
# A blank cell of Braille is no space to Python.
_BRAILLE_BLANK: Final = "\u2800"


def plain_text(text: str) -> str:
    """The text of a `str`, also of a class of an app's own."""
    return text if type(text) is str else str.__str__(text)


def plain_int(value: object) -> int | None:
    """The `int` of a whole number, also of a class of an app's own; None: it is none."""
    if type(value) is int:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__pos__(value)
    return None


def has_control_characters(text: str) -> bool:
    """Whether the text holds control characters, line separators or lone surrogates."""
    return CONTROL.search(text) is not None


def is_in_nfc(text: str) -> bool:
    """Whether the text is in Unicode NFC."""
    return is_normalized("NFC", text)


def has_blank_ends(text: str) -> bool:
    """Whether the first or the last character is a blank."""
    ends = text[:1], text[-1:]
    return ends[0].isspace() or ends[1].isspace() or _BRAILLE_BLANK in ends


def broken_rule(text: str, max_bytes: int) -> str | None:
    """Which rule of texts that identify something a text breaks; follows the text in a message."""
    if has_control_characters(text):
        return "holds control characters"
    if has_blank_ends(text):
        return f"begins or ends with a blank ({_code_point(_edge(text))}): take it away"
    if not text.isascii() and (broken := _unlike_what_is_seen(text)) is not None:
        return broken
    if (size := len(text.encode())) > max_bytes:
        return f"is {size} bytes long; at most {max_bytes} fit"
    return None


def _unlike_what_is_seen(text: str) -> str | None:
    if (found := INVISIBLE.search(_EMOJI.sub("", text))) is not None:
        return f"holds {_code_point(found[0])}, which cannot be seen: take it away"
    if is_in_nfc(text):
        return None
    pairs = zip(text, normalize("NFC", text) + "\0" * len(text), strict=False)
    at = next(number for number, (one, other) in enumerate(pairs) if one != other)
    # Of a letter and its accent the accent is what NFC takes away.
    if is_in_nfc(text[at]) and at + 1 < len(text):
        at += 1
    return (
        f"is not in Unicode NFC because of {_code_point(text[at])}, and would look like another "
        'text: use unicodedata.normalize("NFC", text)'
    )


def _edge(text: str) -> str:
    first = text[0]
    return first if first.isspace() or first == _BRAILLE_BLANK else text[-1]


def _code_point(char: str) -> str:
    return f"U+{ord(char):04X} {name(char, '')}".rstrip()


def check_text(what: str, value: object, max_bytes: int, error: type[BadInput]) -> str:
    """A text that identifies something, as a plain `str`.

    Args:
        what: names it in the message.
        value: as the caller gave it.
        max_bytes: how long it may be in UTF-8.
        error: of which class to raise.

    Raises:
        BadInput: of that class: it is no `str`, empty, too long, not in Unicode NFC, has blanks at
            its ends, or control characters or others that cannot be seen.
    """
    if not isinstance(value, str):
        raise error(f"{what} {shown(value)} is a {type(value).__name__}, not a str")
    text = plain_text(value)
    if not text:
        raise error(f"{what} is empty")
    if (broken := broken_rule(text, max_bytes)) is not None:
        raise error(f"{what} {shown(text, 80)} {broken}")
    return text


# The longest text of a number: as many digits as a sum of any size has, and zeros around them.
_AMOUNT_MAX_CHARACTERS: Final = 1_000
_AMOUNT: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_WITH_EXPONENT: Final = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]+")


def parse_amount(what: str, text: str, error: type[BadInput]) -> Amount:
    """An exact number from text such as `-5` or `12.50`: digits of ASCII, one point, one sign.

    Args:
        what: names it in the message.
        text: without blanks around it.
        error: of which class to raise.

    Raises:
        BadInput: of that class: the text is written otherwise.
    """
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
    """A delta from text such as `-5` or `12.50`.

    Raises:
        BadDelta: the text is no such number, zero, or has more than 20 digits before the decimal
            point or 9 after it.
    """
    return parse_delta(parse_amount("delta", text, BadDelta))


# What is smaller is a time in seconds, of our days, rather than one in milliseconds of 1973.
LEAST_MS: Final = 100_000_000_000
_MILLISECONDS: Final = re.compile(r"[+-]?[0-9]{1,18}")
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)"
    r"(?:[.,]([0-9]{1,9}))?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)


def parse_time(value: object) -> datetime:
    """A moment, in whole milliseconds, from ISO 8601 text with an offset or from milliseconds.

    Args:
        value: a text as `2030-01-31T12:00:00.123456789+02:00`, of which what is finer than a
            millisecond is cut off; or milliseconds since the epoch, as a text or an int.

    Raises:
        BadTime: it is neither, or a number so small that it must be seconds.
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
