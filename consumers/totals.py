"""Reading totals: by name, by namespace, and up to which moment they are complete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.consumers.progress import ShardProgress, known_progress
from countledger.ledger import keys
from countledger.ledger.attributes import decoded, optional
from countledger.ledger.clock import to_datetime
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Query, Scan
from countledger.ledger.tombstones import removed_id
from countledger.ledger.total import Total, decode_total, with_bins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from countledger.consumers.record import LedgerStream, StreamShard
    from countledger.consumers.region_state import RegionStateStore
    from countledger.ledger.assembly import StrictRegions
    from countledger.ledger.attributes import Item, Key, OnCorrupt
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Condition


def counters_beginning(dynamo: DynamoClient, table: str, prefix: str) -> Iterator[str]:
    """The names of all counters with a prefix, of every kind, in no order.

    Scans the whole table, which has no index of names: half a read unit for each 4 KB. A counter
    created during the scan may be missing.

    Args:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        prefix: of the names; "" = all counters.
    """
    is_total: Condition = Compare("part", "=", keys.TOTAL)
    where = AllOf(is_total, BeginsWith("counter", prefix)) if prefix else is_total
    for page in dynamo.pages(Scan(table, where, only=("counter",))):
        for item in page:
            yield item["counter"]


def counters_of(
    dynamo: DynamoClient, table: str, namespace: str, where: Condition | None = None
) -> Iterator[list[str]]:
    """The names of a namespace's counters that have a total, in no order, page by page.

    Scans the whole table, which has no index of names: half a read unit for each 4 KB.

    Args:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        namespace: the part of the names before the colon.
        where: a condition on the total's item; None: all.
    """
    for page in totals_of(dynamo, table, namespace, where):
        yield [item["counter"] for item in page]


def totals_of(
    dynamo: DynamoClient,
    table: str,
    namespace: str,
    where: Condition | None = None,
    also: tuple[str, ...] = (),
) -> Iterator[list[Item]]:
    """As `counters_of`, with attributes of the totals' items that are named in `also`."""
    conditions: list[Condition] = [Compare("part", "=", keys.TOTAL)]
    if namespace != keys.DEFAULT_NAMESPACE:  # the names there need no prefix
        conditions.append(BeginsWith("counter", f"{namespace}:"))
    if where is not None:
        conditions.append(where)
    for page in dynamo.pages(Scan(table, AllOf(*conditions), ("counter", *also))):
        yield [
            item
            for item in page
            if keys.is_counter(item["counter"]) and keys.namespace_of(item["counter"]) == namespace
        ]


@dataclass(frozen=True, slots=True)
class Freshness:
    """Up to which moment the totals are complete.

    Attributes:
        shards: the progress of each stream shard that has any, including closed shards.
        handled_through_ms: for the slowest open shard, when the stream created the last record
            handled, ms since the epoch; None while nothing has been handled.
        idle: the open shards of which, and of whose parents, nothing has been handled.
        up_to_date: whether the stream showed nothing that is not handled; None: it was not read.
        waiting_since_ms: if it did, when the oldest such record was made, ms since the epoch.
    """

    shards: tuple[ShardProgress, ...]
    handled_through_ms: int | None
    idle: tuple[str, ...]
    up_to_date: bool | None = None
    waiting_since_ms: int | None = None

    @property
    def handled_through(self) -> datetime | None:
        """`handled_through_ms` as a datetime in UTC.

        It does not move while no entry is recorded: an old value means quiet or stalled, and
        `up_to_date` says which.
        """
        return None if self.handled_through_ms is None else to_datetime(self.handled_through_ms)


def freshness_of(shards: Sequence[StreamShard], progress: Mapping[str, ShardProgress]) -> Freshness:
    """The freshness of the slowest open shard; a new shard counts from its parent's end."""
    by_id = {one.shard.id: one for one in shards}
    reached: dict[str, ShardProgress | None] = {}
    for leaf in (one for one in shards if not one.closed):
        at: StreamShard | None = leaf
        while at is not None and str(at.shard) not in progress:
            at = by_id.get(at.parent or "")
        reached[str(leaf.shard)] = progress[str(at.shard)] if at is not None else None
    return Freshness(
        shards=tuple(progress[name] for name in sorted(progress)),
        handled_through_ms=min((p.handled_through_ms for p in reached.values() if p), default=None),
        idle=tuple(name for name, found in reached.items() if found is None),
    )


