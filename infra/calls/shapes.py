"""The types of which requests and answers consist: exact amounts, names, times.

An amount is a text of decimal digits, never a number of JSON: many parsers read those as floats. A
type's JSON schema and its check are written next to each other; the check is the library's own.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core.core_schema import no_info_plain_validator_function

from countledger.ledger import keys, values
from countledger.ledger.amount import Amount, check_exact, to_text
from countledger.ledger.errors import BadDelta, BadInput, shown
from countledger.ledger.ids import check_key
from countledger.ledger.limits import (
    AMOUNT_MAX_DECIMALS,
    AMOUNT_MAX_DIGITS,
    COUNTER_NAME_MAX_BYTES,
    KEY_MAX_BYTES,
    NAMESPACE_MAX_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_core import CoreSchema


# Pages of a list: how many items, and an opaque text from which the next page begins.


PAGE_MAX: Final = 1_000
PAGE_DEFAULT: Final = 100
_CURSOR_MAX: Final = 6_000


class BadCursor(BadInput):
    """A cursor is of no page of this list."""


def _only_digits(value: object) -> object:
    if isinstance(value, str) and not (value.isascii() and value.isdecimal()):
        raise ValueError(f"{value[:60]!r} is no whole number in decimal digits")
    return value


# A number in a query; pydantic alone takes 1.0, too.
PLAIN_INTEGER: Final = BeforeValidator(_only_digits)
Limit = Annotated[
    int, Query(ge=1, le=PAGE_MAX, description="the largest number of items"), PLAIN_INTEGER
]
Cursor = Annotated[
    str | None,
    Query(
        max_length=_CURSOR_MAX,
        description="`next` of the page before; what it contains may change between releases",
    ),
]


def to_cursor(*position: str | int) -> str:
    """A text that a client sends back as it is."""
    text = json.dumps(position, separators=(",", ":"), ensure_ascii=False)
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def from_cursor(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """The position in a cursor, of these types; None: the first page."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        found = json.loads(urlsafe_b64decode(padded.encode("ascii")).decode())
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or [*map(type, found)] != [*kinds]:
        raise BadCursor(f"cursor {cursor[:60]!r} is of no page of this list: begin without one")
    return tuple(found)


# No `#`, no control characters; with a colon, text on both sides of it.
_CHARACTER: Final = r"[^#\u0000-\u001f\u007f-\u009f\u2028\u2029]"
_OF_NAMESPACE: Final = _CHARACTER.replace("^", "^:")
_IN_PATH: Final = r"[^#/?\u0000-\u001f\u007f-\u009f\u2028\u2029]"
_OF_NAMESPACE_IN_PATH: Final = _IN_PATH.replace("^", "^:", 1)
COUNTER_PATTERN: Final = f"^{_OF_NAMESPACE}+(?::{_CHARACTER}+)?$"
_CHARACTER_OF_KEY: Final = _CHARACTER.replace("#", "", 1)
# A segment of dots alone is removed on the way, by clients and by proxies.
PATH_PATTERN: Final = rf"^(?!\.{{1,2}}$){_OF_NAMESPACE_IN_PATH}+(?::{_IN_PATH}+)?$"
_DIGITS: Final = rf"0*[0-9]{{1,{AMOUNT_MAX_DIGITS}}}(?:\.[0-9]{{1,{AMOUNT_MAX_DECIMALS}}}0*)?"


class InputBody(BaseModel):
    """A part of a request: strict, and without unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _is_object(cls, value: object) -> object:
        """FastAPI lets pydantic read attributes of any other value, and use defaults for all."""
        if not isinstance(value, dict | cls):
            raise ValueError("give an object of JSON")  # noqa: TRY004 - pydantic's
        return value


class AnswerBody(BaseModel):
    """A part of an answer, made of the attributes of a result."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


def parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is no text of JSON: write it in quotes")  # noqa: TRY004
    return value


def parse_time(value: object) -> datetime:
    """A time, as everywhere: of ISO 8601 with its offset, or a text of milliseconds."""
    return values.parse_time(parse_text(value))


def show_time(value: object) -> object:
    """A time in UTC, in milliseconds, as in RFC 3339."""
    if not isinstance(value, datetime):
        return value
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _show_amount(value: object) -> object:
    return to_text(value) if isinstance(value, int | Decimal) else value


def from_path(segment: str) -> str:
    """The name in a segment of a path; `to_path` writes it.

    Dots alone are refused, since proxies and clients remove them, and so is a question mark: API
    Gateway cuts a path there, so the same request would mean another name on AWS.
    """
    if segment in {".", ".."}:
        raise ValueError("a path cannot name a counter of dots alone")
    if "?" in segment:
        raise ValueError("a path has a question mark in a name: write ~2 for it")
    return segment.replace("~1", "/").replace("~2", "?").replace("~3", "%").replace("~0", "~")


