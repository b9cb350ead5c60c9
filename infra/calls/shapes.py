"""The types of which calls and their results consist: exact amounts, names, times.

An amount is a text of decimal digits, never a number of JSON: many parsers read those as floats. A
type's JSON schema and its check are written next to each other; the check is the library's own.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NoReturn,
    TypeVar,
)

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core.core_schema import no_info_plain_validator_function

from countledger.ledger import keys, values
from countledger.ledger.amount import Amount, check_exact, to_text
from countledger.ledger.errors import BadDelta, BadInput, BadItem, shown
from countledger.ledger.ids import check_key
from countledger.ledger.limits import (
    AMOUNT_MAX_DECIMALS,
    AMOUNT_MAX_DIGITS,
    COUNTER_NAME_MAX_BYTES,
    KEY_MAX_BYTES,
    NAMESPACE_MAX_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic_core import CoreSchema

    from countledger.ledger.errors import CorruptItem


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
    int, Field(ge=1, le=PAGE_MAX, description="the largest number of items"), PLAIN_INTEGER
]
Cursor = Annotated[
    str | None,
    Field(
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


class View(BaseModel):
    """What is shown of a result, made of its attributes: a row for people, else a document."""

    model_config = ConfigDict(from_attributes=True, frozen=True)
    # Of the command that shows it.
    exit_code: ClassVar[int] = 0

    def row(self) -> Mapping[str, object]:
        """The cells of a table, by their headings; by default all fields."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def notices(self) -> Iterable[str]:
        """What a person should know beside it, each in a line."""
        return ()

    def document(self) -> dict[str, Any]:
        """The result as JSON, the same on the command line and over HTTP."""
        return self.model_dump(mode="json")


_V = TypeVar("_V")


class Unreadable(View):
    """An item that could not be read: where it is, and why."""

    pk: str | None
    sk: str | None
    reason: str

    @classmethod
    def of(cls, error: CorruptItem) -> Unreadable:
        pk, sk = (None, None) if error.key is None else error.key
        return cls(pk=pk, sk=sk, reason=str(error))


class Items(View, Generic[_V]):
    """A list: its items, and those that could not be read.

    `more` says whether there are others; `next`, where the list has it, is where they begin.
    """

    items: list[_V]
    more: bool = False
    next: str | None = None
    unreadable: list[Unreadable] = []


def parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is no text of JSON: write it in quotes")  # noqa: TRY004
    return value


def parse_time(value: object) -> datetime:
    """A time, as everywhere: of ISO 8601 with its offset, or a text of milliseconds."""
    return values.parse_time(parse_text(value))


