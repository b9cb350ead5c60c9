"""The quarantine of the ingest: two queues, one for expired entries and one for all others.

An operator may decide to send an expired entry again; the others never become valid. A message has
many payloads, each with its bytes, its place in the stream and the reason. Each is also kept as an
item until a person has handled it (see `ledger.quarantine_store`).
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from hashlib import sha256
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.ledger.keys import is_counter, quarantine_place
from countledger.ledger.limits import MESSAGE_MAX_BYTES, REASON_MAX_CHARACTERS
from countledger.ledger.quarantine import (
    CONTENT_MAX_BYTES,
    QuarantinedRecord,
    QuarantineSource,
    id_of,
)
from countledger.ledger.suspension import WorkerThreads
from countledger.producers.ingest.entries import RejectionKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from countledger.ledger.message_queue import MessageQueue
    from countledger.ledger.quarantine import QuarantineStore
    from countledger.producers.ingest.entries import RejectedEvent

FORMAT: Final = 1
# The rest of a larger record that is broken as a whole can be read from the stream.
_PAYLOAD_MAX_BYTES: Final = 60_000
_WRITERS: Final = 8


@dataclass(frozen=True, slots=True)
class QuarantineMessage:
    """A message for a queue of the quarantine.

    Attributes:
        body: its text, in ASCII.
        records: the indexes, in the batch, of the records whose payloads it has.
        rejected: its payloads.
        stream, shard: where these came from.
    """

    body: str
    records: tuple[int, ...]
    rejected: tuple[RejectedEvent, ...]
    stream: str
    shard: str


class QuarantineSink(Protocol):
    """Takes payloads that will not be in the ledger."""

    def put(self, message: QuarantineMessage, *, expired: bool) -> None:
        """Keep the payloads of a message; return only when they are kept.

        Raises:
            CountledgerError: they are not kept.
        """


@dataclass(frozen=True, slots=True)
class IngestQueues:
    """The two queues.

    Attributes:
        rejected: the queue for malformed and refused payloads.
        expired: the queue for expired entries.
    """

    rejected: MessageQueue
    expired: MessageQueue

    def put(self, message: QuarantineMessage, *, expired: bool) -> None:
        """Send a message: one request."""
        (self.expired if expired else self.rejected).send(message.body)


@dataclass(frozen=True, slots=True)
class IngestQuarantine:
    """Keeps each payload once as an item, and sends messages about them.

    Attributes:
        store: keeps the payloads.
        queues: get the messages.
    """

    store: QuarantineStore
    queues: QuarantineSink

    def put(self, message: QuarantineMessage, *, expired: bool) -> None:
        """Keep payloads: two write units for each KB of each, and one message.

        If they are delivered again: one write unit for each KB, and no message.
        """
        now_ms = self.store.clock.now_ms()
        stream, shard = message.stream, message.shard
        records = [quarantined_of(one, stream, shard, now_ms) for one in message.rejected]
        with WorkerThreads(_WRITERS, "countledger-quarantine") as pool:
            owed = list(pool.map(self.store.keep, records))
            for part in messages_of(list(compress(message.rejected, owed)), stream, shard):
                self.queues.put(part, expired=expired)
            list(pool.map(self.store.mark_published, compress(records, owed)))


def quarantined_of(one: RejectedEvent, stream: str, shard: str, now_ms: int) -> QuarantinedRecord:
    """The form in which a payload is kept; it has the same id however often it is delivered."""
    content = one.payload[:CONTENT_MAX_BYTES]
    return QuarantinedRecord(
        source=QuarantineSource.KINESIS,
        place=_place_of(one, stream, shard),
        where=f"{stream}/{shard}",
        reason=one.reason,
        kind=str(one.kind),
        content=content,
        cut_from_bytes=len(one.payload) if len(content) < len(one.payload) else None,
        counter=_counter_in(one.payload),
        sequence=one.place.sequence,
        part=one.place.part,
        messages=one.messages,
        at_ms=one.place.arrived_ms,
        kept_at_ms=now_ms,
    )


def _place_of(one: RejectedEvent, stream: str, shard: str) -> str:
    where = json.dumps([stream, shard, one.place.sequence, one.place.part])
    return quarantine_place(one.place.arrived_ms, where)


def _counter_in(payload: bytes) -> str | None:
    """The counter named in a JSON payload, or None; for people only."""
    try:
        name = json.loads(payload)["counter"]
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        return None
    return name if isinstance(name, str) and is_counter(name) else None


def messages_of(
    rejected: Sequence[RejectedEvent], stream: str, shard: str
) -> Iterator[QuarantineMessage]:
    """The messages about rejected payloads, in order, each small enough for a queue."""
    texts: list[str] = []
    first = size = 0
    for number, one in enumerate(rejected):
        quarantine_id = id_of(QuarantineSource.KINESIS, _place_of(one, stream, shard))
        text = json.dumps({**_document(one), "quarantine_id": quarantine_id})
        if texts and size + len(text) > MESSAGE_MAX_BYTES:
            yield _message(texts, rejected[first:number], stream, shard)
            texts, first, size = [], number, 0
        texts.append(text)
        size += len(text) + 1
    if texts:
        yield _message(texts, rejected[first:], stream, shard)


def _message(
    texts: list[str], rejected: Sequence[RejectedEvent], stream: str, shard: str
) -> QuarantineMessage:
    head = json.dumps({"format": FORMAT, "stream": stream, "shard": shard})[:-1]
    body = f'{head}, "rejected": [{",".join(texts)}]}}'
    records = tuple(sorted({one.place.record for one in rejected}))
    return QuarantineMessage(body, records, tuple(rejected), stream, shard)


def _document(one: RejectedEvent) -> dict[str, Any]:
    """A rejected payload for JSON: text if it is text, otherwise base64."""
    document: dict[str, Any] = {
        "kind": str(one.kind),
        "reason": one.reason[:REASON_MAX_CHARACTERS],
        "sequence": one.place.sequence,
        "part": one.place.part,
        "arrived_ms": one.place.arrived_ms,
    }
    if one.messages > 1:
        document["messages"] = one.messages
    payload = one.payload[:_PAYLOAD_MAX_BYTES]
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = None
    # JSON escapes some characters: each takes up to six times its size.
    if text is not None and len(json.dumps(text)) <= 2 * _PAYLOAD_MAX_BYTES:
        document["text"] = text
    else:
        document["base64"] = base64.b64encode(payload).decode()
    if len(one.payload) > len(payload):
        document["cut_from_bytes"] = len(one.payload)
        document["sha256"] = sha256(one.payload).hexdigest()
    return document


def is_expired(one: RejectedEvent) -> bool:
    """Whether it goes to the queue of the expired entries."""
    return one.kind is RejectionKind.EXPIRED
