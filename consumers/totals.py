"""Reading totals: by name, by namespace, and up to which moment they are complete."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, NoReturn

from countledger.consumers.progress import ShardProgress, known_progress
from countledger.consumers.record import LedgerStream
from countledger.consumers.region_state import RegionStateStore
from countledger.ledger import keys
from countledger.ledger.attempts import DynamoPerformer, ask, run
from countledger.ledger.attributes import decoded, optional
from countledger.ledger.clock import Backoff, to_datetime
from countledger.ledger.errors import BadSetting, CorruptItem, Throttled, TooManyCounters, shown
from countledger.ledger.limits import (
    PARTITION_KEY_MAX_BYTES,
    SORT_KEY_MAX_BYTES,
    TRANSACTION_ACTIONS,
)
from countledger.ledger.namespace import Kind, Namespaces, StrictRegions
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Query, Scan, TransactGet
from countledger.ledger.tombstones import removed_id
from countledger.ledger.total import Total, decode_total, with_bins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from countledger.consumers.record import StreamShard
    from countledger.ledger.attempts import Exhausted
    from countledger.ledger.attributes import Item, Key, OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Condition


# The names of counters in parts, each of a bounded number of requests.
#
# A table has no index of names, so a search reads all of it. In parts, a caller decides after each
# of them whether to go on.


NAMES_MAX: Final = 1_000
_ITEMS_OF_A_REQUEST: Final = 1_000
_REQUESTS: Final = 20
_TIME_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class NamesPage:
    """A part of the names.

    Attributes:
        names: in no order.
        after: where the next part begins; None: this is the last one.
        items_read: how many items of the tables were read for this part.
    """

    names: tuple[str, ...]
    after: str | None
    items_read: int


def names_page(connection: Connection, prefix: str, after: str | None, limit: int) -> NamesPage:
    """The names with a prefix that come after a place: half a read unit for each 4 KB read.

    A part ends after 20 requests for 1,000 items each, and after a request that ends two seconds or
    more after the part began: an answer comes soon, however slow a table is.
    """
    prefix, tables, clock = keys.check_prefix(prefix), _with_totals(connection), connection.clock
    if type(limit) is not int or not 1 <= limit <= NAMES_MAX:
        raise BadSetting(f"limit {shown(limit)} is not a number from 1 to {NAMES_MAX:,}")
    at, key = _place(after, len(tables))
    condition: Condition = Compare("part", "=", keys.TOTAL)
    where = AllOf(condition, BeginsWith("counter", prefix)) if prefix else condition
    names: list[str] = []
    items_read, until_ms = 0, clock.now_ms() + _TIME_MS
    for _ in range(_REQUESTS):
        read = Scan(tables[at], where, ("counter",), after=key, page_size=_ITEMS_OF_A_REQUEST)
        page = connection.retrying.page(read)
        items_read += page.items_read
        names += [item["counter"] for item in page.items]
        if len(names) > limit:
            last = names[limit - 1]
            return NamesPage(tuple(names[:limit]), _written(at, keys.total_key(last)), items_read)
        at, key = (at, page.after) if page.after else (at + 1, None)
        if at == len(tables):
            return NamesPage(tuple(names), None, items_read)
        if clock.now_ms() >= until_ms:
            break
    return NamesPage(tuple(names), _written(at, key), items_read)


def _with_totals(connection: Connection) -> list[str]:
    strict = connection.strict
    return [connection.counters] if strict is None else [connection.counters, strict]


def _written(table: int, key: Key | None) -> str:
    """A place: the number of a table, and the key of its last item that was read."""
    return json.dumps([table] if key is None else [table, key["counter"], key["part"]])


def _place(after: str | None, tables: int) -> tuple[int, Key | None]:
    if after is None:
        return 0, None
    match _parsed(after):
        case [int() as table] if 0 <= table < tables:
            return table, None
        case [int() as table, str() as counter, str() as part] if (
            0 <= table < tables
            and 0 < len(counter.encode()) <= PARTITION_KEY_MAX_BYTES
            and 0 < len(part.encode()) <= SORT_KEY_MAX_BYTES
        ):
            return table, {"counter": counter, "part": part}
    raise BadSetting(f"place {shown(after)} is not the end of a page of names: start without one")


def _parsed(after: str) -> object:
    try:
        return json.loads(after)
    except ValueError:
        return None


# Snapshots: the totals of several counters as of one moment, by one TransactGetItems.
#
# The items of `counters` are read at one moment. A strict counter's value, with its bins, is
# exact. A ledger counter's total is what the materializer had written by then, so the totals of
# two ledger counters may be at different positions of the stream. `totals` reads more counters
# than one transaction can, but not at one moment.


_POLICY: Final = Backoff(attempts=10, base_ms=10, cap_ms=500)
# A spread counter may be made again, with other bins, while its bins are looked for.
_LOOKS: Final = 3


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Totals as of one moment.

    Attributes:
        totals: by counter, in the order of the request; zeros if it was never recorded.
        read_at_ms: when the reading ended, by this machine's clock.
    """

    totals: Mapping[str, Total]
    read_at_ms: int

    @property
    def read_at(self) -> datetime:
        """`read_at_ms` as a datetime in UTC."""
        return to_datetime(self.read_at_ms)

    @property
    def as_materialized(self) -> tuple[str, ...]:
        """The counters that the materializer keeps: exact up to its lag, not to this moment.

        A counter without a total is among them: its first entries may be under way.
        """
        return tuple(one.counter for one in self.totals.values() if one.method is None)


