"""Reading totals, and how fresh they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.consumers.progress import ShardProgress, decode_progress
from countledger.ledger import keys
from countledger.ledger.total import Total, decode_total, with_bins

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from countledger.consumers.stream import LedgerStream
    from countledger.ledger.door import Door


@dataclass(frozen=True, slots=True)
class Freshness:
    """Up to where the totals are complete.

    Attributes:
        shards: the progress of every stream shard that has any, by name.
        idle: the shards from which nothing has been handled: new, or without a record that counts.
    """

    shards: tuple[ShardProgress, ...]
    idle: tuple[str, ...]

    @property
    def handled_through(self) -> datetime | None:
        """When the slowest shard's last handled record was made; None before the first one.

        A stream without news stays where it is: old means quiet or stalled, and `verify` tells
        which.
        """
        return min((shard.handled_through for shard in self.shards), default=None)


@dataclass(frozen=True, slots=True)
class TotalsReader:
    """Reads totals.

    Attributes:
        door: a door to DynamoDB; the SDK may retry its reads.
        table: the table `counters`.
    """

    door: Door
    table: str

    def read(self, counter: str, *, consistent: bool = False) -> Total:
        """A counter's total, zeros for one never seen: half a read unit (one if consistent).

        A strict counter with bins costs half a read unit more for each; they are no snapshot.

        Raises:
            BadCounterName: the name breaks the grammar.
            CorruptItem: the total cannot be read.
        """
        key = keys.total_key(keys.check_counter(counter))
        item = self.door.get(self.table, key, consistent=consistent)
        return Total(counter) if item is None else self._whole(decode_total(item))

    def read_many(self, counters: Iterable[str]) -> dict[str, Total]:
        """The totals of many counters, no snapshot: half a read unit each.

        Raises:
            As `read`, and Throttled where the service leaves some unanswered.
        """
        totals = {counter: Total(keys.check_counter(counter)) for counter in counters}
        wanted = [keys.total_key(counter) for counter in totals]
        found = [self._whole(decode_total(i)) for i in self.door.get_many(self.table, wanted)]
        return totals | {total.counter: total for total in found}

    def _whole(self, total: Total) -> Total:
        """A total with its bins, where it has some."""
        if total.bins == 1:
            return total
        bins = [keys.bin_key(total.counter, number) for number in range(total.bins)]
        return with_bins(total, self.door.get_many(self.table, bins))

    def progress(self, shards: Iterable[str]) -> dict[str, ShardProgress]:
        """The progress of stream shards that have any: half a read unit each."""
        wanted = [keys.progress_key(shard) for shard in shards]
        found = map(decode_progress, self.door.get_many(self.table, wanted))
        return {progress.shard: progress for progress in found}

    def freshness(self, stream: LedgerStream) -> Freshness:
        """Up to where the totals are complete: half a read unit for each shard of the stream."""
        names = stream.shard_names()
        progress = self.progress(names)
        return Freshness(
            shards=tuple(progress[name] for name in sorted(progress)),
            idle=tuple(name for name in names if name not in progress),
        )
