"""Dead letters: alerts that their target did not take, and sending them again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.consumers.alerts.message import alert_in, message_of
from countledger.consumers.alerts.rule import target_of
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadInput, BadPayload
from countledger.ledger.limits import REASON_MAX_CHARACTERS
from countledger.ledger.message_queue import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from mypy_boto3_sqs import SQSClient

    from countledger.consumers.alerts.alert import Alert, Publisher
    from countledger.consumers.alerts.rule import Target


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
