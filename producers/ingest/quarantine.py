"""The quarantine of the ingest: two queues, one for what expired and one for all else.

What expired may be worth sending again, by an operator's decision; nothing else here ever becomes
right by waiting. A message carries many, each with its bytes, its place in the stream and the
reason.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.ledger.errors import Unclear
from countledger.ledger.service_errors import translated
from countledger.producers.ingest.reading import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_sqs import SQSClient

    from countledger.producers.ingest.reading import Rejected

FORMAT: Final = 1
# SQS takes 256 KB in one message everywhere.
MESSAGE_MAX_BYTES: Final = 200_000
# Of a larger record that is broken as a whole, the rest can be read from the stream itself.
_PAYLOAD_MAX_BYTES: Final = 60_000
_REASON_MAX_CHARACTERS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Letter:
    """One message for a queue.

    Attributes:
        body: its text, in ASCII.
        records: the places, in the batch, of the records that it speaks of.
    """

    body: str
    records: tuple[int, ...]


class Quarantine(Protocol):
    """Takes what will not be in the ledger."""

    def put(self, letter: Letter, *, expired: bool) -> None:
        """Keep a message; return only when it is kept.

        Raises:
            CountledgerError: it is not.
        """


@dataclass(frozen=True, slots=True)
class QueueQuarantine:
    """A quarantine that is two SQS queues.

    Attributes:
        client: of SQS.
        queue_url: the queue for what is broken or refused.
        expired_queue_url: the queue for what expired.
    """

    client: SQSClient
    queue_url: str
    expired_queue_url: str

    def put(self, letter: Letter, *, expired: bool) -> None:
        """Keep a message: one request."""
        url = self.expired_queue_url if expired else self.queue_url
        with translated("SendMessage to the quarantine of the ingest"):
            answer = self.client.send_message(QueueUrl=url, MessageBody=letter.body)
        if "MessageId" not in answer:
            raise Unclear("SendMessage to the quarantine of the ingest: no clear answer")


def letters(rejected: Sequence[Rejected], stream: str, shard: str) -> Iterator[Letter]:
    """The messages that tell of these, in their order, each small enough for a queue."""
    head = json.dumps({"format": FORMAT, "stream": stream, "shard": shard})[:-1]
    texts: list[str] = []
    records: list[int] = []
    size = 0
    for one in rejected:
        text = json.dumps(_document(one))
        if texts and size + len(text) > MESSAGE_MAX_BYTES:
            yield _letter(head, texts, records)
            texts, records, size = [], [], 0
        texts.append(text)
        records.append(one.place.record)
        size += len(text) + 1
    if texts:
        yield _letter(head, texts, records)


def _letter(head: str, texts: list[str], records: list[int]) -> Letter:
    body = f'{head}, "rejected": [{",".join(texts)}]}}'
    return Letter(body, tuple(sorted(set(records))))


def _document(one: Rejected) -> dict[str, Any]:
    """One of them as JSON; text as it is, where it is text."""
    document: dict[str, Any] = {
        "kind": str(one.kind),
        "reason": one.reason[:_REASON_MAX_CHARACTERS],
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


def is_expired(one: Rejected) -> bool:
    """Whether it goes into the queue for what expired."""
    return one.kind is Kind.EXPIRED
