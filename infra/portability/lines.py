"""One line of an export: a namespace, a counter and its value, or what could not be read. JSON.

    {"v": 1, "export": "0190...", "of": "all in ledger in eu-west-1"}      the first line of a file
    {"v": 1, "namespace": "likes", "kind": "ledger", "spread": 1, "horizon_ms": 86400000}
    {"v": 1, "namespace": "views", ..., "windows": {"by": "hour", "time_zone": "UTC", ...}}
    {"v": 1, "counter": "likes:post-1", "kind": "ledger", "value": 14, "events": 7}
    {"v": 1, "counter": "seats:hall", "kind": "strict", "value": 7, "method": "marker", "lower": 0}
    {"v": 1, "counter": "seats:bus", "kind": "strict", "value": 7, "method": "marker", "held": 2}
    {"v": 1, "unreadable": "likes:post-2", "item": "e#x", "reason": "item (...) has no 'delta'"}

A value is a number if every reader of JSON reads it exactly, and else a text of its digits. A
person can write lines, too: `{"counter": "likes:post-1", "value": 14}` is enough.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from countledger.ledger import amount, keys
from countledger.ledger.errors import BadPayload, CorruptItem, shown
from countledger.ledger.limits import ENTRY_EVENTS_MAX
from countledger.ledger.namespace import Kind
from countledger.ledger.values import parse_amount
from countledger.producers.payload import MAX_BYTES, load_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.consumers.windows import WindowSettings
    from countledger.ledger.namespace import Namespace
    from countledger.ledger.windows import WindowSetting

VERSION: Final = 1
_REASON_MAX_CHARACTERS: Final = 1_000
_SHOWN_LINES: Final = 5
_EXACT_IN_JSON: Final = 2**53 - 1


def _exact(value: object) -> object:
    """A number as an integer or as text; never one that was a float in between."""
    if isinstance(value, str):
        value = parse_amount("value", value, BadPayload)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError("it is not an exact number")  # noqa: TRY004 - pydantic wants it
    if (isinstance(value, Decimal) and not value.is_finite()) or not amount.fits(value):
        raise ValueError("it is not a finite number of at most 38 digits")
    return amount.canonical(value)


Value = Annotated[Any, BeforeValidator(_exact)]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    v: Literal[1] = VERSION


class WindowsOfLine(BaseModel):
    """The windows that a namespace has, as they were switched on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: str
    time_zone: str
    keep_ms: int
    max_lateness_ms: int | None = None
    ranked: int = 0

    @classmethod
    def of(cls, settings: Sequence[WindowSetting]) -> WindowsOfLine | None:
        """Those of a namespace's settings, the oldest first; None: windows are off."""
        if not settings or settings[-1].ended_ms is not None:
            return None
        newest = settings[-1]
        return cls(
            by=newest.finest,
            time_zone=newest.zone,
            keep_ms=newest.keep_ms,
            max_lateness_ms=newest.max_lateness_ms,
            ranked=newest.ranked,
        )

    def switch_on(self, settings: WindowSettings, namespace: str) -> None:
        """Switch them on, unless the namespace has or had windows. As `WindowSettings.enable`."""
        settings.enable(
            namespace,
            by=self.by,
            time_zone=self.time_zone,
            keep_ms=self.keep_ms,
            max_lateness_ms=self.max_lateness_ms,
            ranked=self.ranked,
            first=True,
        )


class NamespaceLine(_Line):
    """The settings of a namespace, and its windows if they are on."""

    namespace: str
    kind: Kind
    spread: int = 1
    horizon_ms: int
    description: str | None = None
    windows: WindowsOfLine | None = None

    @classmethod
    def of(cls, namespace: Namespace, windows: WindowsOfLine | None) -> NamespaceLine:
        return cls(
            namespace=namespace.name,
            kind=namespace.kind,
            spread=namespace.spread,
            horizon_ms=namespace.horizon_ms,
            description=namespace.description,
            windows=windows,
        )


class CounterLine(_Line):
    """A counter and its value; a strict counter has its settings, too.

    `held` is the part of the value that open holds reserve; the holds are not exported.
    """

    counter: str
    kind: Kind = Kind.LEDGER
    value: Value
    events: int | None = Field(default=None, ge=0, le=ENTRY_EVENTS_MAX)
    method: str | None = None
    lower: Value | None = None
    upper: Value | None = None
    bins: int = 1
    history: int | None = None
    max_tokens: int | None = None
    window_ms: int | None = None
    held: Value | None = None

    @model_validator(mode="after")
    def _whole(self) -> CounterLine:
        if self.kind in {Kind.STRICT, Kind.STRICT_REGIONS} and self.method is None:
            raise ValueError("a strict counter needs its method")
        return self


