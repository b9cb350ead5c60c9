"""The messages that ring for what is in quarantine, and taking them away once it is handled.

The items are the record; a message only rings the alarms of its queue. SQS deletes by receipt
alone, so the queues are read through: a message goes once every copy that it names is handled, and
the others are shown again.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.errors import CountledgerError, StackNotFound
from countledger.ledger.limits import CALL_MESSAGES
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_sqs import SQSClient

    from countledger.ledger.connection import Connection

# Long enough to read what is left of a queue that people work off.
_HOLD_S: Final = 120


@dataclass(frozen=True, slots=True)
class QuarantineNotices:
    """The queues of the quarantine.

    Attributes:
        client: of SQS.
        queue_urls: the queues.
        wait_s: for how long a read waits until some of a queue's servers show a message.
    """

    client: SQSClient
    queue_urls: tuple[str, ...]
    wait_s: int = 1

    def delete_handled(self, is_handled: Callable[[str], bool]) -> int:
        """Delete the messages all of whose copies are handled.

        Args:
            is_handled: whether the copy of a name is.

        Returns:
            How many were deleted.
        """
        return sum(self._silence(url, is_handled) for url in self.queue_urls)

    def _silence(self, url: str, is_handled: Callable[[str], bool]) -> int:
        deleted = 0
        held: list[str] = []
        try:
            while messages := self._receive(url):
                for message in messages:
                    named = quarantine_ids_in(message["Body"])
                    if named and all(map(is_handled, named)):
                        with translated("DeleteMessage from the quarantine"):
                            self.client.delete_message(
                                QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]
                            )
                        deleted += 1
                    else:
                        held.append(message["ReceiptHandle"])
        finally:
            for receipt in held:
                # Else it shows again by itself, a little later.
                with suppress(CountledgerError), translated("ChangeMessageVisibility"):
                    self.client.change_message_visibility(
                        QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=0
                    )
        return deleted

    def _receive(self, url: str) -> list[Any]:
        with translated("ReceiveMessage from the quarantine"):
            answer = self.client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=CALL_MESSAGES,
                VisibilityTimeout=_HOLD_S,
                WaitTimeSeconds=self.wait_s,
            )
        return list(answer.get("Messages", []))


def quarantine_ids_in(body: str) -> list[str]:
    """The names of the copies that a message rings for; none where it names none for a part."""
    try:
        said = json.loads(body)
        parts = said.get("rejected", [said])
        named = [part["copy"] for part in parts]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return []
    return named if all(isinstance(one, str) for one in named) else []


def notices_of(connection: Connection) -> QuarantineNotices:
    """The queues of a stack; one without a stream of Kinesis has one."""
    urls = [connection.setting("quarantine_queue_url")]
    for name in ("ingest_quarantine_queue_url", "ingest_expired_queue_url"):
        with suppress(StackNotFound):
            urls.append(connection.setting(name))
    return QuarantineNotices(connection.queues(), tuple(urls))
