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
from typing import TYPE_CHECKING, Final

from countledger.compaction import plan
from countledger.compaction.archive import GenerationArchiver, S3Archive
from countledger.compaction.plan import limits_by
from countledger.compaction.regions import PATIENCE_MS, Regions
from countledger.compaction.report import (
    CompactionPlan,
    CompactionReport,
    CompactionStep,
    Retire,
    Retirer,
    RunEnd,
    RunOutcome,
    Tampered,
    Verb,
    refuse_changed,
)
from countledger.ledger import keys
from countledger.ledger.clock import Backoff, polled
from countledger.ledger.departure import guarded
from countledger.ledger.errors import ConditionFailed, CountledgerError, LeaseEnded, ServiceFailed
from countledger.ledger.exact import NO_HEAD, decode_head, encode_head
from countledger.ledger.limits import HEAD_COVERS_MAX, LEASE_MS, RUN_LIFE_MS
from countledger.ledger.namespace import Kind, Namespaces

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.archive import Archive
    from countledger.compaction.plan import AgeLimit, Candidate
    from countledger.compaction.regions import Views
    from countledger.compaction.schedule import Schedule
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.connection import Connection
    from countledger.ledger.exact import ArchiveRef, Covered, Head
    from countledger.ledger.namespace import Namespace


# One run over one counter: carries out what `plan` decides. `compactor` explains the rules.


