"""An event as JSON: texts from outside become events here."""

from __future__ import annotations

import json
from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from countledger.ledger.errors import BadInput, BadPayload, BadTime, shown
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.values import parse_delta_text, parse_time
from countledger.producers.event import EVENTS_MAX, Event

if TYPE_CHECKING:
    from datetime import datetime

# Far above any event whose parts keep their bounds.
MAX_BYTES: Final = 16_384
_INTEGER_MAX_DIGITS: Final = 1_000
_Time = Annotated[AwareDatetime, BeforeValidator(parse_time)]


class EventPayload(BaseModel):
    """The JSON form of an event: the fields of `Event`, and `at` for the time of its key."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    counter: str
    delta: Any
    key: str | None = None
    at: _Time | None = None
    occurred_at: _Time | None = None
    note: dict[str, str] | None = None
    events: int = Field(default=1, ge=1, le=EVENTS_MAX)

    def event(self) -> Event:
        return Event(
            self.counter,
            # A program whose numbers are floats writes it as text.
            parse_delta_text(self.delta) if isinstance(self.delta, str) else self.delta,
            key=keyed(self.key, self.at),
            occurred_at=self.occurred_at,
            note=self.note,
            events=self.events,
        )


def keyed(key: str | None, at: datetime | None) -> str | IdempotencyKey | None:
    """A key, with its time where that is given; a time without a key is refused."""
    if at is None:
        return key
    if key is None:
        raise BadTime(
            "`at` is the time of an idempotency key and there is no key: give one, or say when "
            "the event took place with `occurred_at`"
        )
    return IdempotencyKey(key, at)


def parse_event_line(line: str | bytes) -> Event:
    """An event from one line of JSON; errors name the field, its value and the broken rule."""
    value = load_object(line)
    try:
        return EventPayload.model_validate(value).event()
    except ValidationError as error:
        raise BadPayload(first_problem(error)) from None


def load_object(line: str | bytes) -> dict[str, Any]:
    """The object in a text of JSON, its numbers exact; no field may be named twice."""
    if len(line) > MAX_BYTES:
        raise BadPayload(f"the line is longer than {MAX_BYTES} bytes")
    try:
        value = json.loads(
            line,
            object_pairs_hook=_object,
            # Decimals stay exact: no number becomes a float.
            parse_float=_number,
            parse_int=_number,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError) as error:
        raise BadPayload(f"the line is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadPayload(f"the line is not a JSON object (it is {shown(value)})")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that names a field twice: it is not clear which value is meant."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{shown(name)} is named twice: name each field once")
        found[name] = value
    return found


def _number(text: str) -> int | Decimal:
    """A number, exact; Python turns no text of thousands of digits into an int."""
    if len(text) <= _INTEGER_MAX_DIGITS and text.lstrip("-").isdecimal():
        return int(text)
    try:
        value = Decimal(text)
    except DecimalException:
        raise ValueError(f"{shown(text)} is no number") from None
    if "e" in text.lower() and int(value.as_tuple().exponent) > 0:
        raise ValueError(
            f"{shown(text)} shows fewer digits than the number has: it may have been rounded; "
            "write all of its digits"
        )
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")


def first_problem(error: ValidationError) -> str:
    """The first rule that a payload breaks, with the field and its value."""
    problem = error.errors(include_url=False)[0]
    field = shown(".".join(str(part) for part in problem["loc"]))[1:-1]
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, BadInput):
        return f"{field}: {cause}"
    return f"{field}: {problem['msg']} (it is {shown(problem['input'])})"