def to_path(name: str) -> str:
    """A name as a segment of a path, before percent-encoding."""
    return name.replace("~", "~0").replace("/", "~1").replace("?", "~2").replace("%", "~3")


class Text:
    """The type of a text: a pattern, and a check of the library that gives its value."""

    def __init__(self, check: Callable[[str], object], pattern: str, **schema: Any) -> None:  # noqa: ANN401 - of JSON schema
        """Check with the pattern first; its meaning for Python and for JSON schema is the same."""
        self.check = check
        self.matches = re.compile(pattern).search
        self.schema = {"type": "string", "pattern": pattern, **schema}

    def __call__(self, value: object) -> object:
        text = parse_text(value)
        checked = self.check(text)
        if not self.matches(text):
            raise ValueError(f"{text[:60]!r} does not match {self.schema['pattern']}")
        return checked

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> CoreSchema:
        return no_info_plain_validator_function(self)

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        """A copy, since a field adds its default."""
        return dict(self.schema)


AmountText = Annotated[
    str,
    BeforeValidator(_show_amount),
    WithJsonSchema({"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?$", "examples": ["12.5"]}),
]
DeltaText = Annotated[
    Amount,
    Text(
        values.parse_delta_text,
        rf"^[+-]?(?=[0-9.]*[1-9]){_DIGITS}$",
        description="an exact decimal number, not zero",
        examples=["1", "-0.25"],
    ),
]
LimitText = Annotated[
    Amount,
    Text(
        lambda text: check_exact("amount", values.parse_amount("amount", text, BadDelta), BadDelta),
        rf"^[+-]?{_DIGITS}$",
        description="an exact decimal number",
        examples=["0", "99.5"],
    ),
]
CounterText = Annotated[
    str,
    Text(
        keys.check_counter,
        COUNTER_PATTERN,
        maxLength=COUNTER_NAME_MAX_BYTES,
        examples=["likes:post-1"],
    ),
]
CounterPath = Annotated[
    str,
    Text(
        lambda segment: keys.check_counter(from_path(segment)),
        PATH_PATTERN,
        maxLength=COUNTER_NAME_MAX_BYTES,
        description="a name; `~1` is a slash in it, `~2` a question mark, `~3` a percent "
        "sign, `~0` a tilde",
        examples=["likes:post-1"],
    ),
]
TimeText = Annotated[
    datetime,
    BeforeValidator(parse_time),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
ShownTime = Annotated[
    str,
    BeforeValidator(show_time),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
KeyText = Annotated[str, Text(check_key, rf"^{_CHARACTER_OF_KEY}+$", maxLength=KEY_MAX_BYTES)]
PrefixText = Annotated[
    str,
    Text(
        keys.check_prefix,
        rf"^(?:{_OF_NAMESPACE}{_CHARACTER}*)?$",
        maxLength=COUNTER_NAME_MAX_BYTES,
        examples=["likes:"],
    ),
]
PrefixPath = Annotated[
    str,
    Text(
        lambda segment: keys.check_prefix(from_path(segment)),
        rf"^(?!\.{{1,2}}$){_IN_PATH}+$",
        maxLength=COUNTER_NAME_MAX_BYTES,
        examples=["llm:"],
    ),
]
NamespacePath = Annotated[
    str,
    Text(
        lambda segment: keys.check_namespace(from_path(segment)),
        rf"^(?!\.{{1,2}}$){_OF_NAMESPACE_IN_PATH}+$",
        maxLength=NAMESPACE_MAX_BYTES,
        examples=["likes"],
    ),
]
# A counter's name, and the id of a key, with `#` between them.
HoldPath = Annotated[
    str,
    Text(
        from_path,
        rf"^{_OF_NAMESPACE_IN_PATH}+(?::{_IN_PATH}+)?#[0-9a-z-]{{1,64}}$",
        maxLength=COUNTER_NAME_MAX_BYTES + 65,
        examples=["stock:bolts#k0123456789abcdef0123456789abcdef"],
    ),
]
DayText = Annotated[
    date,
    Text(
        date.fromisoformat,
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
        format="date",
        examples=["2026-11-23"],
    ),
]
PerText = Literal["minute", "hour", "day", "month"]
NoteMap = Annotated[
    dict[str, str], Field(description="short texts of your own, at most 1,024 bytes in all")
]


class TotalAnswer(AnswerBody):
    """A counter's current value."""

    counter: str
    value: AmountText
    events: int
    entries: int
    version: int
    updated_at: ShownTime | None
    method: str | None
    bins: int


class TotalsAnswer(AnswerBody):
    """Totals of several counters."""

    totals: list[TotalAnswer]
    next: str | None = None
