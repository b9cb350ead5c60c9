"""The quarantine: a queue for records that can never be applied, with the reason.

A record here has been passed by its counter's watermark. It is never fed again; `repair` heals
the counter, and the record tells which one and why.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_sqs import SQSClient

# SQS takes 256 KB in one message; an item with both its images can be larger.
_MAX_BYTES: Final = 200_000
_REASON_MAX_CHARACTERS: Final = 2_000


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
        with translated("SendMessage to the quarantine"):
            self.client.send_message(
                QueueUrl=self.queue_url, MessageBody=body(record, reason, shard)
            )


def body(record: Mapping[str, Any], reason: str, shard: str) -> str:
    """The message: reason, shard and the record; of a huge one its keys alone.

    Whatever the record is, its message fits: one that the queue refused would block its stream.
    """
    message = {"reason": reason[:_REASON_MAX_CHARACTERS], "shard": shard}
    text = _json({**message, "record": record})
    if len(text) <= _MAX_BYTES:
        return text
    short = _json({**message, "record": _keys_of(record)})
    if len(short) <= _MAX_BYTES:
        return short
    # Escaped once more, a character may take twice its place.
    cut = text[: _MAX_BYTES // 3]
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
