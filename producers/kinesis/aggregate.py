"""Packs and unpacks aggregated records in the format of the Kinesis Producer Library, without I/O.

    magic (4 bytes), a protobuf message, the MD5 of that message (16 bytes)

All entries of a record share one partition key. The shard does not affect how they are counted, so
the key is the id of the first entry, whose hash spreads the records over all shards. (A consumer
that checks the key of each entry against its shard accepts them all.)
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import md5
from typing import TYPE_CHECKING, Final

from countledger.producers.kinesis.library import DIGEST_SIZE, MAGIC, DecodeError, new_aggregate
from countledger.producers.kinesis.message import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.ledger.entry import Entry

# The limit of the Kinesis Producer Library: two put units of 25 KB. Larger records save nothing,
# and a record that fails is sent again as a whole.
TARGET_BYTES: Final = 51_200


class BrokenAggregate(Exception):
    """An aggregated record cannot be unpacked; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A record of the stream.

    Attributes:
        partition_key: determines the shard.
        data: the packed entries.
        entries: the same entries, in order.
    """

    partition_key: str
    data: bytes
    entries: tuple[Entry, ...]

    @property
    def size_bytes(self) -> int:
        """The size that the limits apply to: data and partition key."""
        return len(self.data) + len(self.partition_key)


def pack(entries: Iterable[Entry], limit_bytes: int = TARGET_BYTES) -> Iterator[Aggregate]:
    """Pack entries, in order, into records of at most `limit_bytes`, partition key included.

    An entry has at most 16 KB, so it fits into any larger limit.
    """
    held: list[Entry] = []
    payloads: list[bytes] = []
    size = 0
    for entry in entries:
        payload = encode(entry)
        more = _record_bytes(len(payload))
        if held and size + more > limit_bytes:
            yield _sealed(held, payloads)
            held, payloads = [], []
        if not held:
            size = _frame_bytes(len(entry.id))
        held.append(entry)
        payloads.append(payload)
        size += more
    if held:
        yield _sealed(held, payloads)


def _sealed(entries: list[Entry], payloads: list[bytes]) -> Aggregate:
    partition_key = entries[0].id  # ASCII for each kind of id
    aggregate = new_aggregate()
    aggregate.partition_key_table.append(partition_key)
    add = aggregate.records.add
    for payload in payloads:
        add(partition_key_index=0, data=payload)
    message = aggregate.SerializeToString()
    return Aggregate(partition_key, MAGIC + message + _digest(message), tuple(entries))


def _frame_bytes(key_bytes: int) -> int:
    """The size of a record without entries; its partition key is in the data too."""
    table = 1 + _varint_bytes(key_bytes) + key_bytes
    return len(MAGIC) + table + DIGEST_SIZE + key_bytes


def _record_bytes(payload_bytes: int) -> int:
    """The size of an entry in a record: tag and length, index of its key (two bytes), and data."""
    inner = 2 + 1 + _varint_bytes(payload_bytes) + payload_bytes
    return 1 + _varint_bytes(inner) + inner


def _varint_bytes(value: int) -> int:
    bits: int = value.bit_length()
    return (max(bits, 1) + 6) // 7


def unpack(data: bytes) -> list[bytes]:
    """The payloads in a record of the stream; a plain record is one payload.

    No JSON text begins with the magic bytes, so the two kinds cannot be confused.

    Raises:
        BrokenAggregate: the record begins with the magic bytes, and its checksum or message is
            wrong.
    """
    if not data.startswith(MAGIC):
        return [data]
    message, digest = data[len(MAGIC) : -DIGEST_SIZE], data[-DIGEST_SIZE:]
    if len(data) < len(MAGIC) + DIGEST_SIZE:
        raise BrokenAggregate(f"an aggregated record of {len(data)} bytes: it was cut short")
    if _digest(message) != digest:
        raise BrokenAggregate("the checksum of the aggregated record is wrong")
    aggregate = new_aggregate()
    try:
        aggregate.ParseFromString(message)
    except DecodeError:
        raise BrokenAggregate("the aggregated record is no protobuf message of its kind") from None
    # If the index of a partition key is invalid, the entry itself is still complete.
    return [record.data for record in aggregate.records]


def _digest(message: bytes) -> bytes:
    return md5(message, usedforsecurity=False).digest()
