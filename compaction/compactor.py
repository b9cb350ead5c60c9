"""The compactor: merges a counter's old entries into its head, and no number ever changes.

The head is one item, replaced in place; `generation` counts how often. Its sum stands for every
entry merged so far, its `covers` name those of the last generation, which may still lie in the
table. A reader takes the head and the entries that the covers do not name.

    await     read the head; every region shows this generation, of this run
    archive   store the entries that it covers, if it says so; then record that they are stored
    retire    delete every entry that it covers, if it is gone or still what was summed
    settle    no region shows a covered entry any more
    select    only now read the next entries: older than anyone may still send them, not covered,
              and shown alike by every region
    publish   replace the head by one of the next generation that has their deltas in its sum and
              their keys in its covers, on condition that the head is still the one awaited, of
              that generation and that run

    round and round, until nothing is selected; then a closing generation, with no covers.

A crash after any of them leaves a head and its covers, and nothing else to remember: the next run
reads the head and begins with `await`. What it finds:

    await     nothing changed
    archive   the object, perhaps; without the record it is stored again, the same under its name
    retire    some covered entries are gone; readers skip the others, which are deleted again
    settle    as retire
    select    nothing changed: a selection lives in the run that made it, and dies with it
    publish   the entries are in the sum and in the covers; readers skip them; they are retired

Why each rule is there:

- *Await.* A region that still shows the head before would miss the entries that are deleted now.
- *The condition of retire.* An entry with another delta was changed by hand. What was summed is not
  what lies there, so nothing more is touched and a person decides. Under a bare key another
  entry may lie by now, made later: that is not the one merged, and stays.
- *The record of the archive.* That an entry is gone proves nothing: a person may have deleted it.
- *Settle.* Covers are forgotten with the next generation. A covered entry that some region still
  shows would count twice there from then on.
- *Select after settle.* What was read earlier may be merged by another run already, under covers
  that are forgotten by now.
- *Shown alike by every region.* An entry still on its way somewhere would arrive behind its own
  deletion; and a region whose stream never had it would lack it in its total.
- *The condition of publish.* Of two runs that began with the same head one publishes. The other
  drops what it selected. However late a paused run wakes, its head is refused; its deletes
  name only entries that a head awaited everywhere has taken in. Generations begin again after a
  deletion, so the run is part of the condition; "no head" has none, so such a run publishes nothing
  once it is half a day old.
- *The age.* See `limit`: no producer can still send what is merged.

A deadline is looked at between requests. Past it a run begins nothing new, and leaves a closed head
behind if the covered entries are gone already.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from countledger.compaction import cost, plan
from countledger.compaction.report import (
    CompactionPlan,
    CompactionReport,
    CompactionStep,
    RunOutcome,
)
from countledger.compaction.retire import Retire
from countledger.compaction.run import Run
from countledger.ledger import keys
from countledger.ledger.attempts import Backoff
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import HEAD_COVERS_MAX, SECOND_MS
from countledger.ledger.namespace import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.archive import Archive
    from countledger.compaction.limit import AgeLimit
    from countledger.compaction.regions import Regions
    from countledger.ledger.namespace import Namespace, Namespaces

# Replication takes about a second; a region that needs longer is left to the next run.
_PATIENCE_MS: Final = 15 * SECOND_MS
_WORKERS: Final = 4


def _new_run() -> str:
    return uuid4().hex


@dataclass(frozen=True, slots=True)
class Compactor:
    """Merges the old entries of ledger counters.

    Attributes:
        regions: the regions of the table `ledger`, seen from the home region.
        namespaces: tell spread and horizon.
        limit: how old an entry of a namespace must be.
        retire: how merged entries are deleted.
        archive: where entries are kept before they are deleted, or None.
        archive_as_found: archive the entries that an earlier run published and did not archive as
            they are, although some were deleted or changed by hand since.
        clock: tells the time and waits.
        new_run: makes an id that no other run has.
        random: what jitter is drawn from.
        backoff: how often a conflict is tried again.
        covers_max: how many entries one generation takes in.
        patience_ms: for how long to wait for a region that has not caught up.
        workers: how many deletes are under way at once.
    """

    regions: Regions
    namespaces: Namespaces
    limit: Callable[[Namespace], AgeLimit]
    retire: Retire = Retire.TRANSACTION
    archive: Archive | None = None
    clock: Clock = field(default_factory=SystemClock)
    new_run: Callable[[], str] = _new_run
    random: Random = field(default_factory=Random)
    backoff: Backoff = field(default_factory=Backoff)
    covers_max: int = HEAD_COVERS_MAX
    patience_ms: int = _PATIENCE_MS
    workers: int = _WORKERS
    archive_as_found: bool = False

    def compact(
        self,
        counter: str,
        *,
        deadline_ms: int | None = None,
        on_step: Callable[[CompactionStep], None] = lambda _: None,
    ) -> CompactionReport:
        """Merge all entries of a counter that are old enough, in as many generations as it takes.

        By transactions about 2.06 write units for each entry of up to 1 KB, by single deletes 1.06,
        and one more, with an archive one for each generation; some read units for each 4 KB of
        entries, in every region. It may be called
        beside any other run; it can be stopped anywhere, and another run goes on.

        Args:
            counter: its name.
            deadline_ms: the moment, by the clock, past which nothing new is begun.
            on_step: told of each step as it begins.

        Returns:
            What became of it. Errors are values in here: one counter's failure is no other's.
        """
        try:
            namespace = self.namespaces.expect(keys.check_counter(counter), Kind.LEDGER)
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
        namespace = self.namespaces.expect(keys.check_counter(counter), Kind.LEDGER)
        cutoff_ms = self.limit(namespace).cutoff_ms(self.clock.now_ms())
        views = self.regions.metered()
        head = views.head(counter)
        estimate = cost.Estimate(
            self.retire, self.covers_max, head, archive=self.archive is not None
        )
        for range_ in plan.ranges(namespace.spread, cutoff_ms):
            query = plan.page_of(self.regions.table, counter, range_, None, None)
            for items in views.home.pages(query):
                estimate.add(plan.mergeable(items, head, cutoff_ms))
        return estimate.plan(counter)
