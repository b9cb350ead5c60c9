"""The pieces in which a batch is written, so that every invocation comes further.

    records with few messages     whole records together, up to the size of a piece
    a record with more            piece by piece; how many of its messages are done is stored

An invocation finishes at least its first piece. If it ends after that, the shard is delivered again
from the first record that is not finished: a record with any number of messages is done after some
invocations. What is stored is only ever true (these messages are in the ledger or in quarantine),
so it does not matter which invocation stored it last; without it the record is begun again, and the
entries that are in the ledger count once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from countledger.ledger import keys
from countledger.ledger.attributes import optional
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.limits import INGEST_PROGRESS_LIFE_MS, SECOND_MS
from countledger.ledger.operations import Put
from countledger.producers.ingest.entries import DecodedEntry, RejectedEvent, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from countledger.ledger.dynamo import DynamoClient
    from countledger.producers.ingest.entries import RecordContent


class PartOfRecord(NamedTuple):
    """Where a piece ends within a record.

    Attributes:
        sequence: the sequence number of the record.
        messages: how many messages the record has.
        through: how many of them are done with this piece.
    """

    sequence: str
    messages: int
    through: int


class IngestPiece(NamedTuple):
    """What is written between two looks at the deadline.

    Attributes:
        payloads: of whole records, or of a part of one.
        until: the index of the first record that is not finished after it.
        part: where it ends within a record; None: at the end of one.
    """

    payloads: Sequence[DecodedEntry | RejectedEvent]
    until: int
    part: PartOfRecord | None


def pieces_of(
    records: Sequence[Mapping[str, Any]],
    origin: str,
    done: Callable[[RecordContent], int],
    size: int,
) -> Iterator[IngestPiece]:
    """The pieces of a batch in order; a record is decoded when its piece is wanted.

    Args:
        records: as Lambda delivers them.
        origin: the region where entries are written.
        done: how many messages of a long record are done.
        size: how many payloads a piece has at the most.

    Raises:
        BadPayload: a record is not one of Kinesis.
    """
    held: list[DecodedEntry | RejectedEvent] = []
    for number, record in enumerate(records):
        content = read(number, record, origin)
        if held and len(held) + len(content.payloads) > size:
            yield IngestPiece(held, number, None)
            held = []
        if len(content.payloads) <= size:
            held += content.payloads
        else:
            yield from _pieces_of_one(content, done(content), size)
    if held:
        yield IngestPiece(held, len(records), None)


def _pieces_of_one(content: RecordContent, done: int, size: int) -> Iterator[IngestPiece]:
    # What is rejected of the record comes first, so it is done as soon as anything is.
    left = [one for one in content.payloads if not done or _index_of(one) >= done]
    number = content.place.record
    for begin in range(0, len(left), size):
        some = left[begin : begin + size]
        if begin + size >= len(left):
            yield IngestPiece(some, number + 1, None)
            return
        through = _index_of(some[-1]) + 1
        yield IngestPiece(
            some, number, PartOfRecord(content.place.sequence, content.messages, through)
        )


def _index_of(one: DecodedEntry | RejectedEvent) -> int:
    """The index of an entry within its record; what is rejected has none after the first piece."""
    return one.place.part or 0 if isinstance(one, DecodedEntry) else -1


@dataclass(frozen=True, slots=True)
class RecordProgress:
    """How far the ingest has come within long records.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry.
        table: the table `counters`.
        clock: gives the time.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)

    def done(self, stream: str, shard: str, content: RecordContent) -> int:
        """How many messages of a record are done: one read unit; 0 for a record of other content.

        Raises:
            CountledgerError: the item cannot be read.
        """
        key = keys.ingest_key(stream, shard, content.place.sequence)
        item = self.dynamo.get(self.table, key, consistent=True) or {}
        if optional(item, "messages", int) != content.messages:
            return 0  # another release took its lines for other messages
        return optional(item, "through", int) or 0

    def save(self, stream: str, shard: str, part: PartOfRecord) -> None:
        """Store how many messages of a record are done: one write unit. TTL deletes it in a day.

        Raises:
            CountledgerError: it is not stored.
        """
        expires_at = (self.clock.now_ms() + INGEST_PROGRESS_LIFE_MS) // SECOND_MS
        item = {
            **keys.ingest_key(stream, shard, part.sequence),
            "messages": part.messages,
            "through": part.through,
            "expires_at": expires_at,
        }
        self.dynamo.put(Put(self.table, item))
