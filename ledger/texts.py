"""The grammar of texts that identify something: names, keys, claims.

Such texts are compared by their bytes, and two that look alike must not be two: they are in Unicode
NFC, without characters that cannot be seen and without blanks at their ends. Emoji sequences are
allowed. What is returned is of the plain type: a subclass of an app (`class Scope(str, Enum)`)
formats and compares in its own way, and goes no further than this.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from unicodedata import is_normalized, name, normalize

from countledger.ledger.errors import shown

if TYPE_CHECKING:
    from countledger.ledger.errors import BadInput

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Zero width, bidirectional controls, fillers, variation selectors and tags: what Unicode calls
# ignorable by default, and the marks of annotations. U+200C and U+200D are refused although words
# of some scripts have them: a name with them often looks like the one without.
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
    return is_normalized("NFC", text)


def has_blank_ends(text: str) -> bool:
    ends = text[:1], text[-1:]
    return ends[0].isspace() or ends[1].isspace() or _BRAILLE_BLANK in ends


def broken_rule(text: str, max_bytes: int, *, more_follows: bool = False) -> str | None:
    """Which rule of texts that identify something a text breaks; follows it in a message.

    It is given as `plain_text`. `more_follows`: it is only the beginning of such a text, so a blank
    may be at its end.
    """
    if has_control_characters(text):
        return "holds control characters"
    if has_blank_ends(f"{text}." if more_follows else text):
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
    """A text that identifies something, as a plain `str`; raises `error` if it breaks a rule."""
    if not isinstance(value, str):
        raise error(f"{what} {shown(value)} is a {type(value).__name__}, not a str")
    text = plain_text(value)
    if not text:
        raise error(f"{what} is empty")
    if (broken := broken_rule(text, max_bytes)) is not None:
        raise error(f"{what} {shown(text, 80)} {broken}")
    return text
