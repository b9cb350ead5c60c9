"""Snapshots: the totals of several counters as of one moment, by one TransactGetItems.

The items of `counters` are read at one moment. A strict counter's value, with its bins, is exact. A
ledger counter's total is what the materializer had written by then, so the totals of two ledger
counters may be at different positions of the stream. `totals` reads more counters than one
transaction can, but not at one moment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, NoReturn

from countledger.ledger import keys
from countledger.ledger.attempts import Attempts, DynamoPerformer, ask, run
from countledger.ledger.clock import Backoff, Clock, SystemClock, to_datetime
from countledger.ledger.errors import CorruptItem, Throttled, TooManyCounters
from countledger.ledger.limits import TRANSACTION_ACTIONS
from countledger.ledger.operations import TransactGet
from countledger.ledger.total import Total, decode_total, with_bins

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from countledger.consumers.region_state import RegionStateStore
    from countledger.ledger.assembly import StrictRegions
    from countledger.ledger.attempts import Exhausted
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.dynamo import DynamoClient

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
    """Reads snapshots.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry its reads.
        table: the table `counters`.
        clock: the time; waits between attempts.
        random: the source of the jitter of these waits.
        region: the state of this region, which must be ready; None: it always is.
        strict: the strict counters over regions, which cannot be read in a transaction.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    region: RegionStateStore | None = None
    strict: StrictRegions | None = None

    def read(self, counters: Iterable[str]) -> Snapshot:
        """The totals of up to 100 counters as of one moment: two read units each.

        A strict counter with bins counts as one more for each bin. If there are bins, everything is
        read a second time, with the bins.

        Raises:
            TooManyCounters: the counters and their bins do not fit into one transaction.
            BadCounterName: a name breaks the grammar.
            BadSetting: a counter is over regions, in a table without transactions.
            CorruptItem: a total cannot be read.
            Throttled: conflicting writes made each attempt fail.
            RegionRebuilding: the totals of this region are incomplete.
        """
        if self.region is not None:
            self.region.check()
        names = list(dict.fromkeys(keys.check_counter(counter) for counter in counters))
        _check_size(len(names), "counters")
        if self.strict is not None:
            self.strict.refuse(names, "its table has no transactions: read it by `totals`")
        bins: dict[str, int] = {}
        for _ in range(_LOOKS):
            places = _places(names, bins)
            _check_size(len(places), "counters and bins")
            found = dict(zip(places, self._items(list(places.values())), strict=True))
            totals = {name: _total(name, found[name, None]) for name in names}
            needed = {name: one.bins for name, one in totals.items() if one.bins > 1}
            if needed == bins:
                whole = {name: _whole(totals[name], found) for name in names}
                return Snapshot(whole, self.clock.now_ms())
            bins = needed
        raise Throttled("strict counters with bins were recreated during each read; try again")

    def _items(self, wanted: Sequence[Key]) -> list[Item | None]:
        if not wanted:
            return []

        def give_up(exhausted: Exhausted[None]) -> NoReturn:
            raise Throttled(
                f"no snapshot: writes were in the way of each attempt ({exhausted.error})"
            ) from exhausted.error

        attempts = Attempts(self.clock, self.random, _POLICY)
        perform = DynamoPerformer(self.dynamo, self.dynamo, self.clock)
        items: list[Item | None] = run(
            ask(TransactGet(self.table, wanted), attempts, give_up), perform
        )
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
