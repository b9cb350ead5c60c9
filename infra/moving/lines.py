"""One line of an export: a namespace as it was made, or a counter and its value. JSON, version 1.

    {"v": 1, "namespace": "likes", "kind": "ledger", "spread": 1, "horizon_ms": 86400000}
    {"v": 1, "counter": "likes:post-1", "kind": "ledger", "value": 14, "events": 7}
    {"v": 1, "counter": "seats:hall", "kind": "strict", "value": 7, "method": "marker", "lower": 0}

A value is a number where every reader of JSON takes it exactly, and else a text of its digits. Of a
line written by hand `{"counter": "likes:post-1", "value": 14}` is enough.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from countledger.ledger import amount
from countledger.ledger.errors import BadPayload, shown
from countledger.ledger.namespace import Kind

VERSION: Final = 1
LINE_MAX_BYTES: Final = 16_384
_EXACT_IN_JSON: Final = 2**53 - 1


def _exact(value: object) -> object:
    """A number as it stands there, or as text; never one that was a float on its way."""
    if isinstance(value, str):
        value = _number(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError("it is no exact number")  # noqa: TRY004 - pydantic wants it
    if (isinstance(value, Decimal) and not value.is_finite()) or not amount.fits(value):
        raise ValueError("it is no finite number of at most 38 digits")
    return amount.canonical(value)


def _number(text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:
        raise ValueError("it is no number") from None


Value = Annotated[Any, BeforeValidator(_exact)]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    v: Literal[1] = VERSION


class NamespaceLine(_Line):
    """A namespace as it was made."""

    namespace: str
    kind: Kind
    spread: int = 1
    horizon_ms: int
    description: str | None = None


class CounterLine(_Line):
    """A counter and its value; of a strict one what it was made with, too."""

    counter: str
    kind: Kind = Kind.LEDGER
    value: Value
    events: int | None = Field(default=None, ge=0)
    method: str | None = None
    lower: Value | None = None
    upper: Value | None = None
    bins: int = 1
    history: int | None = None
    max_tokens: int | None = None
    window_ms: int | None = None

    @model_validator(mode="after")
    def _whole(self) -> CounterLine:
        if self.kind is Kind.STRICT and self.method is None:
            raise ValueError("a strict counter needs its method")
        return self


Line = NamespaceLine | CounterLine


def encode_line(line: Line) -> str:
    """One line of JSON, without its end; what is not set is left out."""
    fields = {name: _plain(value) for name, value in line if value is not None}
    if isinstance(line, CounterLine) and line.bins == 1:
        del fields["bins"]
    return json.dumps(fields, ensure_ascii=False, separators=(", ", ": "))


def parse_line(line: str | bytes) -> Line:
    """The line.

    Raises:
        BadPayload: naming the field, its value and the rule that it breaks.
    """
    if len(line) > LINE_MAX_BYTES:
        raise BadPayload(f"the line is longer than {LINE_MAX_BYTES} bytes")
    try:
        value = json.loads(line, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise BadPayload(f"the line is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadPayload(f"the line is no object (it is {shown(value)})")
    kind = NamespaceLine if "namespace" in value else CounterLine
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(map(str, problem["loc"])) or "the line"
        raise BadPayload(
            f"{field[:60]}: {problem['msg']} (it is {shown(problem['input'])})"
        ) from None


def _plain(value: object) -> object:
    if isinstance(value, Decimal) or (isinstance(value, int) and abs(value) > _EXACT_IN_JSON):
        return amount.to_text(value)
    return value


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")
