"""A ledger counter that is being deleted, as the home sees it in every region of its ledger.

The ledger is one table with a copy in each region; totals are regional. One transaction in the home
empties the head and deletes the total there. The total of each other region is deleted afterwards,
once that region shows the empty head: then its own ledger says that nothing is left, and the proof
of `verify` decides. So a call may be repeated, and a region that was cut off is made up for later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from countledger.compaction.deletion_marks import decode_mark
from countledger.compaction.regions import PATIENCE_MS
from countledger.ledger import keys
from countledger.ledger.attempts import write_one
from countledger.ledger.clock import polled
from countledger.ledger.departure import guarded
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.exact import decode_head
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Delete, Query, Update
from countledger.ledger.tombstones import present, put_if_vacant

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from countledger.compaction.deletion_marks import DeletionMark
    from countledger.compaction.regions import Regions
    from countledger.ledger.attributes import Item
    from countledger.ledger.exact import Head
    from countledger.ledger.operations import Put

_T = TypeVar("_T")
Tidy: TypeAlias = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class RegionalTotals:
    """The totals of one region, and what is kept beside them.

    Attributes:
        item: a counter's total as it is stored; strongly consistent.
        unproven: why a counter's total may not be final; None: it is.
        clear: deletes the total of a counter whose ledger was emptied, or sets it to what was
            recorded since; why it could not, or None.
        tidy: deletes what else is kept of a counter and dated no later than a time (ms), and
            returns what stays.
    """

    item: Callable[[str], Item | None]
    unproven: Callable[[str], str | None]
    clear: Callable[[str], str | None]
    tidy: Tidy


@dataclass(frozen=True, slots=True)
class CounterRegions:
    """What the home sees and does in all regions.

    Attributes:
        regions: of the table `ledger`.
        totals: those of a region.
    """

    regions: Regions
    totals: Callable[[str], RegionalTotals]

    @property
    def names(self) -> tuple[str, ...]:
        """All regions, the home first; those that have left the table are none of them."""
        return (self.regions.region, *self.regions.survey().others)

    def waits(self) -> str | None:
        """Why the home may write nothing now: it must hold the lease; None: it may.

        It waits a few seconds until the lease has arrived everywhere; a lease costs a write unit,
        and each look a read unit in each region.
        """

        def missing() -> str | None:
            if unready := self.regions.survey().unready:
                return f"replicas not in service: {', '.join(unready)}"
            return self.regions.hold_lease()

        return self._polled(missing)

    def changed_elsewhere_ms(self, counter: str) -> list[int]:
        """When its total changed last in each other region that has one: a read unit in each."""
        found = [self.totals(name).item(counter) for name in self.regions.survey().others]
        return [item["updated_at"] for item in found if item and "updated_at" in item]

    def unproven(self, counter: str) -> str | None:
        """Why the total of a region may not be final, or None: as `verify` in each region."""
        for name in self.names:
            if reason := self.totals(name).unproven(counter):
                return self._of(name, reason)
        return None

    def have_entries(self, counter: str) -> bool:
        """Whether any region shows an entry: one read unit in each."""
        return any(self.has_entries(counter, name) for name in self.names)

    def has_entries(self, counter: str, region: str) -> bool:
        """Whether a region shows an entry: one read unit."""
        entries = AllOf(Compare("counter", "=", counter), BeginsWith("entry", keys.ENTRY_PREFIX))
        read = Query(self.regions.table, entries, consistent=True, page_size=1)
        # A page may be empty although more follow.
        return any(self.regions.dynamo(region).pages(read))

    def differing(self, mark: DeletionMark, head: Head) -> str | None:
        """Why this is not what every other region shows: two read units in each of them."""
        for name in self.regions.survey().others:
            if self._head(mark.counter, name) != head:
                return f"the head has not arrived in {name}"
            # The tombstone of an earlier mark may be all that has arrived there.
            shown = present(self._get(name, keys.deletion_key(mark.counter)))
            if shown is None or decode_mark(shown) != mark:
                return f"the mark has not arrived in {name}"
        return None

    def clear(self, mark: DeletionMark) -> str | None:
        """Delete the totals that the transaction did not reach; why one could not be, or None.

        In each region a read unit, and the proof of `verify`; a write unit for each KB of a total.
        """
        for name in self.names:
            if name == mark.region:
                continue
            if self._polled(partial(self._unshown, mark, name)):
                return f"the empty head has not arrived in {name}; call again"
            if reason := self.totals(name).clear(mark.counter):
                return self._of(name, reason)
        return None

    def _unshown(self, mark: DeletionMark, region: str) -> bool | None:
        """True if a region does not show the empty head, or one that followed it."""
        return self._head(mark.counter, region).incarnation != mark.id or None

    def tidy(self, counter: str, before_ms: int) -> list[str]:
        """Delete what else is kept of a counter, in each region; what stays."""
        return [
            self._of(name, stays)
            for name in self.names
            for stays in self.totals(name).tidy(counter, before_ms)
        ]

    def has_numbers(self, counter: str) -> bool:
        """Whether anything was recorded under the name, here: three read units."""
        here = self.regions.region
        if self._head(counter, here).generation or self.totals(here).item(counter) is not None:
            return True
        return self.has_entries(counter, here)

    def write(self, write: Put | Update | Delete) -> None:
        """Write to the ledger here; with replicas it leaves only under the lease.

        Raises:
            LeaseEnded: the lease has ended.
            ConditionFailed: the condition of the write failed.
        """
        with self._under_lease():
            write_one(self.regions.home, write)

    def put_if_vacant(self, put: Put, planned_ms: int) -> Item | None:
        """As `write`, for a put in a vacant place; the item that is there, or None."""
        with self._under_lease():
            skew_ms = self.regions.terms.clock_skew_ms
            return put_if_vacant(self.regions.home, put, planned_ms, skew_ms)

    def quietly(self, write: Update | Delete) -> None:
        """As `write`, unless it was done before."""
        with suppress(ConditionFailed):
            self.write(write)

    def _under_lease(self) -> AbstractContextManager[None]:
        others = self.regions.survey().others
        return guarded(self.regions.check_lease if others else lambda: None)

    def _polled(self, missing: Callable[[], _T | None]) -> _T | None:
        return polled(self.regions.clock, PATIENCE_MS, missing, lambda _: False)

    def _of(self, region: str, text: str) -> str:
        return text if region == self.regions.region else f"in {region}: {text}"

    def _head(self, counter: str, region: str) -> Head:
        return decode_head(self._get(region, keys.head_key(counter)))

    def _get(self, region: str, key: dict[str, str]) -> Item | None:
        return self.regions.dynamo(region).get(self.regions.table, key, consistent=True)
