"""The message of an alert, the same JSON on the bus and on a topic; and the dead letters.

Numbers of counters are strings of plain digits: a total has up to 38 digits, and a JSON reader that
uses floats would round after the 16th. The version is below 2^53, so it is a JSON number.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)

from countledger.consumers.alerts.alert import INCARNATION_PATTERN, Alert, AlertWindow
from countledger.consumers.alerts.rule import Direction
from countledger.ledger.amount import from_number, to_text
from countledger.ledger.calendar import Per
from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.errors import BadPayload, BadTime, CorruptItem

_DIGITS: Final = r"^-?[0-9]{1,77}(\.[0-9]{1,38})?$"


_Number = Annotated[str, Field(pattern=_DIGITS)]


_Moment = Annotated[
    AwareDatetime,
    PlainSerializer(lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ"), return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class WindowMessage(BaseModel):
    """The window whose sum crossed."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    windows: str = Field(
        description="The id of the counter's windows: another one if the counter was deleted and "
        "used again, or if the windows of its namespace were changed."
    )
    per: Literal["minute", "hour", "day", "month"] = Field(description="The kind of window.")
    name: str = Field(description="The window, as 2026-11-22.")
    start: _Moment = Field(description="Its beginning, in UTC.")
    end: _Moment = Field(description="Its end, in UTC: the beginning of the next one.")
    time_zone: str = Field(description="The time zone whose hours, days and months they are.")


class AlertMessage(BaseModel):
    """An alert of countledger: a total crossed a threshold from one update to the next."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    v: Literal[1] = Field(description="The format of this message.")
    id: str = Field(
        description="The alert's id: region/rule@revision/version/threshold/direction/counter, "
        "with the incarnation (of a window: windows/name) before the version, and the prefix test/ "
        "if it is a test. A message may arrive more than once, with one id."
    )
    dedup: str = Field(
        pattern="^[0-9a-f]{64}$", description="SHA-256 of the id: the same in a bounded length."
    )
    rule: str = Field(description="The rule's name.")
    revision: str = Field(description="The revision of the rule that evaluated it.")
    counter: str = Field(description="The counter whose total crossed.")
    direction: Literal["rising", "falling"] = Field(
        description="The direction in which the total crossed."
    )
    threshold: _Number = Field(description="The threshold; of a range the first threshold crossed.")
    through: _Number | None = Field(
        default=None,
        description="Only of a range (more than 100 thresholds in one update): the last one.",
    )
    count: _Number | None = Field(
        default=None, description="Only of a range: how many thresholds were crossed."
    )
    old: _Number = Field(description="The total before the update, or what was available of it.")
    new: _Number = Field(description="The total after the update, or what is available of it.")
    version: int = Field(ge=0, lt=2**53, description="The version of the total after the update.")
    region: str = Field(description="The region that evaluated it.")
    at: _Moment = Field(description="When the update was made, in whole seconds of UTC.")
    window: WindowMessage | None = Field(
        default=None,
        description="Only of a rule with a window: threshold, old and new are of its sum.",
    )
    incarnation: str | None = Field(
        default=None,
        pattern=INCARNATION_PATTERN,
        description="Which total of that name it is: a counter that was deleted and created again "
        "has another one. Absent of a window, and of a total without one.",
    )
    test: Literal[True] | None = Field(default=None, description="Only of a test message: true.")


def message_of(alert: Alert) -> AlertMessage:
    """The message of an alert.

    Raises:
        CorruptItem: a value has no form in a message; only an edit by hand stores such a value.
    """
    try:
        return _message_of(alert)
    except (BadTime, TypeError, ValueError) as error:
        what = f"an alert of rule {alert.rule!r} for counter {alert.counter!r}"
        said = " ".join(str(error).split())
        raise CorruptItem(f"{what} has no form as a message: {said}") from error


def _message_of(alert: Alert) -> AlertMessage:
    is_range = alert.through is not None
    return AlertMessage(
        v=1,
        id=alert.id,
        dedup=alert.dedup,
        rule=alert.rule,
        revision=alert.revision,
        counter=alert.counter,
        direction="falling" if alert.direction is Direction.FALLING else "rising",
        threshold=to_text(alert.threshold),
        through=None if alert.through is None else to_text(alert.through),
        count=str(alert.count) if is_range else None,
        old=to_text(alert.old),
        new=to_text(alert.new),
        version=alert.version,
        region=alert.region,
        at=alert.at,
        window=None if alert.window is None else _window_message_of(alert.window),
        incarnation=alert.incarnation,
        test=True if alert.test else None,
    )


def _window_message_of(window: AlertWindow) -> WindowMessage:
    return WindowMessage(
        windows=window.windows,
        per=window.per.value,
        name=window.name,
        start=to_datetime(window.start_ms),
        end=to_datetime(window.end_ms),
        time_zone=window.zone,
    )


def _window_in(found: WindowMessage) -> AlertWindow:
    return AlertWindow(
        found.windows,
        Per(found.per),
        found.name,
        to_ms(found.start),
        to_ms(found.end),
        found.time_zone,
    )


def body_of(alert: Alert) -> str:
    """The message as it is sent: JSON in one line; attributes that are None are left out."""
    return message_of(alert).model_dump_json(exclude_none=True)


def alert_in(message: Any) -> Alert:  # noqa: ANN401 - from outside
    """The alert in a message.

    Raises:
        BadPayload: it is not such a message, or its id does not match its content.
    """
    try:
        found = AlertMessage.model_validate(message)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "message"
        raise BadPayload(f"not the message of an alert: {where}: {first['msg']}") from error
    alert = Alert(
        rule=found.rule,
        revision=found.revision,
        counter=found.counter,
        direction=Direction(found.direction),
        threshold=from_number(found.threshold),
        through=None if found.through is None else from_number(found.through),
        count=int(found.count or 1),
        old=from_number(found.old),
        new=from_number(found.new),
        version=found.version,
        region=found.region,
        at_ms=to_ms(found.at),
        window=None if found.window is None else _window_in(found.window),
        incarnation=found.incarnation,
        test=bool(found.test),
    )
    if alert.id != found.id:
        raise BadPayload(f"not the message of an alert: its id is {found.id!r}, not {alert.id!r}")
    return alert
