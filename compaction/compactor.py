"""The compactor: merges a counter's old entries into its head without changing any number.

The head is one item, replaced in place; `generation` counts the replacements. Its sum includes
every entry merged so far; its `covers` name the entries of the last generation, which may still be
in the table. A reader adds to the head the entries that the covers do not name.

    await     read the head; every region shows this generation, of this run
    archive   store the entries that it covers, if it says so; then record that they are stored
    retire    delete every entry that it covers, if it is gone or still what was summed
    wait until deleted   no region shows a covered entry any more
    select    only now read the next entries: too old to be sent again, not covered, and shown
              alike by every region
    publish   replace the head by one of the next generation that has their deltas in its sum and
              their keys in its covers, on condition that the head is still the one awaited, of
              that generation and that run

These steps repeat until nothing is selected; then a closing generation has no covers.

A crash after any step leaves a head and its covers, and no other state: the next run reads the head
and begins with `await`. What it finds after a crash in

    await     nothing changed
    archive   the object, perhaps; without the record it is stored again, the same under its name
    retire    some covered entries are gone; readers skip the others, which are deleted again
    wait until deleted   the same
    select    nothing changed: a selection exists only in the run that made it
    publish   the entries are in the sum and in the covers; readers skip them; they are retired

Why each rule is needed:

- *Await.* A region that still shows the head before would miss the entries that are deleted now.
- *The condition of retire.* An entry with another delta was changed by hand. The table no longer
  holds what was summed, so nothing more is deleted, and action is required. Under a bare key
  another entry may have been made later: it is not the merged one, and stays.
- *The record of the archive.* A missing entry proves nothing: a person may have deleted it.
- *Wait until deleted.* The next generation drops the covers. From then on a covered entry that some
  region still shows would count twice there.
- *Select after that.* What was read earlier may have been merged by another run, under covers that
  are dropped by now.
- *Shown alike by every region.* An entry that is still being replicated would arrive after its own
  deletion; and a region whose stream never had it would lack it in its total.
- *The condition of publish.* Of two runs that began with the same head one publishes. The other
  drops its selection. A run that was suspended has its head refused; its deletes name only entries
  that an awaited head covers. Generations begin again after a deletion, so the run is part of the
  condition; "no head" has no run, so such a run publishes nothing after half a day.
- *The age.* See `AgeLimit`: no producer can still send what is merged.

The deadline is checked between requests. After it a run begins nothing new, and leaves a closed
head if the covered entries are gone already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import ceil
from random import Random
from typing import TYPE_CHECKING, Final

from countledger.compaction import plan
from countledger.compaction.regions import PATIENCE_MS
from countledger.compaction.report import (
    CompactionPlan,
    CompactionReport,
    CompactionStep,
    Retire,
    RunOutcome,
)
from countledger.compaction.run import Run
from countledger.ledger import keys
from countledger.ledger.clock import Backoff, Clock, SystemClock
from countledger.ledger.errors import CountledgerError
from countledger.ledger.exact import NO_HEAD, encode_head
from countledger.ledger.ids import unique_id
from countledger.ledger.limits import HEAD_COVERS_MAX
from countledger.ledger.namespace import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.archive import Archive
    from countledger.compaction.plan import AgeLimit, Candidate
    from countledger.compaction.regions import Regions
    from countledger.ledger.exact import Covered, Head
    from countledger.ledger.namespace import Namespace, Namespaces

_WORKERS: Final = 4
_KB: Final = 1_024
_CONTAINER_BYTES: Final = 3
_UNITS_PER_KB: Final = {Retire.TRANSACTION: 2, Retire.DELETE: 1}


@dataclass(frozen=True, slots=True)
class Compactor:
    """Merges the old entries of ledger counters.

    Attributes:
        regions: the regions of the table `ledger`, as seen from the home region.
        namespaces: spread and horizon of each namespace.
        limit: how old an entry of a namespace must be.
        retire: how merged entries are deleted.
        archive: where entries are kept before they are deleted, or None.
        archive_as_found: archive entries that an earlier run published and did not archive as they
            are now, although some were deleted or changed by hand since.
        clock: the time, and waiting.
        new_run: makes an id that no other run has.
        random: what the jitter is drawn from.
        backoff: how often a conflict is tried again.
        covers_max: how many entries one generation covers at most.
        patience_ms: how long to wait for a region that is late.
        workers: how many deletes are under way at the same time.
    """

    regions: Regions
    namespaces: Namespaces
    limit: Callable[[Namespace], AgeLimit]
    retire: Retire = Retire.TRANSACTION
    archive: Archive | None = None
    clock: Clock = field(default_factory=SystemClock)
    new_run: Callable[[], str] = unique_id
    random: Random = field(default_factory=Random)
    backoff: Backoff = field(default_factory=Backoff)
    covers_max: int = HEAD_COVERS_MAX
    patience_ms: int = PATIENCE_MS
    workers: int = _WORKERS
    archive_as_found: bool = False

    def compact(
        self,
        counter: str,
        *,
        deadline_ms: int | None = None,
        on_step: Callable[[CompactionStep], None] = lambda _: None,
    ) -> CompactionReport:
        """Merge all entries of a counter that are old enough, in as many generations as needed.

        With transactions about 2.06 write units for each entry of up to 1 KB, with single deletes
        1.06, and one more; with an archive one for each generation; some read units for each 4 KB
        of entries, in every region, and one in each to see who is home. It may run beside any other
        run; it can be stopped at any time, and another run continues.

        Args:
            counter: its name.
            deadline_ms: the time, by the clock, after which nothing new is begun.
            on_step: called with each step as it begins.

        Returns:
            The result. Errors are values in it: the failure of one counter stops no other.
        """
        try:
            counter = keys.check_counter(counter)
            namespace = self.namespaces.expect(counter, Kind.LEDGER)
            run = Run(
                self,
                counter,
                namespace,
                run=self.new_run(),
                deadline_ms=deadline_ms,
                on_step=on_step,
            )
        except CountledgerError as error:
            return CompactionReport(
                counter=counter, outcome=RunOutcome.FAILED, detail=str(error), error=error
            )
        return run.report()

    def plan(self, counter: str) -> CompactionPlan:
        """What a run would do now; nothing is written. One read unit for each 4 KB of old entries.

        Raises:
            BadCounterName, NamespaceUnknown, WrongKind: the counter cannot be compacted.
            CorruptItem: the head or an entry cannot be read.
        """
        counter = keys.check_counter(counter)
        namespace = self.namespaces.expect(counter, Kind.LEDGER)
        limit = self.limit(namespace)
        cutoff_ms = limit.cutoff_ms(self.clock.now_ms())
        views = self.regions.metered()
        head = views.head(counter)
        estimate = _Estimate(self.retire, self.covers_max, head, archive=self.archive is not None)
        for range_ in plan.ranges(namespace.spread, cutoff_ms):
            query = plan.page_of(self.regions.table, counter, range_, None, None)
            for items in views.home.pages(query):
                estimate.add(plan.mergeable(items, head, cutoff_ms))
        return replace(estimate.plan(counter), age_ms=limit.age_ms)


@dataclass(slots=True)
class _Estimate:
    """Adds up what a run would do, from what is in the table.

    Attributes:
        retire: how entries are deleted.
        covers_max: how many entries one generation covers at most.
        head: the head as it is; the entries that it still covers are to be deleted, too.
        archive: whether each generation is archived first, and that recorded.
    """

    retire: Retire
    covers_max: int
    head: Head
    archive: bool = False
    _entries: int = 0
    _deletes: int = 0
    _covers: dict[str, Covered] = field(default_factory=dict)
    _heads: int = 0
    _times: list[int] = field(default_factory=list)

    def add(self, found: Sequence[Candidate]) -> None:
        """Add entries that would be merged."""
        for one in found:
            self._entries += 1
            self._deletes += _units_of(one.item)
            self._covers[one.key] = one.covered
            if len(self._covers) == self.covers_max:
                self._end_generation()
            self._times = [
                min([*self._times[:1], one.entry.at_ms]),
                max([*self._times[1:], one.entry.at_ms]),
            ]

    def plan(self, counter: str) -> CompactionPlan:
        """The sum of it all."""
        if self._covers:
            self._end_generation()
        left = len(self.head.covers)
        closing = 1 if self._entries or left else 0
        deletes = (self._deletes + left) * _UNITS_PER_KB[self.retire]
        oldest, newest = self._times or (None, None)
        recorded = 1 if left and self.head.archive else 0
        units = deletes + self._heads + closing + recorded
        return CompactionPlan(counter, self._entries, oldest, newest, units)

    def _end_generation(self) -> None:
        head = replace(NO_HEAD, covers=self._covers)
        self._heads += _units_of(encode_head("", head)) + self.archive
        self._covers = {}


def _units_of(item: Mapping[str, object]) -> int:
    """The write units of one write of an item."""
    return max(1, ceil((_size_of(item) - _CONTAINER_BYTES) / _KB))


def _size_of(value: object) -> int:
    """About how many bytes the service counts for a value, as it documents it."""
    match value:
        case None:
            return 0
        case str():
            return len(value.encode())
        case int() | Decimal():
            return ceil(len(Decimal(value).as_tuple().digits) / 2) + 1
        case Mapping():
            inner = sum(len(name.encode()) + _size_of(one) + 1 for name, one in value.items())
            return inner + _CONTAINER_BYTES
        case Sequence():
            return sum(_size_of(one) + 1 for one in value) + _CONTAINER_BYTES
        case _:
            return len(bytes(str(value), "utf-8"))
