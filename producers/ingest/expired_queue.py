"""The queue of what expired: read by people, and worked off by their decision."""

from __future__ import annotations

import base64
import binascii
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import BadPayload, CountledgerError
from countledger.ledger.limits import CALL_MESSAGES
from countledger.ledger.quarantine_notices import quarantine_ids_in
from countledger.ledger.quarantine_record import HandledHow, QuarantineHandling
from countledger.ledger.quarantine_store import QuarantineStore
from countledger.ledger.service_errors import translated
from countledger.producers.ingest.expired import LateEntry, Override
from countledger.producers.ingest.quarantine import FORMAT
from countledger.producers.kinesis.message import decode
from countledger.producers.sender import sender_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_sqs import SQSClient

    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.ledger.namespace import Namespaces

# Long enough to read or send all that a message carries.
_HOLD_S: Final = 300
_BY: Final = "ingest resend"


class Message(NamedTuple):
    """A message of the queue.

    Attributes:
        receipt: what it is deleted by.
        body: its text.
    """

    receipt: str
    body: str


@dataclass(frozen=True, slots=True)
class ExpiredEntries:
    """The entries that waited in a backlog for longer than their horizon.

    Attributes:
        client: of SQS.
        queue_url: the queue.
        override: judges them, and sends them again.
        origin: the region where they are written.
        copies: what else keeps them; what was sent from here is handled there as well.
        clock: tells the time.
    """

    client: SQSClient
    queue_url: str
    override: Override
    origin: str
    copies: QuarantineStore
    clock: Clock = field(default_factory=SystemClock)

    def list(self) -> Iterator[LateEntry]:
        """All of them, with what is known of each; the queue keeps them. Three read units each.

        Raises:
            BadPayload: a message is none of the ingest's.
            CountledgerError: a read failed, or the queue.
        """
        return self._work_off(send=False, even_if_counted=False)

    def resend(self, *, even_if_counted: bool = False) -> Iterator[LateEntry]:
        """Send those again that were never counted; a message goes once all in it are counted.

        Three read units each, and a write unit for each KB of those that are sent.

        Args:
            even_if_counted: whether to send also those of which nobody knows whether they were
                counted: they may then count twice.

        Yields:
            What became of each; an error is this entry's own.

        Raises:
            As `list`.
        """
        return self._work_off(send=True, even_if_counted=even_if_counted)

    def _work_off(self, *, send: bool, even_if_counted: bool) -> Iterator[LateEntry]:
        held: list[Message] = []
        try:
            for message in self._messages():
                held.append(message)
                settled = True
                for entry in entries_in(message.body, self.origin):
                    one = self.override.late(entry, send=send, even_if_counted=even_if_counted)
                    settled = settled and one.settled
                    yield one
                if send and settled:
                    self._delete(message)
                    held.pop()
        finally:
            # All were held until now, so that none was read twice.
            for message in held:
                self._release(message)

    def _messages(self) -> Iterator[Message]:
        while True:
            with translated("ReceiveMessage from the expired entries"):
                answer = self.client.receive_message(
                    QueueUrl=self.queue_url,
                    MaxNumberOfMessages=CALL_MESSAGES,
                    VisibilityTimeout=_HOLD_S,
                    WaitTimeSeconds=1,
                )
            if not answer.get("Messages"):
                return
            for one in answer["Messages"]:
                yield Message(one["ReceiptHandle"], one["Body"])

    def _delete(self, message: Message) -> None:
        """Its copies first: behind a crash in between, the message is met once more."""
        handled = QuarantineHandling(HandledHow.RESENT, _BY, self.clock.now_ms())
        for copy_id in quarantine_ids_in(message.body):
            copy = self.copies.find(copy_id)
            if copy is not None and copy.handled is None:
                self.copies.handle(copy, handled)
        with translated("DeleteMessage from the expired entries"):
            self.client.delete_message(QueueUrl=self.queue_url, ReceiptHandle=message.receipt)

    def _release(self, message: Message) -> None:
        # Else it shows again by itself, a little later.
        with suppress(CountledgerError), translated("ChangeMessageVisibility"):
            self.client.change_message_visibility(
                QueueUrl=self.queue_url, ReceiptHandle=message.receipt, VisibilityTimeout=0
            )


def entries_in(body: str, origin: str) -> list[Entry]:
    """The entries that a message carries.

    Raises:
        BadPayload: it is none of the ingest's.
    """
    try:
        letter = json.loads(body)
        if letter["format"] != FORMAT:
            raise BadPayload(f"a message has format {letter['format']!r}; this reads {FORMAT}")
        return [
            decode(
                one["text"].encode() if "text" in one else base64.b64decode(one["base64"]),
                arrived_ms=one["arrived_ms"],
                origin=origin,
            )
            for one in letter["rejected"]
        ]
    except (KeyError, TypeError, AttributeError, binascii.Error, json.JSONDecodeError) as error:
        raise BadPayload(f"a message of the expired entries cannot be read: {error!r}") from None


def expired_of(connection: Connection, namespaces: Namespaces) -> ExpiredEntries:
    """The expired entries of the stack.

    Raises:
        StackNotFound: the stack has no stream.
    """
    sender, reads = sender_of(connection, namespaces), connection.dynamo("standard")
    return ExpiredEntries(
        connection.queues(),
        connection.setting("ingest_expired_queue_url"),
        Override(sender, reads),
        connection.region,
        QuarantineStore(reads, connection.setting("counters_table")),
    )