class Run:
    def __init__(
        self,
        compactor: Compactor,
        counter: str,
        namespace: Namespace,
        *,
        run: str,
        deadline_ms: int | None,
        on_step: Callable[[CompactionStep], None],
    ) -> None:
        self._compactor = compactor
        self._counter = counter
        self._run = run
        self._deadline_ms = deadline_ms
        self._on_step = on_step
        self._table = compactor.regions.table
        self._views: Views = compactor.regions.metered()
        self._began_ms = compactor.connection.clock.now_ms()
        self._cutoff_ms = compactor.limit(namespace).cutoff_ms(self._began_ms)
        self._ranges = plan.ranges(namespace.spread, self._cutoff_ms)
        self._after: Key | None = None
        self._head: Head | None = None
        self._fresh: list[plan.Candidate] = []
        self._merged = 0
        self._generations = 0
        self._held_back = 0

    def report(self) -> CompactionReport:
        """Work, and return the result; a `CountledgerError` is part of it and not raised."""
        error: CountledgerError | None = None
        try:
            end = self._work()
        except LeaseEnded as ended:
            end = RunEnd(RunOutcome.WAITING, str(ended))
        except CountledgerError as failed:
            outcome = RunOutcome.TAMPERED if isinstance(failed, Tampered) else RunOutcome.FAILED
            end, error = RunEnd(outcome, str(failed)), failed
        return CompactionReport(
            counter=self._counter,
            outcome=end.outcome,
            merged=self._merged,
            generations=self._generations,
            compacted=self._head.entries if self._head else None,
            write_units=self._views.write_units,
            read_units=self._views.read_units,
            detail=end.detail,
            error=error,
        )

    def _work(self) -> RunEnd:
        """One generation after another, until nothing is left to select."""
        if self._compactor.retire is Retire.TRANSACTION:
            self._views.regions.refuse_transactions()
        head = self._head = self._views.head(self._counter)
        while True:
            end = self._await(head) or self._retire(head) or self._wait_until_deleted(head)
            if end:
                return end
            self._step(Verb.SELECT, head)
            selected = self._select(head)
            if not selected or self._late():
                return self._close(head)
            after = plan.next_head(head, selected, self._run, self._seal(head, selected))
            if end := self._publish(head, after):
                return end
            self._merged += len(selected)
            self._fresh = selected if self._compactor.archive else []
            head = after

    def _await(self, head: Head) -> RunEnd | None:
        """This region holds the home's lease, and every region shows this head."""
        self._step(Verb.AWAIT, head)

        def missing() -> RunEnd | None:
            if unready := self._views.regions.survey().unready:
                detail = f"replicas not in service: {', '.join(unready)}"
                return RunEnd(RunOutcome.WAITING, detail)
            if reason := self._views.regions.hold_lease():
                return RunEnd(RunOutcome.WAITING, reason)
            late = plan.arrived(head, self._views.heads_elsewhere(self._counter))
            return RunEnd(*late) if late else None

        return self._poll(missing)

    def _retire(self, head: Head) -> RunEnd | None:
        """Delete the entries that the head covers, once they are archived."""
        if not head.covers:
            return None
        mine = head.run == self._run
        # Another run may have deleted some already: their delete need not be paid for again.
        items = self._still_there(head) if not mine else {}
        for key, item in items.items():
            refuse_changed(head.covers[key], item)
        found = [one.item for one in self._fresh] if mine else [*items.values()]
        if end := self._archive(head, found):
            return end
        self._step(Verb.RETIRE, head)
        compactor = self._compactor
        retirer = Retirer(
            dynamo=self._views.home,
            table=self._table,
            counter=self._counter,
            head=head,
            how=compactor.retire,
            run=self._run,
            clock=compactor.connection.clock,
            random=compactor.connection.random,
            backoff=compactor.backoff,
            workers=compactor.workers,
            before_send=self._check_leaving,
        )
        if retirer.retire(list(head.covers if mine else items), self._late):
            return None
        return RunEnd(RunOutcome.STOPPED, "the deadline has passed; the next run continues")

    def _archive(self, head: Head, items: list[Item]) -> RunEnd | None:
        """Archive what the head covers, if it says so; after an error nothing is deleted."""
        if head.archive is None:
            return None
        archiver = GenerationArchiver(
            self._compactor.archive, self._compactor.archive_as_found, self._views, self._counter
        )
        record = archiver.recorded()
        if not archiver.owes(head, record):
            return None
        self._step(Verb.ARCHIVE, head)
        with guarded(self._check_leaving):
            kept = archiver.keep(head, items, record)
        detail = f"another run has replaced generation {head.generation}"
        return None if kept else RunEnd(RunOutcome.OVERTAKEN, detail)

    def _wait_until_deleted(self, head: Head) -> RunEnd | None:
        """No region shows a covered entry any more."""
        if not head.covers:
            return None
        self._step(Verb.WAIT_UNTIL_DELETED, head)

        def missing() -> RunEnd | None:
            regions = self._views.regions
            for region in (regions.region, *regions.survey().others):
                if left := self._still_there(head, region):
                    detail = f"{region} still shows {len(left)} merged entries"
                    return RunEnd(RunOutcome.WAITING, detail)
            return None

        return self._poll(missing)

    def _still_there(self, head: Head, region: str | None = None) -> dict[str, Item]:
        shown = self._views.shown(self._counter, head.covers, region)
        return plan.still_there(head, shown)

    def _select(self, head: Head) -> list[plan.Candidate]:
        """The next entries to merge, as many as fit.

        Each page is read once in a run, and only after the covered entries are deleted.
        """
        selected: list[plan.Candidate] = []
        while len(selected) < self._compactor.covers_max and not self._late():
            items = self._next_page(self._compactor.covers_max - len(selected))
            if items is None:
                break
            old = plan.mergeable(items, head, self._cutoff_ms)
            if not old:
                continue
            elsewhere = self._views.shown_elsewhere(self._counter, [one.key for one in old])
            alike = plan.shown_alike(old, elsewhere)
            self._held_back += len(old) - len(alike)
            selected += alike
        return selected

    def _next_page(self, size: int) -> list[Item] | None:
        if not self._ranges:
            return None
        query = plan.page_of(self._table, self._counter, self._ranges[0], size, self._after)
        page = self._views.home.page(query)
        self._after = page.after
        if page.after is None:
            self._ranges = self._ranges[1:]
        return page.items

    def _seal(self, head: Head, selected: list[plan.Candidate]) -> ArchiveRef | None:
        if self._compactor.archive is None:
            return None
        items = [one.item for one in selected]
        incarnation = head.incarnation or self._run
        return self._compactor.archive.seal(self._counter, head.generation + 1, incarnation, items)

    def _publish(self, head: Head, after: Head) -> RunEnd | None:
        """Replace the head, if it is still the one that was read.

        ServiceFailed: it would leave so late that "no head" could mean another counter.
        """
        self._step(Verb.PUBLISH, head)
        try:
            with guarded(self._check_leaving):
                self._views.home.put(plan.publish_of(self._table, self._counter, head, after))
        except ConditionFailed as failed:
            # The SDK repeats a write that got no answer, and then finds its own first attempt.
            # A copy of this process's memory may have published other entries under the same run.
            found = decode_head(failed.item)
            if found != after:
                self._head = found
                detail = f"another run has published generation {found.generation}"
                if not found.generation:
                    detail = "its head was forgotten after the counter was deleted"
                return RunEnd(RunOutcome.OVERTAKEN, detail)
        self._head = after
        self._generations += 1
        return None

    def _check_leaving(self) -> None:
        """Raise if a merging write must not leave now."""
        if self._compactor.connection.clock.now_ms() - self._began_ms > RUN_LIFE_MS:
            raise ServiceFailed("this run was suspended for half a day and writes nothing more")
        self._compactor.regions.check_lease()

    def _close(self, head: Head) -> RunEnd:
        """Drop the covers, whose entries are deleted everywhere, and say how the run ended."""
        if head.covers and (end := self._publish(head, plan.closing_head(head, self._run))):
            return end
        if self._late():
            return RunEnd(RunOutcome.STOPPED, f"the deadline passed after {self._merged} entries")
        if self._held_back:
            return RunEnd(RunOutcome.WAITING, f"{self._held_back} entries are not in every region")
        if self._generations:
            return RunEnd(RunOutcome.MERGED, f"{self._merged} entries merged")
        return RunEnd(RunOutcome.NOTHING, "no entry is old enough")

    def _poll(self, missing: Callable[[], RunEnd | None]) -> RunEnd | None:
        """Poll until nothing is missing; after the compactor's patience return what is missing."""
        clock, patience_ms = self._compactor.connection.clock, self._compactor.patience_ms

        def ends(found: RunEnd) -> bool:
            return found.outcome is not RunOutcome.WAITING or self._late()

        return polled(clock, patience_ms, missing, ends)

    def _late(self) -> bool:
        return (
            self._deadline_ms is not None
            and self._compactor.connection.clock.now_ms() >= self._deadline_ms
        )

    def _step(self, verb: Verb, head: Head) -> None:
        self._on_step(CompactionStep(self._counter, verb, head.generation, self._merged))


