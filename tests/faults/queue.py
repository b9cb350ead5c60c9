"""The quarantine as it is deployed: a queue of the embedded engine."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from countledger.consumers.quarantine import StoredQuarantine
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.quarantine_record import QuarantineSource
from countledger.ledger.quarantine_store import QuarantineStore
from tests.engines.store import Record, Store


@dataclass(frozen=True)
class Queue:
    """A queue, and the quarantine that it is.

    Attributes:
        client: of SQS, the quarantine's own.
        quarantine: what the materializer puts records into.
    """

    client: Any
    quarantine: StoredQuarantine

    def messages(self) -> list[dict[str, Any]]:
        """Everything in it, taken out."""
        found: list[dict[str, Any]] = []
        while True:
            answer = self.client.receive_message(
                QueueUrl=self.quarantine.queue.url, MaxNumberOfMessages=10
            )
            messages = answer.get("Messages", [])
            if not messages:
                return found
            for message in messages:
                found.append(json.loads(message["Body"]))
                self.client.delete_message(
                    QueueUrl=self.quarantine.queue.url, ReceiptHandle=message["ReceiptHandle"]
                )

    def records(self) -> list[Record]:
        """The records in it, taken out."""
        return [message["record"] for message in self.messages()]


@contextmanager
def new_queue(store: Store) -> Iterator[Queue]:
    """Make a queue; delete it at the end."""
    client: Any = store.connection.queues()
    url = client.create_queue(QueueName=f"quarantine-{uuid4().hex[:12]}")["QueueUrl"]
    try:
        records = QuarantineStore(store.dynamo(), store.counters)
        queue = MessageQueue(client, url, "the quarantine")
        yield Queue(client, StoredQuarantine(records, queue, QuarantineSource.LEDGER))
    finally:
        client.delete_queue(QueueUrl=url)