@dataclass(frozen=True, slots=True)
class TotalsReader:
    """Reads totals.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry reads.
        table: the table `counters`.
        region: the state of this region, which must be ready for each read of totals; None: what
            verifies and repairs totals reads them in any state.
        strict: the strict counters over regions; None: the stack has none.
    """

    dynamo: DynamoClient
    table: str
    region: RegionStateStore | None = None
    strict: StrictRegions | None = None

    def check_region(self) -> None:
        """Refuse to read totals while they are incomplete: `RegionStateStore.check`.

        Raises:
            RegionRebuilding: they are.
        """
        if self.region is not None:
            self.region.check()

    def read(self, counter: str, *, consistent: bool = False) -> Total:
        """A counter's total; zeros if it was never changed. Half a read unit (one if consistent).

        A strict counter with bins costs half a read unit more for each bin; the bins are not read
        at one moment.

        Raises:
            BadCounterName: the name breaks the grammar.
            CorruptItem: the total cannot be read.
            RegionRebuilding: the totals of this region are incomplete.
        """
        return self.identified(counter, consistent=consistent)[0]

    def identified(self, counter: str, *, consistent: bool = False) -> tuple[Total, str | None]:
        """As `read`, and the incarnation of the total; None: there is none, or it has none yet."""
        self.check_region()
        counter = keys.check_counter(counter)
        key = keys.total_key(counter)
        item = self.dynamo.get(self._table(counter), key, consistent=consistent)
        if item is None:
            return Total(counter), None
        return self._whole(decode_total(item)), optional(item, "incarnation", str)

    def item(self, counter: str) -> Item | None:
        """A total's stored item, strongly consistent; None: absent. One read unit."""
        key = keys.total_key(counter)
        return self.dynamo.get(self._table(counter), key, consistent=True)

    def read_many(
        self,
        counters: Iterable[str],
        on_corrupt: OnCorrupt | None = None,
    ) -> dict[str, Total]:
        """The totals of many counters, not of one moment: half a read unit each.

        Args:
            counters: their names.
            on_corrupt: called with the error of each total that cannot be read; it is skipped.

        Raises:
            As `read`, and Throttled: the service left some unanswered.
        """
        self.check_region()
        names = [keys.check_counter(counter) for counter in counters]
        wanted: dict[str, list[Key]] = {}
        for name in dict.fromkeys(names):
            wanted.setdefault(self._table(name), []).append(keys.total_key(name))
        items = [
            item for table, some in wanted.items() for item in self.dynamo.get_many(table, some)
        ]
        there = {item["counter"] for item in items}
        read = decoded(items, lambda item: self._whole(decode_total(item)), on_corrupt)
        found = {total.counter: total for total in read}
        return {
            name: found.get(name) or Total(name)
            for name in names
            if name in found or name not in there
        }

    def _table(self, counter: str) -> str:
        if self.strict is not None and self.strict.has(counter):
            return self.strict.table
        return self.table

    def _whole(self, total: Total) -> Total:
        """The total with its bins added, if it has bins."""
        if total.bins == 1:
            return total
        bins = [keys.bin_key(total.counter, number) for number in range(total.bins)]
        return with_bins(total, self.dynamo.get_many(self.table, bins))

    def progress(self, shards: Iterable[str]) -> dict[str, ShardProgress]:
        """The progress of the stream shards with handled records: half a read unit for each shard.

        Raises:
            As `opened`.
        """
        return {name: one for name, one in self.opened(shards).items() if one.position}

    def opened(self, shards: Iterable[str]) -> dict[str, ShardProgress]:
        """The progress of all stream shards that were opened: half a read unit for each shard.

        Raises:
            ProgressLost: the progress of a shard cannot be read, so nothing can be proven. The
                error names the shard and the command that recovers it.
        """
        wanted = [keys.progress_key(shard) for shard in shards]
        found = map(known_progress, self.dynamo.get_many(self.table, wanted))
        return {progress.shard: progress for progress in found}

    def freshness(self, stream: LedgerStream) -> Freshness:
        """Up to which moment totals are complete: half a read unit for each shard of the stream."""
        shards = stream.shards()
        return freshness_of(shards, self.progress(str(one.shard) for one in shards))


@dataclass(frozen=True, slots=True)
class Listing:
    """Lists the counters of a namespace.

    Attributes:
        totals: reads totals.
        namespaces: reads a namespace's kind.
    """

    totals: TotalsReader
    namespaces: Namespaces

    def counters(self, namespace: str, on_corrupt: OnCorrupt | None = None) -> Iterator[Total]:
        """The totals of all counters of a namespace that were ever changed.

        Strict counters are listed in a directory, so they come by name: half a read unit for each
        4 KB of the directory, and for each counter and each bin. Other counters have no directory,
        because it would cost a write for each new counter. So the whole table `counters` is
        scanned, half a read unit for each 4 KB, and they come in no order. (For a ranked namespace
        see its top.)

        Args:
            namespace: its name.
            on_corrupt: called with the error of each total that cannot be read; it is skipped.

        Raises:
            NamespaceUnknown: the namespace does not exist.
            CorruptItem: a total cannot be read, and `on_corrupt` is None.
        """
        namespace = keys.check_namespace(namespace)
        match self.namespaces.get(namespace).kind:
            case Kind.STRICT:
                names = self._strict(self.totals.table, namespace)
            case Kind.STRICT_REGIONS:
                strict = self.totals.strict
                names = iter(()) if strict is None else self._strict(strict.table, namespace)
            case _:
                names = self._found(namespace)
        return self._read(names, on_corrupt)

    def _strict(self, table: str, namespace: str) -> Iterator[list[str]]:
        directory = Compare("counter", "=", keys.STRICT_PREFIX + namespace)
        for page in self.totals.dynamo.pages(Query(table, directory)):
            yield [item["part"] for item in page if removed_id(item) is None]

    def _found(self, namespace: str) -> Iterator[list[str]]:
        return counters_of(self.totals.dynamo, self.totals.table, namespace)

    def _read(self, pages: Iterator[list[str]], on_corrupt: OnCorrupt | None) -> Iterator[Total]:
        for names in pages:
            # Version 0: created for a ranked group, and never changed.
            found = self.totals.read_many(names, on_corrupt).values()
            yield from (total for total in found if total.version)
