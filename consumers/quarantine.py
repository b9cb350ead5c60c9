"""The quarantine: where records go that can never be applied, with the reason.

A record here has been passed by its counter's watermark. It is never fed again; `repair` heals
the counter, and the record tells which one and why. Each is kept as an item until a person has
handled it, and a message in a queue tells of it (see `ledger.quarantine_store` for their order).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from countledger.consumers.record import MalformedRecord, created_at_ms, sequence_of
from countledger.ledger import keys
from countledger.ledger.errors import Unclear
from countledger.ledger.limits import MESSAGE_MAX_BYTES, REASON_MAX_CHARACTERS
from countledger.ledger.quarantine_record import (
    CONTENT_MAX_BYTES,
    QuarantinedRecord,
    QuarantineSource,
)
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_sqs import SQSClient

    from countledger.ledger.quarantine_store import QuarantineStore


class Quarantine(Protocol):
    """Takes records that can never be applied."""

    def put(self, record: Mapping[str, Any], reason: str, shard: str) -> None:
        """Keep a record; return only when it is kept.

        Raises:
            ServiceFailed: it is not.
        """


@dataclass(frozen=True, slots=True)
class QueueQuarantine:
    """A quarantine that is an SQS queue.

    Attributes:
        client: of SQS.
        queue_url: the queue.
    """

    client: SQSClient
    queue_url: str

    def put(self, record: Mapping[str, Any], reason: str, shard: str) -> None:
        """Keep a record: one message."""
        self.send(body(record, reason, shard))

    def send(self, text: str) -> None:
        """Send a message.

        Raises:
            ServiceFailed: the queue does not have it.
        """
        with translated("SendMessage to the quarantine"):
            answer = self.client.send_message(QueueUrl=self.queue_url, MessageBody=text)
        if "MessageId" not in answer:
            raise Unclear("SendMessage to the quarantine: no clear answer (it names no message)")


@dataclass(frozen=True, slots=True)
class StoredQuarantine:
    """A quarantine that keeps each record as an item, once, and tells a queue of it.

    Attributes:
        copies: keeps them.
        queue: is told.
        source: whose records they are.
    """

    copies: QuarantineStore
    queue: QueueQuarantine
    source: QuarantineSource

    def put(self, record: Mapping[str, Any], reason: str, shard: str) -> None:
        """Keep a record: two write units for each KB of it, and one message.

        Delivered again, half of that and no message.
        """
        copy = quarantined_of(record, reason, shard, self.source, self.copies.clock.now_ms())
        if self.copies.keep(copy):
            self.queue.send(body(record, reason, shard, copy.id))
            self.copies.told(copy)


def quarantined_of(
    record: Mapping[str, Any], reason: str, shard: str, source: QuarantineSource, now_ms: int
) -> QuarantinedRecord:
    """The copy of a record; the same name however often it is delivered.

    A record without a sequence number is known by all that it says. One of `counters` may be set
    aside for several rules, each for a reason of its own.
    """
    try:
        sequence: str | None = str(sequence_of(record))
        at_ms = _time_of(record)
    except MalformedRecord:
        sequence, at_ms = None, _time_of(record)
    known_by = _json(record) if sequence is None else sequence
    why = reason if source is QuarantineSource.COUNTERS else ""
    content, cut = _content(record)
    return QuarantinedRecord(
        source=source,
        place=keys.quarantine_place(at_ms, _json([shard, known_by, why])),
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
    """The record as JSON, of a huge one its keys or its beginning; and how long it was then."""
    text = _json(record)
    if len(text) <= CONTENT_MAX_BYTES:
        return text.encode(), None
    short = _json(_keys_of(record))
    kept = short if len(short) <= CONTENT_MAX_BYTES else text[:CONTENT_MAX_BYTES]
    return kept.encode(), len(text)


def _time_of(record: Mapping[str, Any]) -> int:
    """When the stream made it; 0 where it tells no time that could be."""
    try:
        at_ms = created_at_ms(record)
    except MalformedRecord:
        return 0
    return at_ms if 0 < at_ms < keys.TIME_END_MS else 0


def _counter_of(record: Mapping[str, Any]) -> str | None:
    try:
        name = record["dynamodb"]["Keys"]["counter"]["S"]
    except (KeyError, TypeError):
        return None
    return name if isinstance(name, str) and keys.is_counter(name) else None


def body(record: Mapping[str, Any], reason: str, shard: str, copy: str | None = None) -> str:
    """The message: reason, shard, the name of its copy, the record; of a huge one its keys alone.

    Whatever the record is, its message fits: one that the queue refused would block its stream.
    """
    message = {"reason": reason[:REASON_MAX_CHARACTERS], "shard": shard}
    if copy is not None:
        message["copy"] = copy
    text = _json({**message, "record": record})
    if len(text) <= MESSAGE_MAX_BYTES:
        return text
    short = _json({**message, "record": _keys_of(record)})
    if len(short) <= MESSAGE_MAX_BYTES:
        return short
    # Escaped once more, a character may take twice its place.
    cut = text[: MESSAGE_MAX_BYTES // 3]
    return _json({**message, "record": None, "beginning": cut})


def _keys_of(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """What tells where a record belongs, where it has a shape at all."""
    try:
        stream = record["dynamodb"]
        kept = {name: stream.get(name) for name in ("Keys", "SequenceNumber")}
    except (KeyError, TypeError, AttributeError):
        return None
    return {**record, "dynamodb": kept, "imagesLeftOut": "too large for a message"}


def _json(value: object) -> str:
    """As ASCII, so that a character is a byte."""
    return json.dumps(value, default=str)
