"""Watermarks: up to which record of a stream shard a total contains the shard's records.

A watermark is an attribute of the total's own item, so effect and watermark are one write. A shard
delivers its records in order the first time, so each record at or below the watermark has been
applied.

A counter's records come from several shards (its entries may be in several partitions, and each
shard is replaced by a child within hours). So a total has one watermark for each shard: an
attribute named `w` and a hash of the shard, which holds 17 bytes of sequence number and 4 bytes of
the minute when the watermark was last moved. Compared as bytes, the sequence number decides.

A watermark is removed when it can refuse nothing any more. Each delivered record is first compared
with the shard's progress, and dropped if it is at or below it. So a watermark at or below the
progress refuses only writes of invocations that began before the progress was stored. Once these
writes have landed, the watermark can go. A total therefore has the watermarks of the open shards
and a few more, of 34 bytes each, and stays below 1 KB, which is one write unit.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Final

from countledger.consumers.directory import known_shards
from countledger.consumers.progress import END, ShardProgress, decode_progress
from countledger.ledger import keys
from countledger.ledger.errors import CorruptItem
from countledger.ledger.limits import LATE_WRITE_MS, MINUTE_MS, WATERMARK_LIFE_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient

PREFIX: Final = "w"
# Sequence numbers have up to 40 digits; DynamoDB's numbers hold 38, and texts of different
# lengths do not compare like numbers.
_SEQUENCE_BYTES: Final = 17
_MINUTE_BYTES: Final = 4
_SHARD_HASH_BYTES: Final = 9
# Below this many stale ones the clean-up would cost more writes than it saves.
STALE_ENOUGH: Final = 4

if 1 << 8 * _SEQUENCE_BYTES <= END:
    raise AssertionError("a sequence number of 40 digits must fit")


@lru_cache(maxsize=1_000)
def attribute(shard: str) -> str:
    """The attribute that holds the watermark of a stream shard."""
    digest = blake2b(shard.encode(), digest_size=_SHARD_HASH_BYTES).digest()
    return PREFIX + urlsafe_b64encode(digest).decode()


def encode(sequence: int, moved_at_ms: int) -> bytes:
    """A watermark's value."""
    minute = moved_at_ms // MINUTE_MS
    return sequence.to_bytes(_SEQUENCE_BYTES) + minute.to_bytes(_MINUTE_BYTES)


def floor(sequence: int) -> bytes:
    """The least value of a watermark at this sequence number; earlier watermarks are lower."""
    return sequence.to_bytes(_SEQUENCE_BYTES) + bytes(_MINUTE_BYTES)


def sequence_in(total: Item | None, shard: str) -> int | None:
    """The sequence number of a shard's watermark in a total's item; None: no watermark."""
    value = (total or {}).get(attribute(shard))
    return sequence_of(value) if isinstance(value, bytes) else None


def sequence_of(value: bytes) -> int:
    """The sequence number in a watermark's value."""
    return int.from_bytes(value[:_SEQUENCE_BYTES])


def marks_in(total: Item) -> dict[str, bytes]:
    """All watermarks of a total, by attribute name."""
    return {
        name: value
        for name, value in total.items()
        if name.startswith(PREFIX) and isinstance(value, bytes)
    }


def stale(total: Item, now_ms: int) -> dict[str, bytes]:
    """The watermarks not moved for so long that no record they refuse can be delivered."""
    limit = (now_ms - WATERMARK_LIFE_MS) // MINUTE_MS
    return {
        name: value
        for name, value in marks_in(total).items()
        if int.from_bytes(value[_SEQUENCE_BYTES:]) < limit
    }


# How long a read is reused. Later progress only allows more watermarks to be removed.
PASSED_AGE_MS: Final = 5 * MINUTE_MS


@dataclass(slots=True)
class PassedShards:
    """Finds watermarks that can be removed, by how far shards had been handled some time ago.

    Attributes:
        late_ms: how long a write that did not know a shard's progress may still land.
        enough: from how many watermarks on a total is cleaned up.
        age_ms: how long a read of progress is reused.
    """

    late_ms: int = LATE_WRITE_MS
    enough: int = STALE_ENOUGH
    age_ms: int = PASSED_AGE_MS
    _names: dict[str, str] = field(default_factory=dict, repr=False)
    _listed_at_ms: dict[str, int] = field(default_factory=dict, repr=False)
    _known: dict[str, tuple[int, ShardProgress | None]] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def removable(
        self, dynamo: DynamoClient, table: str, total: Item, stream: str, now_ms: int
    ) -> dict[str, bytes]:
        """The watermarks of a total that can be removed; none if they are few.

        At most once in `age_ms`: half a read unit for about 50 known shards of the stream, and half
        a read unit for each shard that has a watermark in a total.

        Args:
            dynamo: a DynamoDB client.
            table: the table `counters`.
            total: the total's item.
            stream: the label of the stream whose shards are read.
            now_ms: the time, ms since the epoch.

        Raises:
            ServiceFailed: the service did not answer.
        """
        marks = marks_in(total)
        if len(marks) < self.enough:
            return {}
        found = stale(total, now_ms)
        # The writers of a batch call this at once: one of them reads, the others do not wait.
        if self._lock.acquire(blocking=False):
            try:
                self._learn(dynamo, table, marks, stream, now_ms)
            finally:
                self._lock.release()
        for name, value in marks.items():
            _, progress = self._known.get(name, (0, None))
            passed = None if progress is None else progress.passed(now_ms, self.late_ms)
            if passed is not None and sequence_of(value) <= passed:
                found[name] = value
        return found if len(found) >= self.enough else {}

    def _learn(
        self, dynamo: DynamoClient, table: str, names: Iterable[str], stream: str, now_ms: int
    ) -> None:
        old = [name for name in names if not self._is_fresh(name, now_ms)]
        if not old:
            return
        listed_at_ms = self._listed_at_ms.get(stream)
        unknown = any(name not in self._names for name in old)
        if unknown and (listed_at_ms is None or now_ms - listed_at_ms >= self.age_ms):
            for shard_id in known_shards(dynamo, table, stream):
                shard = f"{stream}/{shard_id}"
                self._names[attribute(shard)] = shard
            self._listed_at_ms[stream] = now_ms
        wanted = {name: self._names[name] for name in old if name in self._names}
        progress = _read(dynamo, table, wanted.values())
        for name, shard in wanted.items():
            self._known[name] = now_ms, progress.get(shard)

    def _is_fresh(self, name: str, now_ms: int) -> bool:
        known = self._known.get(name)
        return known is not None and now_ms - known[0] < self.age_ms


def _read(dynamo: DynamoClient, table: str, shards: Iterable[str]) -> dict[str, ShardProgress]:
    found: dict[str, ShardProgress] = {}
    for item in dynamo.get_many(table, [keys.progress_key(shard) for shard in shards]):
        try:
            progress = decode_progress(item)
        except CorruptItem:
            continue  # that shard's own batches stop, with an error
        found[progress.shard] = progress
    return found
