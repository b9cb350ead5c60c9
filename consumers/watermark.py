"""The watermark: up to where of a stream shard a total has taken in its records.

It lies in the total's own item, so that effect and watermark are one write. A shard delivers in
order the first time, so whatever is at or below the watermark has been applied.

A counter's records come from several shards at once (its entries may lie in several partitions,
and every shard is replaced by a child within hours), so there is one watermark per shard, each an
attribute of its own: `w` and a hash of the shard, holding 17 bytes of sequence number and 4 bytes
of the minute when it was last moved. Compared as bytes, the sequence number decides. It goes once
its shard's progress has been past it for long enough (`passed`), so that a total carries those of
the open shards and a few more, of 34 bytes each, and stays below 1 KB, which is one write unit.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from countledger.ledger.limits import MINUTE_MS, WATERMARK_LIFE_MS

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item

PREFIX: Final = "w"
# Sequence numbers have up to 40 digits; DynamoDB's numbers hold 38, and texts of different
# lengths do not compare like numbers.
_SEQUENCE_BYTES: Final = 17
_MINUTE_BYTES: Final = 4
_SHARD_HASH_BYTES: Final = 9
# Below this many stale ones the clean-up would cost more writes than it saves.
STALE_ENOUGH: Final = 4

# Behind every sequence number: nothing is left of that shard.
END: Final = 10**40

if 1 << 8 * _SEQUENCE_BYTES <= END:
    raise AssertionError("a sequence number of 40 digits must fit")


def attribute(shard: str) -> str:
    """The attribute that holds the watermark of a stream shard."""
    digest = blake2b(shard.encode(), digest_size=_SHARD_HASH_BYTES).digest()
    return PREFIX + urlsafe_b64encode(digest).decode()


def encode(sequence: int, moved_at_ms: int) -> bytes:
    """A watermark's value."""
    minute = moved_at_ms // MINUTE_MS
    return sequence.to_bytes(_SEQUENCE_BYTES) + minute.to_bytes(_MINUTE_BYTES)


def floor(sequence: int) -> bytes:
    """The least value a watermark at this sequence number can have: all below lie before it."""
    return sequence.to_bytes(_SEQUENCE_BYTES) + bytes(_MINUTE_BYTES)


def sequence_in(total: Item | None, shard: str) -> int | None:
    """The sequence number of a shard's watermark in a total's item, or None."""
    value = (total or {}).get(attribute(shard))
    return sequence_of(value) if isinstance(value, bytes) else None


def sequence_of(value: bytes) -> int:
    """The sequence number in a watermark's value."""
    return int.from_bytes(value[:_SEQUENCE_BYTES])


def marks_in(total: Item) -> dict[str, bytes]:
    """All watermarks of a total, by attribute."""
    return {
        name: value
        for name, value in total.items()
        if name.startswith(PREFIX) and isinstance(value, bytes)
    }


def stale(total: Item, now_ms: int) -> dict[str, bytes]:
    """The watermarks not moved for so long that no record they would refuse can still come."""
    limit = (now_ms - WATERMARK_LIFE_MS) // MINUTE_MS
    return {
        name: value
        for name, value in marks_in(total).items()
        if int.from_bytes(value[_SEQUENCE_BYTES:]) < limit
    }
