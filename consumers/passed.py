"""Which watermarks of a total can go: those that their shards have passed for long enough.

Whatever is delivered from now on is compared with the shard's progress first, and dropped if it is
at or below it. So a watermark at or below the progress refuses only writes of invocations that
began before the progress was there; once these have landed, it refuses nothing any more.

The progress of other shards than one's own is read for that, seldom, and remembered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from countledger.consumers import watermark
from countledger.consumers.directory import known_shards
from countledger.consumers.progress import ShardProgress, decode_progress
from countledger.ledger import keys
from countledger.ledger.errors import CorruptItem
from countledger.ledger.limits import LATE_WRITE_MS, MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient

# For how long what was read is good enough: what has changed since only lets more go.
PASSED_AGE_MS: Final = 5 * MINUTE_MS


@dataclass(slots=True)
class PassedShards:
    """Knows how far shards had been handled some time ago.

    Attributes:
        late_ms: for how long a write may land that did not know of a shard's progress.
        enough: from how many watermarks on a total is looked at, and cleaned up.
        age_ms: from which age on what was read is read again.
    """

    late_ms: int = LATE_WRITE_MS
    enough: int = watermark.STALE_ENOUGH
    age_ms: int = PASSED_AGE_MS
    _names: dict[str, str] = field(default_factory=dict, repr=False)
    _listed_at_ms: dict[str, int] = field(default_factory=dict, repr=False)
    _known: dict[str, tuple[int, ShardProgress | None]] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def removable(
        self, dynamo: DynamoClient, table: str, total: Item, stream: str, now_ms: int
    ) -> dict[str, bytes]:
        """The watermarks of a total that can go: few reads, and those seldom.

        At most once in `age_ms`: half a read unit for some 50 known shards of the stream, and for
        each shard that a total names half of one.

        Args:
            dynamo: a DynamoDB client.
            table: the table `counters`.
            total: its item.
            stream: the label of the stream whose shards are looked at.
            now_ms: the time, ms since the epoch.

        Raises:
            ServiceFailed: it could not be read.
        """
        marks = watermark.marks_in(total)
        if len(marks) < self.enough:
            return {}
        found = watermark.stale(total, now_ms)
        # The writers of a batch ask all at once: one of them reads, and the others do not wait.
        if self._lock.acquire(blocking=False):
            try:
                self._learn(dynamo, table, marks, stream, now_ms)
            finally:
                self._lock.release()
        for name, value in marks.items():
            _, progress = self._known.get(name, (0, None))
            passed = None if progress is None else progress.passed(now_ms, self.late_ms)
            if passed is not None and watermark.sequence_of(value) <= passed:
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
                self._names[watermark.attribute(shard)] = shard
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
            continue  # its own shard stops, and says so
        found[progress.shard] = progress
    return found