@dataclass(frozen=True, slots=True)
class SnapshotReader:
    connection: Connection

    def read(self, counters: Iterable[str]) -> Snapshot:
        """As `CountLedger.snapshot`: two read units for each of up to 100 counters.

        A strict counter with bins counts as one more for each bin. If there are bins, everything is
        read a second time, with the bins. `Throttled`: conflicting writes made each attempt fail.
        `BadSetting`: a counter is over regions, in a table without transactions.
        """
        RegionStateStore(self.connection).check()
        names = list(dict.fromkeys(keys.check_counter(counter) for counter in counters))
        _check_size(len(names), "counters")
        if (strict := StrictRegions.of(self.connection)) is not None:
            strict.refuse(names, "its table has no transactions: read it by `totals`")
        bins: dict[str, int] = {}
        for _ in range(_LOOKS):
            places = _places(names, bins)
            _check_size(len(places), "counters and bins")
            found = dict(zip(places, self._items(list(places.values())), strict=True))
            totals = {name: _total(name, found[name, None]) for name in names}
            needed = {name: one.bins for name, one in totals.items() if one.bins > 1}
            if needed == bins:
                whole = {name: _whole(totals[name], found) for name in names}
                return Snapshot(whole, self.connection.clock.now_ms())
            bins = needed
        raise Throttled("strict counters with bins were recreated during each read; try again")

    def _items(self, wanted: Sequence[Key]) -> list[Item | None]:
        if not wanted:
            return []

        def give_up(exhausted: Exhausted[None]) -> NoReturn:
            raise Throttled(
                f"no snapshot: writes were in the way of each attempt ({exhausted.error})"
            ) from exhausted.error

        to = self.connection
        read = ask(TransactGet(to.counters, wanted), to.attempts(policy=_POLICY), give_up)
        items: list[Item | None] = run(read, DynamoPerformer(to.retrying, to.retrying, to.clock))
        return items


_Places = dict[tuple[str, int | None], "Key"]


def _places(names: Sequence[str], bins: Mapping[str, int]) -> _Places:
    """What has to be read: each counter's main item, and the bins that it is known to have."""
    places: _Places = {(name, None): keys.total_key(name) for name in names}
    for name, count in bins.items():
        places |= {(name, number): keys.bin_key(name, number) for number in range(count)}
    return places


def _total(name: str, item: Item | None) -> Total:
    return Total(name) if item is None else decode_total(item)


def _whole(total: Total, found: Mapping[tuple[str, int | None], Item | None]) -> Total:
    if total.bins == 1:
        return total
    items = [found[total.counter, number] for number in range(total.bins)]
    there = [item for item in items if item is not None]
    if len(there) < total.bins:
        raise CorruptItem(f"strict counter {total.counter!r} lacks some of its bins")
    return with_bins(total, there)


def _check_size(number: int, what: str) -> None:
    if number > TRANSACTION_ACTIONS:
        raise TooManyCounters(
            f"{number} {what}: a snapshot reads up to {TRANSACTION_ACTIONS} as of one moment; "
            "`totals` reads any number, but not as of one moment"
        )


def names_of(connection: Connection, prefix: str) -> Iterator[str]:
    """The counters that have a total and begin with a prefix, by a scan of their tables."""
    prefix, dynamo = keys.check_prefix(prefix), connection.retrying
    tables = _with_totals(connection)
    return chain.from_iterable(counters_beginning(dynamo, one, prefix) for one in tables)


