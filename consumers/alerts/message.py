"""The message of an alert: the same JSON on the bus, on a topic, in the dead letters.

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

from countledger.consumers.alerts.alert import Alert
from countledger.consumers.alerts.rule import Direction
from countledger.ledger.amount import from_number, to_text
from countledger.ledger.clock import to_ms
from countledger.ledger.errors import BadPayload, BadTime, CorruptItem

SOURCE: Final = "countledger"
DETAIL_TYPE: Final = "Threshold crossed"
_SUBJECT_MAX_CHARACTERS: Final = 99

_DIGITS: Final = r"^-?[0-9]{1,77}(\.[0-9]{1,38})?$"
_Number = Annotated[str, Field(pattern=_DIGITS)]
_Moment = Annotated[
    AwareDatetime,
    PlainSerializer(lambda at: at.strftime("%Y-%m-%dT%H:%M:%SZ"), return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class AlertMessage(BaseModel):
    """An alert of countledger: a total crossed a threshold from one update to the next."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    v: Literal[1] = Field(description="The format of this message.")
    id: str = Field(
        description="The alert's id: region/rule@revision/version/threshold/direction/counter, "
        "with the prefix test/ if it is a test. A message may arrive more than once, with one id."
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
    old: _Number = Field(description="The total before the update.")
    new: _Number = Field(description="The total after the update.")
    version: int = Field(ge=0, lt=2**53, description="The version of the total after the update.")
    region: str = Field(description="The region that evaluated it.")
    at: _Moment = Field(description="When the update was made, in whole seconds of UTC.")
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
        test=True if alert.test else None,
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
        test=bool(found.test),
    )
    if alert.id != found.id:
        raise BadPayload(f"not the message of an alert: its id is {found.id!r}, not {alert.id!r}")
    return alert


def bus_entry(alert: Alert, bus: str) -> dict[str, Any]:
    """An entry of `PutEvents`."""
    return {
        "Source": SOURCE,
        "DetailType": DETAIL_TYPE,
        "Detail": body_of(alert),
        "EventBusName": bus,
        "Time": alert.at,
    }


def topic_entry(alert: Alert, number: int) -> dict[str, Any]:
    """An entry of `PublishBatch`; `number` is its id within the call."""
    filters = {
        "id": alert.id,
        "dedup": alert.dedup,
        "rule": alert.rule,
        "counter": alert.counter,
        "direction": str(alert.direction),
    }
    return {
        "Id": str(number),
        "Message": body_of(alert),
        "Subject": subject_of(alert),
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in filters.items()
        },
    }


def subject_of(alert: Alert) -> str:
    """The subject of a mail: ASCII, at most 99 characters, starting with a letter."""
    trial = "test of " if alert.test else ""
    text = f"countledger: {trial}{alert.rule}: {alert.counter} {alert.direction}"
    return text.encode("ascii", "replace").decode()[:_SUBJECT_MAX_CHARACTERS]