_WORKERS: Final = 4
_KB: Final = 1_024
_CONTAINER_BYTES: Final = 3
_UNITS_PER_KB: Final = {Retire.TRANSACTION: 2, Retire.DELETE: 1}


@dataclass(frozen=True, slots=True)
class Compactor:
    """Merges the old entries of ledger counters, in the home region (else WrongRegion).

    Attributes:
        archive: where entries are kept before they are deleted, or None.
        archive_as_found: archive entries that an earlier run published and did not archive as they
            are now, although some were deleted or changed by hand since.
        min_age_ms: how old entries must be at least, beside what their namespace asks.
        age: how old entries must be whatever their namespace asks, where no retry is sent.
        as_home: as of `Regions`; likewise `lease_ms`.
        backoff: how often a conflict is tried again.
        covers_max: how many entries one generation covers at most.
        patience_ms: how long to wait for a region that is late.
        workers: how many deletes are under way at the same time.
    """

    connection: Connection
    retire: Retire = Retire.TRANSACTION
    archive: Archive | None = None
    archive_as_found: bool = False
    min_age_ms: int | None = None
    age: AgeLimit | None = None
    as_home: bool = False
    backoff: Backoff = field(default_factory=Backoff)
    covers_max: int = HEAD_COVERS_MAX
    patience_ms: int = PATIENCE_MS
    workers: int = _WORKERS
    lease_ms: int = LEASE_MS
    regions: Regions = field(init=False, repr=False)
    namespaces: Namespaces = field(init=False, repr=False)

    def __post_init__(self) -> None:
        regions = Regions(self.connection, as_home=self.as_home, lease_ms=self.lease_ms)
        object.__setattr__(self, "regions", regions)
        object.__setattr__(self, "namespaces", Namespaces(self.connection))

    @classmethod
    def of_schedule(
        cls, connection: Connection, schedule: Schedule | None, *, archive_as_found: bool = False
    ) -> Compactor:
        """What compacts as a schedule says; without one, with the defaults."""
        if schedule is None:
            return cls(connection)
        place = schedule.archive
        return cls(
            connection,
            retire=schedule.retire,
            archive=None if place is None else S3Archive.at(connection, place),
            archive_as_found=archive_as_found,
            min_age_ms=schedule.min_age_ms,
        )

    def limit(self, namespace: Namespace) -> AgeLimit:
        """How old an entry of a namespace must be; BadSetting if `min_age_ms` is below that."""
        return self.age or limits_by(self.connection, self.min_age_ms)(namespace)

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
        run; it can be stopped at any time, and another run continues. Nothing new is begun after
        `deadline_ms`.

        Errors are values in the report: the failure of one counter stops no other.
        """
        try:
            counter = keys.check_counter(counter)
            namespace = self.namespaces.expect(counter, Kind.LEDGER)
            run = Run(
                self,
                counter,
                namespace,
                run=self.connection.ids.unique_id(),
                deadline_ms=deadline_ms,
                on_step=on_step,
            )
        except CountledgerError as error:
            return CompactionReport(
                counter=counter, outcome=RunOutcome.FAILED, detail=str(error), error=error
            )
        return run.report()

    def plan(self, counter: str) -> CompactionPlan:
        """What a run would do now; nothing is written. A read unit for each 4 KB of old entries."""
        counter = keys.check_counter(counter)
        namespace = self.namespaces.expect(counter, Kind.LEDGER)
        limit = self.limit(namespace)
        cutoff_ms = limit.cutoff_ms(self.connection.clock.now_ms())
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
    """Adds up what a run would do; entries that the head still covers are to be deleted, too."""

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
