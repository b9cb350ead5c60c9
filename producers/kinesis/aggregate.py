"""Aggregated records, in the format of the Kinesis Producer Library: packed and unpacked, purely.

    magic (4 bytes), a protobuf message, the MD5 of that message (16 bytes)

One partition key serves all entries of a record. Where they are counted does not depend on the
shard, so it is that of the first entry, whose hash spreads the records over all shards. (A consumer
that checks each entry's key against its shard finds them all at home.)
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

# What the Kinesis Producer Library takes: two of its put units of 25 KB. Larger ones save nothing,
# and one that fails is sent again whole.
TARGET_BYTES: Final = 51_200


class BrokenAggregate(Exception):
    """A record that says it is aggregated, and cannot be; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A record of the stream.

    Attributes:
        partition_key: decides on the shard.
        data: the packed entries.
        entries: those entries, in order.
    """

    partition_key: str
    data: bytes
    entries: tuple[Entry, ...]

    @property
    def size_bytes(self) -> int:
        """What counts against the limits: data and partition key."""
        return len(self.data) + len(self.partition_key)


def pack(entries: Iterable[Entry], limit_bytes: int = TARGET_BYTES) -> Iterator[Aggregate]:
    """Pack entries, in their order, into records of at most so many bytes, key included.

    An entry is at most 16 KB large, so that it fits any limit above that.
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
    partition_key = entries[0].id  # ASCII, whatever its kind
    aggregate = new_aggregate()
    aggregate.partition_key_table.append(partition_key)
    add = aggregate.records.add
    for payload in payloads:
        add(partition_key_index=0, data=payload)
    message = aggregate.SerializeToString()
    return Aggregate(partition_key, MAGIC + message + _digest(message), tuple(entries))


def _frame_bytes(key_bytes: int) -> int:
    """What a record takes without its entries: the key stands in its table, and beside it."""
    table = 1 + _varint_bytes(key_bytes) + key_bytes
    return len(MAGIC) + table + DIGEST_SIZE + key_bytes


def _record_bytes(payload_bytes: int) -> int:
    """What an entry takes: its tag and length, the index of its key (two bytes), its data."""
    inner = 2 + 1 + _varint_bytes(payload_bytes) + payload_bytes
    return 1 + _varint_bytes(inner) + inner


def _varint_bytes(value: int) -> int:
    bits: int = value.bit_length()
    return (max(bits, 1) + 6) // 7


def unpack(data: bytes) -> list[bytes]:
    """The payloads in a record of the stream; a plain record is one payload.

    No text of JSON begins with the format's magic, so nothing can pass for the other.

    Raises:
        BrokenAggregate: it begins with the magic, and checksum or message are wrong.
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
    # Where an index of a partition key leads nowhere, the entry itself is whole all the same.
    return [record.data for record in aggregate.records]


def _digest(message: bytes) -> bytes:
    return md5(message, usedforsecurity=False).digest()
