"""The quarantine of records that a function got and that are not of its own stream."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from countledger.ledger import keys
from countledger.ledger.foreign_events import source_name
from countledger.ledger.limits import REASON_MAX_CHARACTERS
from countledger.ledger.quarantine_record import (
    CONTENT_MAX_BYTES,
    FOREIGN_KIND,
    QuarantinedRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from countledger.ledger.message_queue import MessageQueue
    from countledger.ledger.quarantine import QuarantineStore
    from countledger.ledger.quarantine_record import QuarantineSource


@dataclass(frozen=True, slots=True)
class ForeignEvents:
    """Keeps foreign events in quarantine.

    Attributes:
        store: keeps them.
        queue: gets a message about each.
        source: of the function that got them.
    """

    store: QuarantineStore
    queue: MessageQueue
    source: QuarantineSource

    def keep(self, records: Sequence[Any], reason: str) -> None:
        """Keep the records of an event: two write units for each KB, and a message per 300 KB.

        The same event delivered again has the same items, and no message.

        Raises:
            ServiceFailed: they are not kept; the event must be delivered again.
        """
        now_ms = self.store.clock.now_ms()
        for content, count in _parts(records):
            kept = QuarantinedRecord(
                source=self.source,
                place=keys.quarantine_place(0, content.decode()),
                where=source_name(records[0]),
                reason=reason,
                kind=FOREIGN_KIND,
                content=content[:CONTENT_MAX_BYTES],
                cut_from_bytes=len(content) if len(content) > CONTENT_MAX_BYTES else None,
                messages=count,
                kept_at_ms=now_ms,
            )
            message = {"reason": reason[:REASON_MAX_CHARACTERS], "quarantine_id": kept.id}
            self.store.keep_with_message(kept, self.queue, json.dumps(message))


def _parts(records: Sequence[Any]) -> Iterator[tuple[bytes, int]]:
    """The records as lists of JSON that fit into an item; one that is larger is alone."""
    held: list[str] = []
    size = 0
    for record in records:
        text = json.dumps(record, default=str)
        if held and size + len(text) + 2 > CONTENT_MAX_BYTES:
            yield f"[{', '.join(held)}]".encode(), len(held)
            held, size = [], 0
        held.append(text)
        size += len(text) + 2
    if held:
        yield f"[{', '.join(held)}]".encode(), len(held)