def counters_beginning(dynamo: DynamoClient, table: str, prefix: str) -> Iterator[str]:
    """The names of all counters with a prefix, of every kind, in no order.

    Scans the whole table, which has no index of names: half a read unit for each 4 KB. A counter
    created during the scan may be missing.
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

    Scans the whole table, which has no index of names: half a read unit for each 4 KB. `where` is a
    condition on the total's item.
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
    """Reads totals, of strict counters over regions as well.

    `of_ledgers`: those of ledgers alone, and in any state of the region: for what verifies and
    repairs them.
    """

    connection: Connection
    of_ledgers: bool = False
    region: RegionStateStore = field(init=False, repr=False)
    strict: StrictRegions | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        strict = None if self.of_ledgers else StrictRegions.of(self.connection)
        object.__setattr__(self, "region", RegionStateStore(self.connection))
        object.__setattr__(self, "strict", strict)

    def check_region(self) -> None:
        """Refuse to read totals while they are incomplete."""
        if not self.of_ledgers:
            self.region.check()

    def read(self, counter: str, *, consistent: bool = False) -> Total:
        """A counter's total; zeros if it was never changed. Half a read unit (one if consistent).

        A strict counter with bins costs half a read unit more for each bin; the bins are not read
        at one moment.
        """
        return self.identified(counter, consistent=consistent)[0]

    def identified(self, counter: str, *, consistent: bool = False) -> tuple[Total, str | None]:
        """As `read`, and the incarnation of the total; None: there is none, or it has none yet."""
        self.check_region()
        counter = keys.check_counter(counter)
        key = keys.total_key(counter)
        item = self.connection.retrying.get(self._table(counter), key, consistent=consistent)
        if item is None:
            return Total(counter), None
        return self._whole(decode_total(item)), optional(item, "incarnation", str)

    def item(self, counter: str) -> Item | None:
        """A total's stored item, strongly consistent; None: absent. One read unit."""
        key = keys.total_key(counter)
        return self.connection.retrying.get(self._table(counter), key, consistent=True)

    def read_many(
        self,
        counters: Iterable[str],
        on_corrupt: OnCorrupt | None = None,
    ) -> dict[str, Total]:
        """The totals of many counters, not of one moment: half a read unit each.

        A total that cannot be read is skipped if there is `on_corrupt`, which gets the error.
        `Throttled`: the service left some unanswered.
        """
        self.check_region()
        names = [keys.check_counter(counter) for counter in counters]
        wanted: dict[str, list[Key]] = {}
        for name in dict.fromkeys(names):
            wanted.setdefault(self._table(name), []).append(keys.total_key(name))
        get_many = self.connection.retrying.get_many
        items = [item for table, some in wanted.items() for item in get_many(table, some)]
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
        return self.connection.counters

    def _whole(self, total: Total) -> Total:
        if total.bins == 1:
            return total
        bins = [keys.bin_key(total.counter, number) for number in range(total.bins)]
        return with_bins(total, self.connection.retrying.get_many(self.connection.counters, bins))

    def progress(self, shards: Iterable[str]) -> dict[str, ShardProgress]:
        """The progress of the shards with handled records: half a read unit for each shard."""
        return {name: one for name, one in self.opened(shards).items() if one.position}

    def opened(self, shards: Iterable[str]) -> dict[str, ShardProgress]:
        """The progress of all stream shards that were opened: half a read unit for each shard.

        One that cannot be read is lost: then nothing can be proven.
        """
        wanted = [keys.progress_key(shard) for shard in shards]
        items = self.connection.retrying.get_many(self.connection.counters, wanted)
        found = map(known_progress, items)
        return {progress.shard: progress for progress in found}

    def freshness(self) -> Freshness:
        """Half a read unit for each shard of the stream."""
        shards = LedgerStream(self.connection).shards()
        return freshness_of(shards, self.progress(str(one.shard) for one in shards))


@dataclass(frozen=True, slots=True)
class Listing:
    connection: Connection

    def counters(self, namespace: str, on_corrupt: OnCorrupt | None = None) -> Iterator[Total]:
        """As `CountLedger.counters`.

        Strict counters are listed in a directory, so they come by name: half a read unit for each 4
        KB of it. Other counters have none, because it would cost a write for each new counter: the
        whole table `counters` is scanned. (For a ranked namespace see its top.)
        """
        namespace = keys.check_namespace(namespace)
        to = self.connection
        match Namespaces(to).get(namespace).kind:
            case Kind.STRICT:
                names = self._strict(to.counters, namespace)
            case Kind.STRICT_REGIONS:
                names = iter(()) if to.strict is None else self._strict(to.strict, namespace)
            case _:
                names = counters_of(to.retrying, to.counters, namespace)
        return self._read(names, on_corrupt)

    def _strict(self, table: str, namespace: str) -> Iterator[list[str]]:
        directory = Compare("counter", "=", keys.STRICT_PREFIX + namespace)
        for page in self.connection.retrying.pages(Query(table, directory)):
            yield [item["part"] for item in page if removed_id(item) is None]

    def _read(self, pages: Iterator[list[str]], on_corrupt: OnCorrupt | None) -> Iterator[Total]:
        totals = TotalsReader(self.connection)
        for names in pages:
            # Version 0: created for a ranked group, and never changed.
            found = totals.read_many(names, on_corrupt).values()
            yield from (total for total in found if total.version)
