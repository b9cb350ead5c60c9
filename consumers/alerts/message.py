"""The message that tells of an alert: the same JSON on the bus, on a topic, in the dead letters.

Numbers of counters stand in it as texts in plain digits: a total holds 38 of them, and a reader
whose JSON numbers are floats would round from the 16th on. The version stays below 2^53, so it is a
number.
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
        "behind test/ if it is one. A message may come more than once; its id stays the same."
    )
    dedup: str = Field(
        pattern="^[0-9a-f]{64}$", description="SHA-256 of the id: the same in a bounded length."
    )
    rule: str = Field(description="The rule's name.")
    revision: str = Field(description="Which revision of the rule evaluated it.")
    counter: str = Field(description="The counter whose total crossed.")
    direction: Literal["rising", "falling"] = Field(description="Which way it crossed.")
    threshold: _Number = Field(description="The threshold; of a range the first one crossed.")
    through: _Number | None = Field(
        default=None,
        description="Only of a range (more than 100 thresholds in one update): the last one.",
    )
    count: _Number | None = Field(
        default=None, description="Only of a range: how many thresholds were crossed."
    )
    old: _Number = Field(description="The total before the update.")
    new: _Number = Field(description="The total behind it.")
    version: int = Field(ge=0, lt=2**53, description="The version of the total behind it.")
    region: str = Field(description="Where it was evaluated.")
    at: _Moment = Field(description="When the update was made, in whole seconds of UTC.")
    test: Literal[True] | None = Field(
        default=None, description="Only of a message that tries the way to the target: true."
    )


def message_of(alert: Alert) -> AlertMessage:
    """The message of an alert.

    Raises:
        CorruptItem: none can hold it: it was stored by hand.
    """
    try:
        return _message_of(alert)
    except (BadTime, TypeError, ValueError) as error:
        what = f"an alert of rule {alert.rule!r} for counter {alert.counter!r}"
        said = " ".join(str(error).split())
        raise CorruptItem(f"no message can tell of {what}: {said}") from error


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
    """The message as it is sent: JSON in one line; what says nothing is left out."""
    return message_of(alert).model_dump_json(exclude_none=True)


def alert_in(message: Any) -> Alert:  # noqa: ANN401 - from outside
    """The alert that a message tells of.

    Raises:
        BadPayload: it is no such message, or its id is not that of what it says.
    """
    try:
        found = AlertMessage.model_validate(message)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "message"
        raise BadPayload(f"no message of an alert: {where}: {first['msg']}") from error
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
        raise BadPayload(f"no message of an alert: its id is {found.id!r}, not {alert.id!r}")
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