def parse_item(what: str, text: str) -> dict[str, Any]:
    """An item of an app's own table, as an object of JSON; its numbers stay exact."""
    try:
        item = json.loads(text, parse_float=Decimal, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadItem(f"{what} {shown(text)} is no JSON object: {error}") from None
    if not isinstance(item, dict):
        raise BadItem(f"{what} {shown(text)} is no JSON object: give it as {{...}}")
    return item


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def show_time(value: object) -> object:
    """A time in UTC, in milliseconds, as in RFC 3339."""
    if not isinstance(value, datetime):
        return value
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _an_amount(value: object) -> Amount:
    """As it is: an amount of the library is exact."""
    if isinstance(value, int | Decimal):
        return value
    raise ValueError(f"{shown(value)} is no amount")


def _show_amount(value: Amount) -> str:
    return to_text(value)


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

    def __init__(
        self,
        check: Callable[[str], object],
        pattern: str,
        *,
        path: str | None = None,
        **schema: Any,  # noqa: ANN401 - of JSON schema
    ) -> None:
        """Check with the pattern first; its meaning for Python and for JSON schema is the same.

        `path` is the pattern of such a text as a segment of a path.
        """
        self.check = check
        self.path = path
        self.matches = re.compile(pattern).search
        self.schema = {"type": "string", "pattern": pattern, **schema}

    def __call__(self, value: object) -> object:
        text = parse_text(value)
        checked = self.check(text)
        if not self.matches(text):
            raise ValueError(f"{text[:60]!r} does not match {self.schema['pattern']}")
        return checked

    def in_path(self) -> Text:
        """The same text as a segment of a path, where some characters are written otherwise."""
        if self.path is None:
            raise AssertionError("no path names such a text")
        schema = {**self.schema, "description": _IN_A_PATH}
        del schema["type"], schema["pattern"]
        return Text(lambda segment: self.check(from_path(segment)), self.path, **schema)

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> CoreSchema:
        return no_info_plain_validator_function(self)

    def __get_pydantic_json_schema__(self, _schema: object, _handler: object) -> dict[str, Any]:
        """A copy, since a field adds its default."""
        return dict(self.schema)


# Of a view: what a person sees is aligned as a number, and a program gets a text.
AmountText = Annotated[
    Amount,
    PlainValidator(_an_amount),
    PlainSerializer(_show_amount, return_type=str, when_used="json"),
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


def amount_text(what: str, error: type[BadInput]) -> Text:
    """The text of an amount of any sign; `what` it is, and its error, are for messages."""
    return Text(
        lambda text: check_exact(what, values.parse_amount(what, text, error), error),
        rf"^[+-]?{_DIGITS}$",
        description="an exact decimal number",
        examples=["0", "99.5"],
    )


LimitText = Annotated[Amount, amount_text("amount", BadDelta)]
# How names that are segments of a path differ from the names themselves.
_IN_A_PATH: Final = (
    "a name; `~1` is a slash in it, `~2` a question mark, `~3` a percent sign, `~0` a tilde"
)
_COUNTER: Final = Text(
    keys.check_counter,
    COUNTER_PATTERN,
    path=PATH_PATTERN,
    maxLength=COUNTER_NAME_MAX_BYTES,
    examples=["likes:post-1"],
)
CounterText = Annotated[str, _COUNTER]
CounterPath = Annotated[str, _COUNTER.in_path()]
TimeText = Annotated[
    datetime,
    BeforeValidator(parse_time),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
ShownTime = Annotated[
    datetime,
    PlainSerializer(show_time, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
KeyText = Annotated[str, Text(check_key, rf"^{_CHARACTER_OF_KEY}+$", maxLength=KEY_MAX_BYTES)]
PrefixText = Annotated[
    str,
    Text(
        keys.check_prefix,
        rf"^(?:{_OF_NAMESPACE}{_CHARACTER}*)?$",
        path=rf"^(?!\.{{1,2}}$){_IN_PATH}+$",
        maxLength=COUNTER_NAME_MAX_BYTES,
        examples=["likes:"],
    ),
]
_NAMESPACE: Final = Text(
    keys.check_namespace,
    rf"^{_OF_NAMESPACE}+$",
    path=rf"^(?!\.{{1,2}}$){_OF_NAMESPACE_IN_PATH}+$",
    maxLength=NAMESPACE_MAX_BYTES,
    examples=["likes"],
)
NamespaceText = Annotated[str, _NAMESPACE]
NamespacePath = Annotated[str, _NAMESPACE.in_path()]
# A counter's name, and the id of a key, with `#` between them.
_HOLD: Final = Text(
    str,
    rf"^{_OF_NAMESPACE}+(?::{_CHARACTER}+)?#[0-9a-z-]{{1,64}}$",
    path=rf"^{_OF_NAMESPACE_IN_PATH}+(?::{_IN_PATH}+)?#[0-9a-z-]{{1,64}}$",
    maxLength=COUNTER_NAME_MAX_BYTES + 65,
    examples=["stock:bolts#k0123456789abcdef0123456789abcdef"],
)
HoldText = Annotated[str, _HOLD]
HoldPath = Annotated[str, _HOLD.in_path()]
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


class TotalAnswer(View):
    """A counter's current value."""

    counter: str
    value: AmountText
    events: int
    entries: int
    version: int
    updated_at: ShownTime | None
    method: str | None
    bins: int

    def row(self) -> Mapping[str, object]:
        # A strict counter counts no events.
        events = self.events if self.method is None else None
        return {
            "counter": self.counter,
            "value": self.value,
            "events": events,
            "updated": self.updated_at,
        }


class TotalsAnswer(View):
    """Totals of several counters."""

    items: list[TotalAnswer]
    next: str | None = None


# What a result or an error is as JSON where no view describes it.


# Integers that are no amounts.
_WHOLE_NUMBERS: Final = frozenset({"count", "attempts", "max_tokens", "events"})


def whole_seconds(duration: timedelta) -> int:
    """A duration for the header `Retry-After`, at least one second."""
    return max(1, -(-duration // timedelta(seconds=1)))


def fields_of(value: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass
    """The fields of a result that have a value, as JSON."""
    shown = {one.name: getattr(value, one.name) for one in fields(value)}
    return {name: plain(one, name) for name, one in shown.items() if one is not None}


def plain(value: object, name: str = "") -> Any:  # noqa: ANN401, PLR0911 - JSON, a table
    """A value of a result as JSON: amounts are texts, times as in RFC 3339."""
    match value:
        case Enum():
            return value.value
        case bool() | str() | None:
            return value
        case int() if name in _WHOLE_NUMBERS or name.endswith("_ms"):
            return value
        case int() | Decimal():
            return to_text(value)
        case datetime():
            return show_time(value)
        case timedelta():
            return whole_seconds(value)
        case dict():
            return {str(key): plain(one, str(key)) for key, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(one) for one in value]
        case _ if is_dataclass(value):
            return fields_of(value)
    return str(value)