class UnreadLine(_Line):
    """A counter or namespace that an export could not read. An import refuses the line.

    `unreadable` is the name of the counter, or `namespace#` and the name of the namespace; `item`
    is the sort key of the item to correct, if it is known.
    """

    unreadable: str
    item: str | None = None
    reason: str

    @property
    def is_of_a_namespace(self) -> bool:
        """Whether it stands for the settings of a namespace."""
        return self.unreadable.startswith(keys.NAMESPACE_PREFIX)

    @classmethod
    def of(cls, unreadable: str, error: Exception) -> UnreadLine:
        """The line for an error, whose text is cut so that the line stays within its bound."""
        key = error.key if isinstance(error, CorruptItem) else None
        return cls(
            unreadable=unreadable,
            item=None if key is None else key[1],
            reason=str(error)[:_REASON_MAX_CHARACTERS],
        )


class HeaderLine(_Line):
    """The first line of a file: the id of its export, and what is exported. An import skips it."""

    export: str
    of: str


Line = NamespaceLine | CounterLine
ExportLine = Line | UnreadLine
FileLine = ExportLine | HeaderLine


def encode_line(line: FileLine) -> str:
    """One line of JSON, without its end; what is not set is left out."""
    fields = {name: _plain(value) for name, value in line if value is not None}
    if isinstance(line, CounterLine) and line.bins == 1:
        del fields["bins"]
    return json.dumps(fields, ensure_ascii=False, separators=(", ", ": "))


def parse_line(line: str | bytes) -> FileLine:
    """The error names the field, its value and the rule that it breaks."""
    value = load_object(line)
    try:
        return _kind_of(value).model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(map(str, problem["loc"])) or "the line"
        raise BadPayload(
            f"{field[:60]}: {problem['msg']} (it is {shown(problem['input'])})"
        ) from None


def may_be_of_a_namespace(text: bytes) -> bool:
    """Whether a line that cannot be imported may be that of a namespace.

    If it is, the counters after it would create the namespace with the default settings.
    """
    try:
        line = json.loads(text[:MAX_BYTES])
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        return b"namespace" in text
    unread = line.get("unreadable")
    return "namespace" in line or (
        isinstance(unread, str) and unread.startswith(keys.NAMESPACE_PREFIX)
    )


def importable(text: bytes, *, drop_holds: bool) -> Line | None:
    """A line that can be imported; None: it is a header, which has nothing to import."""
    line = parse_line(text)
    if isinstance(line, HeaderLine):
        return None
    if isinstance(line, UnreadLine):
        raise missing(line)
    if isinstance(line, CounterLine) and line.held and not drop_holds:
        raise held_in(line)
    return line


class CounterLines:
    """The numbers of the lines that each counter has in a file.

    An import takes a counter once, so it refuses all lines of a counter that has several. Two equal
    lines may be one that was written twice, or two that are to be added.
    """

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._all: dict[str, dict[int, None]] = {}

    def note(self, counter: str, number: int) -> None:
        """Note a line of a counter; the same one again changes nothing."""
        first = self._first.setdefault(counter, number)
        if first != number:
            self._all.setdefault(counter, {first: None})[number] = None

    def refused(self, counter: str) -> BadPayload | None:
        """Why no line of a counter is imported; None: it has one."""
        numbers = self._all.get(counter)
        if numbers is None:
            return None
        some = ", ".join(map(str, sorted(numbers)[:_SHOWN_LINES]))
        more = ", ..." if len(numbers) > _SHOWN_LINES else ""
        return BadPayload(
            f"{counter!r} has {len(numbers)} lines ({some}{more}), and an import takes a counter "
            "once: keep one line with the whole value"
        )

    def repeated(self) -> list[tuple[int, str]]:
        """Each line of a counter that has several, with its counter, in their order."""
        return sorted((number, name) for name, lines in self._all.items() for number in lines)


def missing(line: UnreadLine) -> BadPayload:
    return BadPayload(f"the export could not read {line.unreadable!r}: {line.reason}")


def held_in(line: CounterLine) -> BadPayload:
    held = amount.to_text(line.held or 0)
    return BadPayload(
        f"{line.counter!r} had open holds of {held} when it was exported, and an import creates no "
        "holds: end them and export it again, or give --drop-holds, which makes that available"
    )


def _kind_of(value: Mapping[str, object]) -> type[FileLine]:
    if "export" in value:
        return HeaderLine
    if "unreadable" in value:
        return UnreadLine
    return NamespaceLine if "namespace" in value else CounterLine


def _plain(value: object) -> object:
    if isinstance(value, WindowsOfLine):
        return {name: part for name, part in value if part}
    if isinstance(value, Decimal) or (isinstance(value, int) and abs(value) > _EXACT_IN_JSON):
        return amount.to_text(value)
    return value
