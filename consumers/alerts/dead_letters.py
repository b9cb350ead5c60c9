"""Dead letters: alerts that their target did not take, with all it needs to send them again."""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.consumers.alerts.message import alert_in, message_of
from countledger.consumers.alerts.rule import target_of
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadInput, BadPayload, CountledgerError, Unclear
from countledger.ledger.limits import CALL_MESSAGES, REASON_MAX_CHARACTERS
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Generator

    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import MessageTypeDef

    from countledger.consumers.alerts.alert import Alert
    from countledger.consumers.alerts.rule import Target

_FORMAT: Final = 1
# Longer than most runs take.
_HIDDEN_S: Final = 600


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An alert that its target did not take.

    Attributes:
        alert: which one.
        target: where it was to go.
        reason: what the target said last.
        failed_at_ms: when it was given up, milliseconds since the epoch.
    """

    alert: Alert
    target: Target
    reason: str
    failed_at_ms: int


class DeadLetters(Protocol):
    """Keeps dead letters."""

    def put(self, dead_letter: DeadLetter) -> None:
        """Keep one; return only when it is kept.

        Raises:
            CountledgerError: it is not.
        """


@dataclass(frozen=True, slots=True)
class Received:
    """A message of the dead-letter queue.

    Attributes:
        dead_letter: what it says, or why it says nothing that could be sent.
        handle: under which the queue lets it be deleted.
    """

    dead_letter: DeadLetter | BadPayload
    handle: str


@dataclass(frozen=True, slots=True)
class QueueDeadLetters:
    """Dead letters in an SQS queue.

    Attributes:
        client: of SQS.
        queue_url: the queue.
        wait_s: for how long a read waits until some of the queue's servers show a dead letter.
    """

    client: SQSClient
    queue_url: str
    wait_s: int = 1

    def put(self, dead_letter: DeadLetter) -> None:
        """Keep a dead letter: one message."""
        what = "SendMessage to the dead letters of alerts"
        with translated(what):
            answer = self.client.send_message(
                QueueUrl=self.queue_url, MessageBody=encode_dead_letter(dead_letter)
            )
        if "MessageId" not in answer:
            raise Unclear(f"{what}: no clear answer (it names no message)")

    def receive(self) -> Generator[Received]:
        """Each dead letter of the queue once, hidden from other readers for ten minutes.

        One that shows again, for this takes longer or the queue gives it twice, stays hidden until
        the end. Close it before its end, and letters that were not taken yet are shown to others.
        """
        met: set[str] = set()
        waiting: deque[Received] = deque()
        again: list[Received] = []
        try:
            while messages := self._receive_batch():
                for one in messages:
                    received = Received(_read(one["Body"]), one["ReceiptHandle"])
                    (again if one["MessageId"] in met else waiting).append(received)
                    met.add(one["MessageId"])
                while waiting:
                    yield waiting.popleft()
        finally:
            for received in (*waiting, *again):
                self.put_back(received)

    def _receive_batch(self) -> list[MessageTypeDef]:
        with translated("ReceiveMessage from the dead letters of alerts"):
            answer = self.client.receive_message(
                QueueUrl=self.queue_url,
                MaxNumberOfMessages=CALL_MESSAGES,
                VisibilityTimeout=_HIDDEN_S,
                WaitTimeSeconds=self.wait_s,
            )
        return answer.get("Messages", [])

    def delete(self, received: Received) -> None:
        """Take a dead letter out."""
        with translated("DeleteMessage from the dead letters of alerts"):
            self.client.delete_message(QueueUrl=self.queue_url, ReceiptHandle=received.handle)

    def put_back(self, received: Received) -> None:
        """Show a dead letter to other readers again."""
        # Else it shows again by itself, a little later.
        with (
            suppress(CountledgerError),
            translated("ChangeMessageVisibility of the dead letters of alerts"),
        ):
            self.client.change_message_visibility(
                QueueUrl=self.queue_url, ReceiptHandle=received.handle, VisibilityTimeout=0
            )


def encode_dead_letter(dead_letter: DeadLetter) -> str:
    """The message that keeps a dead letter."""
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
        BadPayload: there is none in it.
    """
    try:
        said: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadPayload(f"no dead letter of an alert: {error}") from error
    if not isinstance(said, dict) or said.get("v") != _FORMAT:
        raise BadPayload(f"no dead letter of an alert of format {_FORMAT}")
    target, reason, failed_at_ms = (said.get(n) for n in ("target", "reason", "failed_at_ms"))
    if not (isinstance(target, str) and isinstance(reason, str) and isinstance(failed_at_ms, int)):
        raise BadPayload("no dead letter of an alert: it lacks target, reason or failed_at_ms")
    try:
        return DeadLetter(alert_in(said.get("message")), target_of(target), reason, failed_at_ms)
    except BadInput as error:
        raise BadPayload(f"no dead letter of an alert: {error}") from error


def _read(body: str) -> DeadLetter | BadPayload:
    try:
        return decode_dead_letter(body)
    except BadPayload as error:
        return error
