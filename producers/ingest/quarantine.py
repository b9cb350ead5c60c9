"""The quarantine of the ingest: two queues, one for what expired and one for all else.

What expired may be worth sending again, by an operator's decision; nothing else here ever becomes
right by waiting. A message carries many, each with its bytes, its place in the stream and the
reason. Each is also kept as an item until a person has handled it (see `ledger.quarantine_store`).
"""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from itertools import compress
from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.ledger.errors import Unclear
from countledger.ledger.keys import is_counter, quarantine_place
from countledger.ledger.limits import MESSAGE_MAX_BYTES, REASON_MAX_CHARACTERS
from countledger.ledger.quarantine_record import (
    CONTENT_MAX_BYTES,
    QuarantinedRecord,
    QuarantineSource,
    id_of,
)
from countledger.ledger.service_errors import translated
from countledger.producers.ingest.reading import RejectionKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_sqs import SQSClient

    from countledger.ledger.quarantine_store import QuarantineStore
    from countledger.producers.ingest.reading import RejectedEvent

FORMAT: Final = 1
# Of a larger record that is broken as a whole, the rest can be read from the stream itself.
_PAYLOAD_MAX_BYTES: Final = 60_000
_WRITERS: Final = 8


@dataclass(frozen=True, slots=True)
class QuarantineMessage:
    """One message for a queue.

    Attributes:
        body: its text, in ASCII.
        records: the places, in the batch, of the records that it speaks of.
        rejected: what it carries.
        stream, shard: where that came from.
    """

    body: str
    records: tuple[int, ...]
    rejected: tuple[RejectedEvent, ...]
    stream: str
    shard: str


class QuarantineSink(Protocol):
    """Takes what will not be in the ledger."""

    def put(self, letter: QuarantineMessage, *, expired: bool) -> None:
        """Keep a message; return only when it is kept.

        Raises:
            CountledgerError: it is not.
        """


@dataclass(frozen=True, slots=True)
class IngestQueues:
    """A quarantine that is two SQS queues.

    Attributes:
        client: of SQS.
        queue_url: the queue for what is broken or refused.
        expired_queue_url: the queue for what expired.
    """

    client: SQSClient
    queue_url: str
    expired_queue_url: str

    def put(self, letter: QuarantineMessage, *, expired: bool) -> None:
        """Keep a message: one request."""
        url = self.expired_queue_url if expired else self.queue_url
        with translated("SendMessage to the quarantine of the ingest"):
            answer = self.client.send_message(QueueUrl=url, MessageBody=letter.body)
        if "MessageId" not in answer:
            raise Unclear("SendMessage to the quarantine of the ingest: no clear answer")


@dataclass(frozen=True, slots=True)
class IngestQuarantine:
    """A quarantine that keeps each as an item, once, and tells its queues of them.

    Attributes:
        copies: keeps them.
        queues: are told.
    """

    copies: QuarantineStore
    queues: QuarantineSink

    def put(self, letter: QuarantineMessage, *, expired: bool) -> None:
        """Keep what a message carries: two write units for each KB of each, and one message.

        Delivered again, half of that and no message.
        """
        now_ms = self.copies.clock.now_ms()
        copies = [
            quarantined_of(one, letter.stream, letter.shard, now_ms) for one in letter.rejected
        ]
        with ThreadPoolExecutor(_WRITERS, "countledger-quarantine") as pool:
            owed = list(pool.map(self.copies.keep, copies))
            untold = list(compress(letter.rejected, owed))
            for again in messages_of(untold, letter.stream, letter.shard):
                self.queues.put(again, expired=expired)
            list(pool.map(self.copies.told, compress(copies, owed)))


def quarantined_of(one: RejectedEvent, stream: str, shard: str, now_ms: int) -> QuarantinedRecord:
    """The copy of something rejected; the same name however often its record is delivered."""
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
        at_ms=one.place.arrived_ms,
        kept_at_ms=now_ms,
    )


def _place_of(one: RejectedEvent, stream: str, shard: str) -> str:
    where = json.dumps([stream, shard, one.place.sequence, one.place.part])
    return quarantine_place(one.place.arrived_ms, where)


def _counter_in(payload: bytes) -> str | None:
    """The counter that a payload names, if it says so in JSON; for people alone."""
    try:
        name = json.loads(payload)["counter"]
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        return None
    return name if isinstance(name, str) and is_counter(name) else None


def messages_of(
    rejected: Sequence[RejectedEvent], stream: str, shard: str
) -> Iterator[QuarantineMessage]:
    """The messages that tell of these, in their order, each small enough for a queue."""
    texts: list[str] = []
    first = size = 0
    for number, one in enumerate(rejected):
        copy_id = id_of(QuarantineSource.KINESIS, _place_of(one, stream, shard))
        text = json.dumps({**_document(one), "copy": copy_id})
        if texts and size + len(text) > MESSAGE_MAX_BYTES:
            yield _letter(texts, rejected[first:number], stream, shard)
            texts, first, size = [], number, 0
        texts.append(text)
        size += len(text) + 1
    if texts:
        yield _letter(texts, rejected[first:], stream, shard)


def _letter(
    texts: list[str], rejected: Sequence[RejectedEvent], stream: str, shard: str
) -> QuarantineMessage:
    head = json.dumps({"format": FORMAT, "stream": stream, "shard": shard})[:-1]
    body = f'{head}, "rejected": [{",".join(texts)}]}}'
    records = tuple(sorted({one.place.record for one in rejected}))
    return QuarantineMessage(body, records, tuple(rejected), stream, shard)


def _document(one: RejectedEvent) -> dict[str, Any]:
    """One of them as JSON; text as it is, where it is text."""
    document: dict[str, Any] = {
        "kind": str(one.kind),
        "reason": one.reason[:REASON_MAX_CHARACTERS],
        "sequence": one.place.sequence,
        "part": one.place.part,
        "arrived_ms": one.place.arrived_ms,
    }
    payload = one.payload[:_PAYLOAD_MAX_BYTES]
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = None
    # Escaped, a character of text may take six times its place.
    if text is not None and len(json.dumps(text)) <= 2 * _PAYLOAD_MAX_BYTES:
        document["text"] = text
    else:
        document["base64"] = base64.b64encode(payload).decode()
    if len(one.payload) > len(payload):
        document["cut_from_bytes"] = len(one.payload)
        document["sha256"] = sha256(one.payload).hexdigest()
    return document


def is_expired(one: RejectedEvent) -> bool:
    """Whether it goes into the queue for what expired."""
    return one.kind is RejectionKind.EXPIRED
