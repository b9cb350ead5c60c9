"""An SQS queue that people and functions work off: send a message, read each once, delete it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from countledger.ledger.errors import CountledgerError, Unclear
from countledger.ledger.limits import CALL_MESSAGES
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from mypy_boto3_sqs import SQSClient


class QueueMessage(NamedTuple):
    id: str
    body: str


@dataclass(frozen=True, slots=True)
class MessageQueue:
    """A queue, by the name that errors call it.

    A read message is hidden from other readers for `hidden_s`; a read waits `wait_s` until some
    server of the queue has a message.
    """

    client: SQSClient
    url: str
    name: str
    hidden_s: int = 300
    wait_s: int = 1

    def send(self, body: str) -> None:
        """Send a message: one request. After ServiceFailed the queue may have it or not."""
        what = f"SendMessage to {self.name}"
        with translated(what):
            answer = self.client.send_message(QueueUrl=self.url, MessageBody=body)
        if "MessageId" not in answer:
            raise Unclear(f"{what}: no clear answer (it has no MessageId)")

    def reader(self) -> QueueReader:
        return QueueReader(self)


@dataclass(slots=True)
class QueueReader:
    """Reads each message once. At the end of the `with` block it shows those it did not delete.

    All messages stay hidden until then, so that no reader meets one twice.
    """

    queue: MessageQueue
    _receipts: dict[str, str] = field(default_factory=dict)
    _deleted: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Show the messages that are left; SQS shows them later if this fails."""
        for message_id, receipt in self._receipts.items():
            if message_id not in self._deleted:
                what = f"ChangeMessageVisibility of {self.queue.name}"
                with suppress(CountledgerError), translated(what):
                    self.queue.client.change_message_visibility(
                        QueueUrl=self.queue.url, ReceiptHandle=receipt, VisibilityTimeout=0
                    )

    def __iter__(self) -> Iterator[QueueMessage]:
        while batch := self._receive():
            # All of a batch are known before the first is handled: those that are left show again.
            new = []
            for message_id, receipt, body in batch:
                if message_id not in self._receipts:
                    new.append(QueueMessage(message_id, body))
                self._receipts[message_id] = receipt
                if message_id in self._deleted:
                    self._delete(message_id)
            yield from new

    def delete(self, message: QueueMessage) -> None:
        """Delete a message: one request. If SQS delivers it again, it is deleted again."""
        self._delete(message.id)
        self._deleted.add(message.id)

    def _delete(self, message_id: str) -> None:
        with translated(f"DeleteMessage from {self.queue.name}"):
            self.queue.client.delete_message(
                QueueUrl=self.queue.url, ReceiptHandle=self._receipts[message_id]
            )

    def _receive(self) -> list[tuple[str, str, str]]:
        with translated(f"ReceiveMessage from {self.queue.name}"):
            answer = self.queue.client.receive_message(
                QueueUrl=self.queue.url,
                MaxNumberOfMessages=CALL_MESSAGES,
                VisibilityTimeout=self.queue.hidden_s,
                WaitTimeSeconds=self.queue.wait_s,
            )
        messages = answer.get("Messages", [])
        return [(one["MessageId"], one["ReceiptHandle"], one["Body"]) for one in messages]
