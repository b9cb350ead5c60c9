"""The store of the quarantine, and the messages about it that raise alarms.

    1  the record is written, unless its item exists     a record delivered again has the same item
    2  a message goes into a queue                       it raises the alarm of the queue
    3  the item says that the message was sent

After a crash between any two steps the record is delivered again: after 1 its message is still
owed and is sent then; after 2 it is sent a second time. A record is in a queue alone only if the
table always refuses its item: it must not block its stream.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import merge
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attributes import decoded
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import (
    AccessDenied,
    ConditionFailed,
    CountledgerError,
    NotQuarantined,
    RequestRejected,
    StackNotFound,
    TableNotFound,
)
from countledger.ledger.limits import QUARANTINE_HANDLED_LIFE_MS, SECOND_MS
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.operations import Absent, AllOf, Assign, Compare, Put, Query, Update
from countledger.ledger.quarantine_record import (
    QuarantinedRecord,
    QuarantineSource,
    decode_quarantined,
    encode_quarantined,
    key_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.quarantine_record import QuarantineHandling


# A retry would get the same answer.
_FINAL_REFUSALS: Final = (RequestRejected, AccessDenied, TableNotFound)
_PAGE: Final = 25
_QUEUES: Final = (
    "quarantine_queue_url",
    "ingest_quarantine_queue_url",
    "ingest_expired_queue_url",
)


@dataclass(frozen=True, slots=True)
class QuarantineStore:
    """Keeps the records in quarantine.

    Attributes:
        dynamo: a DynamoDB client. The SDK may retry: a second put is refused.
        table: the table `counters`.
        clock: gives the time.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)

    def keep(self, record: QuarantinedRecord) -> bool:
        """Write a record, unless its item exists: a write unit for each KB, either way.

        Returns:
            Whether a message about it must be sent: not if one was sent, or a person has handled
            the record. It must if the table always refuses the item.

        Raises:
            ServiceFailed: the record is not kept; it must be delivered again.
        """
        try:
            self.dynamo.put(Put(self.table, encode_quarantined(record), Absent("part")))
        except ConditionFailed as refused:
            item = refused.item or {}
            return "queued_at" not in item and "handled_at" not in item
        except _FINAL_REFUSALS:
            return True
        return True

    def keep_with_message(self, record: QuarantinedRecord, queue: MessageQueue, body: str) -> None:
        """Keep a record and send a message about it, unless one was sent.

        Two write units for each KB, and one message; delivered again a write unit for each KB.

        Args:
            record: the record.
            queue: of its source.
            body: the text of the message.

        Raises:
            ServiceFailed: the record is not kept, or the message was not sent; it must be delivered
                again.
        """
        if self.keep(record):
            queue.send(body)
            self.mark_published(record)

    def mark_published(self, record: QuarantinedRecord) -> None:
        """Note that the message was sent: a write unit for each KB of the item.

        If this fails, the message is sent again when the record is delivered again. The record is
        kept, so its stream goes on.
        """
        with suppress(CountledgerError):
            self.dynamo.update(
                Update(
                    self.table,
                    key_of(record.id),
                    (Assign("queued_at", self.clock.now_ms()),),
                    Compare("at", "=", record.at_ms),
                )
            )

    def find(self, quarantine_id: str) -> QuarantinedRecord | None:
        """The record with that id, or None: a read unit for each 4 KB of it.

        Raises:
            NotQuarantined: no record can have that id.
            CorruptItem: the item cannot be read.
        """
        item = self.dynamo.get(self.table, key_of(quarantine_id), consistent=True)
        return None if item is None else decode_quarantined(item)

    def newest(
        self, source: QuarantineSource | None = None, on_corrupt: OnCorrupt | None = None
    ) -> Iterator[QuarantinedRecord]:
        """The records of a source, or of all, newest first by the time of their stream.

        Half a read unit for each 4 KB of these records; no other item is read.

        Args:
            source: the source; None means all.
            on_corrupt: called with the error of each item that cannot be read, which is skipped.

        Raises:
            CorruptItem: an item cannot be read, and `on_corrupt` is not given.
        """
        sources = QuarantineSource if source is None else (source,)
        feeds = (self._of(one, on_corrupt) for one in sources)
        return merge(*feeds, key=lambda record: record.place, reverse=True)

    def _of(
        self, source: QuarantineSource, on_corrupt: OnCorrupt | None
    ) -> Iterator[QuarantinedRecord]:
        condition = Compare("counter", "=", keys.QUARANTINE_PREFIX + source)
        read = Query(self.table, condition, forward=False, page_size=_PAGE)
        for page in self.dynamo.pages(read):
            yield from decoded(page, decode_quarantined, on_corrupt)

    def handle(self, record: QuarantinedRecord, handling: QuarantineHandling) -> QuarantinedRecord:
        """Note that a person handled it: a write unit for each KB. TTL deletes it in 90 days.

        Returns:
            The record as it is now. If another person handled it first, it has their name.

        Raises:
            NotQuarantined: the item no longer exists.
        """
        expires_at = (handling.at_ms + QUARANTINE_HANDLED_LIFE_MS) // SECOND_MS
        clauses = (
            Assign("handled_at", handling.at_ms),
            Assign("handled_how", str(handling.how)),
            Assign("handled_by", handling.by),
            Assign("expires_at", expires_at),
        )
        waiting = AllOf(Compare("at", "=", record.at_ms), Absent("handled_at"))
        update = Update(self.table, key_of(record.id), clauses, waiting, returning="ALL_NEW")
        try:
            item = self.dynamo.update(update)
        except ConditionFailed as refused:
            item = refused.item
        if not item:
            raise NotQuarantined(f"{record.id} is no longer in quarantine")
        return decode_quarantined(item)


@dataclass(frozen=True, slots=True)
class QuarantineNotices:
    """The messages about quarantined records. The items are the data; a message raises an alarm.

    Attributes:
        queues: the queues of the quarantine.
    """

    queues: tuple[MessageQueue, ...]

    def delete_handled(self, is_handled: Callable[[str], bool]) -> int:
        """Delete the messages of which every record is handled.

        SQS deletes by receipt only, so this reads all messages; the others show again at the end.

        Args:
            is_handled: whether the record with that id is handled.

        Returns:
            The number of deleted messages.
        """
        deleted = 0
        for queue in self.queues:
            with queue.reader() as reader:
                for message in reader:
                    named = quarantine_ids_in(message.body)
                    if named and all(map(is_handled, named)):
                        reader.delete(message)
                        deleted += 1
        return deleted


def quarantine_ids_in(body: str) -> list[str]:
    """The ids of the records that a message is about; none if a part of it has no id."""
    try:
        document = json.loads(body)
        parts = document.get("rejected", [document])
        named = [part["quarantine_id"] for part in parts]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return []
    return named if all(isinstance(one, str) for one in named) else []


def notices_of(connection: Connection) -> QuarantineNotices:
    """The queues of a stack; a stack without a Kinesis stream has one."""
    queues = []
    for number, setting in enumerate(_QUEUES):
        try:
            url = connection.setting(setting)
        except StackNotFound:
            if number == 0:
                raise
        else:
            queues.append(MessageQueue(connection.queues(), url, "the quarantine"))
    return QuarantineNotices(tuple(queues))
