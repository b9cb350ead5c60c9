"""The quarantine of the stream consumers: records that can never be applied, with the reason.

The watermark of its counter has passed such a record, so it is never delivered again; `repair`
corrects the counter. Each record is kept as an item until a person resends or discards it, and a
message in a queue raises an alarm (see `ledger.quarantine` for the order).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from countledger.consumers.record import MalformedRecord, created_at_ms, sequence_of
from countledger.ledger import keys
from countledger.ledger.limits import MESSAGE_MAX_BYTES, REASON_MAX_CHARACTERS
from countledger.ledger.quarantine import (
    CONTENT_MAX_BYTES,
    QuarantinedRecord,
    QuarantineSource,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.ledger.message_queue import MessageQueue
    from countledger.ledger.quarantine import QuarantineStore


@dataclass(frozen=True, slots=True)
class StoredQuarantine:
    """Keeps each record once as an item, and sends a message about it."""

    store: QuarantineStore
    queue: MessageQueue
    source: QuarantineSource

    def put(self, record: Mapping[str, Any], reason: str, shard: str) -> None:
        """Keep a record: two write units for each KB of it, and one message.

        If it is delivered again: one write unit for each KB, and no message.
        """
        kept = quarantined_of(
            record, reason, shard, self.source, self.store.connection.clock.now_ms()
        )
        self.store.keep_with_message(kept, self.queue, body(record, reason, shard, kept.id))


def quarantined_of(
    record: Mapping[str, Any], reason: str, shard: str, source: QuarantineSource, now_ms: int
) -> QuarantinedRecord:
    """The form in which a record is kept; it has the same id however often it is delivered.

    A record without a sequence number is identified by its whole content. A record of `counters`
    may be quarantined for several rules, once for each reason.
    """
    at_ms = _time_of(record)
    try:
        sequence: str | None = str(sequence_of(record))
    except MalformedRecord:
        sequence = None
    identity = _json(record) if sequence is None else sequence
    why = reason if source is QuarantineSource.COUNTERS else ""
    content, cut = _content(record)
    return QuarantinedRecord(
        source=source,
        place=keys.quarantine_place(at_ms, _json([shard, identity, why])),
        where=shard,
        reason=reason,
        kind="malformed",
        content=content,
        cut_from_bytes=cut,
        counter=_counter_of(record),
        sequence=sequence,
        at_ms=at_ms,
        kept_at_ms=now_ms,
    )


def _content(record: Mapping[str, Any]) -> tuple[bytes, int | None]:
    """The record as JSON. If it is too long: its keys or its beginning, and its length."""
    text = _json(record)
    if len(text) <= CONTENT_MAX_BYTES:
        return text.encode(), None
    short = _json(_keys_of(record))
    kept = short if len(short) <= CONTENT_MAX_BYTES else text[:CONTENT_MAX_BYTES]
    return kept.encode(), len(text)


def _time_of(record: Mapping[str, Any]) -> int:
    """When the stream created it; 0 if the record has no possible time."""
    try:
        at_ms = created_at_ms(record)
    except MalformedRecord:
        return 0
    return at_ms if 0 < at_ms < keys.TIME_END_MS else 0


def _counter_of(record: Mapping[str, Any]) -> str | None:
    try:
        name: str = record["dynamodb"]["Keys"]["counter"]["S"]
    except (KeyError, TypeError):
        return None
    return name if keys.is_counter(name) else None


def body(record: Mapping[str, Any], reason: str, shard: str, quarantine_id: str) -> str:
    """The message: reason, shard, the id in quarantine, the record (only its keys if it is huge).

    Every message fits: a message that the queue refused would block the stream.
    """
    message = {
        "reason": reason[:REASON_MAX_CHARACTERS],
        "shard": shard,
        "quarantine_id": quarantine_id,
    }
    text = _json({**message, "record": record})
    if len(text) <= MESSAGE_MAX_BYTES:
        return text
    short = _json({**message, "record": _keys_of(record)})
    if len(short) <= MESSAGE_MAX_BYTES:
        return short
    # JSON escapes some characters a second time: each then takes twice its size.
    cut = text[: MESSAGE_MAX_BYTES // 3]
    return _json({**message, "record": None, "beginning": cut})


def _keys_of(record: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        stream = record["dynamodb"]
        kept = {name: stream.get(name) for name in ("Keys", "SequenceNumber")}
    except (KeyError, TypeError, AttributeError):
        return None
    return {**record, "dynamodb": kept, "imagesLeftOut": "too large for a message"}


def _json(value: object) -> str:
    """As ASCII: a character is a byte."""
    return json.dumps(value, default=str)
