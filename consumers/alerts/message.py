"""The message of an alert, the same JSON on the bus and on a topic; and the dead letters.

Numbers of counters are strings of plain digits: a total has up to 38 digits, and a JSON reader that
uses floats would round after the 16th. The version is below 2^53, so it is a JSON number.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol

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
from countledger.consumers.alerts.rule import Direction, target_of
from countledger.ledger.amount import from_number, to_text
from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.errors import BadInput, BadPayload, BadTime, CorruptItem
from countledger.ledger.limits import REASON_MAX_CHARACTERS
from countledger.ledger.message_queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from mypy_boto3_sqs import SQSClient

    from countledger.consumers.alerts.alert import Publisher
    from countledger.consumers.alerts.rule import Target


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
    old: _Number = Field(description="The total before the update, or what was available of it.")
    new: _Number = Field(description="The total after the update, or what is available of it.")
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


_FORMAT: Final = 1


# Longer than most runs of `resend` take.
_HIDDEN_S: Final = 600


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An alert that its target refused.

    Attributes:
        alert: the alert.
        target: its target.
        reason: the last answer of the target.
        failed_at_ms: when the last attempt failed, in milliseconds since the epoch.
    """

    alert: Alert
    target: Target
    reason: str
    failed_at_ms: int


class DeadLetters(Protocol):
    """Stores dead letters."""

    def put(self, dead_letter: DeadLetter) -> None:
        """Store a dead letter, or raise `CountledgerError`."""


@dataclass(frozen=True, slots=True)
class QueueDeadLetters:
    """Dead letters in an SQS queue.

    Attributes:
        queue: the queue.
    """

    queue: MessageQueue

    @classmethod
    def at(cls, client: SQSClient, url: str, *, wait_s: int = 1) -> Self:
        """The dead letters in the queue of that URL."""
        name = "the dead letters of alerts"
        return cls(MessageQueue(client, url, name, hidden_s=_HIDDEN_S, wait_s=wait_s))

    def put(self, dead_letter: DeadLetter) -> None:
        """Store a dead letter. Cost: one message."""
        self.queue.send(encode_dead_letter(dead_letter))


@dataclass(frozen=True, slots=True)
class Resent:
    """The result for one dead letter (None: it could not be read).

    `reason`: why it is still in the queue; None if its target has accepted it.
    """

    dead_letter: DeadLetter | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Resender:
    """Sends dead letters again.

    A dead letter is deleted after its target has accepted it. After a crash between the two it is
    sent a second time, with the same id.

    Attributes:
        dead_letters: the queue.
        publisher: sends them to their targets.
    """

    dead_letters: QueueDeadLetters
    publisher: Publisher

    def resend(self, limit: int | None = None) -> Iterator[Resent]:
        """Send each dead letter once, while the results are iterated; a refused one stays.

        Args:
            limit: the maximum number; None means all.
        """
        with self.dead_letters.queue.reader() as reader:
            for message in islice(reader, limit):
                result = self._send(message.body)
                if result.reason is None:
                    reader.delete(message)
                yield result

    def _send(self, body: str) -> Resent:
        try:
            dead_letter = decode_dead_letter(body)
        except BadPayload as error:
            return Resent(None, str(error))
        refused = self.publisher.publish([dead_letter.alert], dead_letter.target)
        return Resent(dead_letter, refused[0].reason if refused else None)


def encode_dead_letter(dead_letter: DeadLetter) -> str:
    """The message of a dead letter."""
    failed_at = to_datetime(dead_letter.failed_at_ms).isoformat(timespec="milliseconds")
    return json.dumps(
        {
            "v": _FORMAT,
            "target": str(dead_letter.target),
            "reason": dead_letter.reason[:REASON_MAX_CHARACTERS],
            "failed_at": failed_at.replace("+00:00", "Z"),
            "failed_at_ms": dead_letter.failed_at_ms,
            "message": message_of(dead_letter.alert).model_dump(mode="json", exclude_none=True),
        }
    )


def decode_dead_letter(body: str) -> DeadLetter:
    """The dead letter in a message.

    Raises:
        BadPayload: the message is not a dead letter.
    """
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadPayload(f"the message is not a dead letter: {error}") from error
    if not isinstance(document, dict) or document.get("v") != _FORMAT:
        raise BadPayload(f"the message is not a dead letter of format {_FORMAT}")
    target, reason, failed_at_ms = (document.get(n) for n in ("target", "reason", "failed_at_ms"))
    if not (isinstance(target, str) and isinstance(reason, str) and isinstance(failed_at_ms, int)):
        raise BadPayload(
            "the message is not a dead letter: it lacks target, reason or failed_at_ms"
        )
    try:
        alert = alert_in(document.get("message"))
        return DeadLetter(alert, target_of(target), reason, failed_at_ms)
    except BadInput as error:
        raise BadPayload(f"the message is not a dead letter: {error}") from error
