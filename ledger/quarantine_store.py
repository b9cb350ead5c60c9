"""The copies of what is in quarantine: kept once, told of, listed, and handled by a person.

    1  the copy is written, unless it is there           a record delivered again meets its own
    2  a message goes into the queue                     what rings the alarm
    3  the copy says that the message was sent

A crash between any two leaves a record that is delivered again: after 1 the message is still owed
and is sent then; after 2 it is sent a second time. Nothing is in a queue alone, but for what the
table refuses for good: that must not hold up its stream for ever.
"""

from __future__ import annotations

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
    TableNotFound,
)
from countledger.ledger.expressions import Absent, AllOf, Assign, Compare
from countledger.ledger.limits import QUARANTINE_HANDLED_LIFE_MS, SECOND_MS
from countledger.ledger.operations import Put, Query, Update
from countledger.ledger.quarantine_record import (
    QuarantinedRecord,
    QuarantineSource,
    decode_quarantined,
    encode_quarantined,
    key_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.quarantine_record import QuarantineHandling

# Another try would end the same.
_FOR_GOOD: Final = (RequestRejected, AccessDenied, TableNotFound)
_PAGE: Final = 25


@dataclass(frozen=True, slots=True)
class QuarantineStore:
    """Keeps copies.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry, a second copy is refused.
        table: the table `counters`.
        clock: tells the time.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)

    def keep(self, copy: QuarantinedRecord) -> bool:
        """Write a copy, unless it is there: a write unit for each KB of it, either way.

        Returns:
            Whether a message of it is owed: not where one was sent, or a person has handled it.
            What the table refuses for good has no copy, and its message is owed.

        Raises:
            ServiceFailed: it is not kept; the record has to be delivered again.
        """
        try:
            self.dynamo.put(Put(self.table, encode_quarantined(copy), Absent("part")))
        except ConditionFailed as there:
            item = there.item or {}
            return "queued_at" not in item and "handled_at" not in item
        except _FOR_GOOD:
            return True
        return True

    def told(self, copy: QuarantinedRecord) -> None:
        """Note that its message was sent: a write unit for each KB of it.

        Where that fails, the message is sent once more if the record is delivered again; the record
        itself is safe, so its stream goes on.
        """
        with suppress(CountledgerError):
            self.dynamo.update(
                Update(
                    self.table,
                    key_of(copy.id),
                    (Assign("queued_at", self.clock.now_ms()),),
                    Compare("at", "=", copy.at_ms),
                )
            )

    def find(self, copy_id: str) -> QuarantinedRecord | None:
        """A copy, or None: a read unit for each 4 KB of it.

        Raises:
            NotQuarantined: no copy can be called so.
            CorruptItem: it cannot be read.
        """
        item = self.dynamo.get(self.table, key_of(copy_id), consistent=True)
        return None if item is None else decode_quarantined(item)

    def newest(
        self, source: QuarantineSource | None = None, on_corrupt: OnCorrupt | None = None
    ) -> Iterator[QuarantinedRecord]:
        """The copies of a source, or of all, newest first by when their records were made.

        Half a read unit for each 4 KB read; nothing else of the table is.

        Args:
            source: of which stream; None: of all.
            on_corrupt: called with the error of each copy that cannot be read, which is left out.

        Raises:
            CorruptItem: a copy cannot be read, and `on_corrupt` is not given.
        """
        sources = QuarantineSource if source is None else (source,)
        feeds = (self._of(one, on_corrupt) for one in sources)
        return merge(*feeds, key=lambda copy: copy.place, reverse=True)

    def _of(
        self, source: QuarantineSource, on_corrupt: OnCorrupt | None
    ) -> Iterator[QuarantinedRecord]:
        condition = Compare("counter", "=", keys.QUARANTINE_PREFIX + source)
        read = Query(self.table, condition, forward=False, page_size=_PAGE)
        for page in self.dynamo.pages(read):
            yield from decoded(page, decode_quarantined, on_corrupt)

    def handle(self, copy: QuarantinedRecord, handled: QuarantineHandling) -> QuarantinedRecord:
        """Note that a person has handled it: a write unit for each KB. It goes in ninety days.

        Returns:
            The copy as it is now; where somebody else was first, with their name.

        Raises:
            NotQuarantined: it is not there any more.
        """
        expires_at = (handled.at_ms + QUARANTINE_HANDLED_LIFE_MS) // SECOND_MS
        clauses = (
            Assign("handled_at", handled.at_ms),
            Assign("handled_how", str(handled.how)),
            Assign("handled_by", handled.by),
            Assign("expires_at", expires_at),
        )
        waiting = AllOf(Compare("at", "=", copy.at_ms), Absent("handled_at"))
        update = Update(self.table, key_of(copy.id), clauses, waiting, returning="ALL_NEW")
        try:
            item = self.dynamo.update(update)
        except ConditionFailed as refused:
            item = refused.item
        if not item:
            raise NotQuarantined(f"{copy.id} is not in quarantine any more")
        return decode_quarantined(item)
