"""Delete counters of every kind, by name or by namespace.

A ledger counter is deleted in steps, by what `deletion` has: the mark, the totals of each region,
the transaction. A strict counter and a sequence are deleted by one call: each of their writes is
conditional on the counter's incarnation. Their own packages do it.

Delete a ledger counter: exactly, and therefore in steps.

A producer may still send an entry that it made before the request, and no write of an entry checks
a mark. So the counter is marked first, and deleted once no entry made before the mark can arrive.
Each call does as many steps as are safe:

    mark      store the time of the request; all numbers are read as before
    wait      until no entry made by then can arrive any more (`AgeLimit`), and until no stream
              record of the counter can be delivered again (30 hours after its total last changed
              in any region): the watermarks are deleted with the total
    merge     compact: all entries are merged into the head, and no number changes
    prove     all stream records up to then have been applied, in every region (as `verify`)
    empty     one transaction: an empty head replaces the head, the total goes, the mark says so
    clear     delete the total of each other region that shows the empty head (`deletion`)
    tidy      delete alert states, alert log and memberships that are older than the deletion
    forget    a day later tidy again (for a late evaluator), then delete the empty head and the mark

If an entry is newer than the mark, nothing is deleted: the counter is in use, and the wait begins
again. An entry that arrives between the last check and the transaction is not part of what is
deleted: it makes a new total, and head and total agree at every moment.

The name may be used again at any time after that transaction. So every write names the identity of
what it saw: the head by its run, the mark by its id, a membership by its revision. Alert states and
log carry a time instead of the counter's identity; they are deleted if they are older than the
transaction by more than clocks differ. The report names everything that stays.

| crash after | state |
|---|---|
| mark, wait, merge, prove | every number as it was; the next call continues |
| empty | the mark stores it; the next call clears and tidies |
| some of clear or tidy | the same; what is gone is not deleted again |
| the empty head is deleted | a mark, which the next call deletes |

Why the empty head stays for a day: a run of the compactor that began before the counter had a head
publishes on condition that there is none. It must find one; after half a day a run publishes
nothing any more (`compactor`). An exact read that takes half a day starts over for the same reason.
Versions of the total begin again as well, so `repair` writes no finding older than that.

With replicas all writes leave under the lease of the home (`lease`), and head and mark must be the
same in every region before they are emptied: so a region that becomes home continues. The two
writes of the transaction travel to other regions alone, and if the home is lost one of them may
never arrive. Then the head decides. An empty head without the note in the mark: the note is made
again. A note without the empty head: nothing was deleted here, and the mark is pending again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from countledger.compaction import deletion, plan
from countledger.compaction.archive import unarchived_of
from countledger.compaction.compactor import Compactor
from countledger.compaction.deletion import (
    CounterRegions,
    Deletion,
    DeletionMark,
    DeletionMarks,
    DeletionStage,
    HeadEmptier,
    skipped,
)
from countledger.compaction.plan import limits_by
from countledger.compaction.regions import Regions
from countledger.compaction.report import RunOutcome
from countledger.compaction.schedule import stored_schedule
from countledger.ledger import keys
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    LeaseEnded,
    NoSuchCounter,
    Refused,
    ServiceFailed,
)
from countledger.ledger.limits import DAY_MS
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Delete
from countledger.ledger.records import NotRead, Records, Replacement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.compaction.deletion import RegionalTotals
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.exact import Head
    from countledger.ledger.namespace import Namespace
    from countledger.ledger.records import Decide, RecordWritten, Seen


EMPTY_HEAD_LIFE_MS: Final = DAY_MS
_MERGED: Final = frozenset({RunOutcome.MERGED, RunOutcome.NOTHING})


class LedgerDeleter:
    """Deletes ledger counters, in the home region (else WrongRegion).

    The compactor merges all entries of a counter that are old enough; None: as the schedule of its
    namespace says, except for its minimum age.
    """

    def __init__(
        self,
        connection: Connection,
        totals: Callable[[str], RegionalTotals],
        compactor: Compactor | None = None,
    ) -> None:
        self.connection, self._compactor, self._totals = connection, compactor, totals
        self.regions = Regions(connection) if compactor is None else compactor.regions
        self.namespaces = Namespaces(connection)
        self.marks = DeletionMarks(connection)
        self.everywhere = CounterRegions(self.regions, totals)
        self._emptier = HeadEmptier(connection, self.everywhere)
        self._limit = limits_by(connection)

    def delete(self, counter: str) -> Deletion:
        """Continue the deletion of a counter, as far as is safe now; the first call marks it.

        To mark: a write unit and some reads. To delete: what compacting it costs, two units for the
        head, the total and the mark each, one for each KB that is tidied, and four more. In each
        other region some reads and a `verify`, and a unit for each KB of the total.

        Raises:
            NoSuchCounter: nothing was ever recorded under that name.
            NamespaceUnknown, WrongKind: it is not a counter of a ledger.
            BadSetting: the ledger allows no transactions.
            CountledgerError: a region cannot be read or written.
        """
        counter = keys.check_counter(counter)
        namespace = self.namespaces.expect(counter, Kind.LEDGER)
        deletion.refuse_strong(self.regions.survey(), counter)
        if reason := self._waits():
            return deletion.skipped(counter, reason)
        try:
            mark = self.mark(counter)
            if mark is None:
                return self._begin(counter, namespace)
            if deletion.is_missing(mark, partial(self._head, counter)):
                mark = self._emptier.reopened(mark, self._head(counter))
            if mark.deleted_at_ms is not None:
                return self._finish(mark, namespace)
            emptied = self._empty(mark, namespace)
            if not isinstance(emptied, DeletionMark):
                return emptied
            return self._finish(emptied, namespace)
        except LeaseEnded as ended:
            return deletion.skipped(counter, str(ended))

    def cancel(self, counter: str) -> bool:
        """Cancel the deletion of a counter: one write unit. True if it was marked.

        What was deleted already stays deleted.

        Raises:
            ServiceFailed: the ledger has replicas, and this home may write nothing now.
            Unclear: an attempt got no answer, and others have changed the mark since.
        """
        stored = self.marks.stored(counter)
        mark = deletion.mark_in(stored)
        if mark is None or mark.deleted_at_ms is not None:
            return False
        if reason := self._waits():
            raise ServiceFailed(f"the mark of {counter!r} stays: {reason}; call again")

        def decide(there: Item | None) -> Replacement | None:
            pending = there is not None and deletion.decode_mark(there).deleted_at_ms is None
            return Replacement(None) if pending else None

        return self._write_mark(counter, decide, seen=stored).changed

    def mark(self, counter: str) -> DeletionMark | None:
        """The mark of a counter, or None; costs as `DeletionMarks.find`."""
        return self.marks.find(counter)

    def _write_mark(self, counter: str, decide: Decide, seen: Seen) -> RecordWritten:
        records = Records(self.connection, self.marks.ledger, "the deletion of counter")
        steps = records.write(counter, keys.deletion_key(counter), decide, seen=seen)
        with self.everywhere.under_lease():
            return self.connection.run(steps)

    def _begin(self, counter: str, namespace: Namespace) -> Deletion:
        total = self._total(counter)
        exists = total is not None or self._head(counter).generation
        if not exists and not self.everywhere.has_entries(counter, self.regions.region):
            raise NoSuchCounter(
                f"counter {counter!r} has no entries and no total: nothing to delete"
            )
        item = deletion.new_mark(counter, self.connection.clock.now_ms())
        # Another process may have marked it.
        written = self._write_mark(
            counter,
            lambda there: None if there else Replacement(item),
            seen=NotRead.EXPECT_NOTHING,
        )
        mark = deletion.decode_mark(written.item or item)
        ready_ms = self._ready_ms(counter, mark.at_ms, namespace, total)
        return Deletion(counter, DeletionStage.MARKED, ready_ms, "nothing is deleted before then")

    def _empty(self, mark: DeletionMark, namespace: Namespace) -> Deletion | DeletionMark:
        """Merge, prove, delete: the mark as it is then, or why nothing was deleted."""
        counter, now_ms = mark.counter, self.connection.clock.now_ms()
        total = self._total(counter)
        ready_ms = self._ready_ms(counter, mark.at_ms, namespace, total)
        if now_ms < ready_ms:
            detail = "until then an entry made before the mark may arrive, or be delivered again"
            return Deletion(counter, DeletionStage.WAITING, ready_ms, detail)
        if reason := self._unready(mark):
            return deletion.skipped(counter, reason)
        head = self._head(counter)
        if head.incarnation == mark.id:
            return self._emptier.noted(mark, head)
        if self.everywhere.have_entries(counter) or (head.to_at_ms or 0) > mark.at_ms:
            return self._mark_again(mark, namespace)
        if reason := self.everywhere.differing(mark, head) or self.everywhere.waits():
            return deletion.skipped(counter, reason)
        return self._emptier.emptied(mark, head, total)

    def _unready(self, mark: DeletionMark) -> str | None:
        """Why the head may lack an entry, or a total a record; None: all are complete."""
        report = self._compacting(mark.counter).compact(mark.counter)
        if report.outcome not in _MERGED:
            return f"compaction: {report.outcome} {report.detail}".rstrip()
        head = self._head(mark.counter)
        if head.covers:
            return "another run is compacting it; call again"
        # The empty head of this deletion proves that they were.
        return None if head.incarnation == mark.id else self.everywhere.unproven(mark.counter)

    def _compacting(self, counter: str) -> Compactor:
        if self._compactor is not None:
            return self._compactor
        schedule = stored_schedule(self.connection, keys.namespace_of(counter))
        if schedule is not None:
            schedule = replace(schedule, min_age_ms=None)
        return Compactor.of_schedule(self.connection, schedule)

    def _mark_again(self, mark: DeletionMark, namespace: Namespace) -> Deletion:
        now_ms = self.connection.clock.now_ms()
        try:
            call = self.connection.ids.unique_id()
            self.everywhere.write(deletion.mark_again(self.regions.table, mark, now_ms, call))
        except ConditionFailed:
            return deletion.skipped(mark.counter, "its mark has just changed; call again")
        total = self._total(mark.counter)
        ready_ms = self._ready_ms(mark.counter, now_ms, namespace, total)
        detail = "it was changed after it was marked: stop its writers; the wait begins again now"
        return Deletion(mark.counter, DeletionStage.IN_USE, ready_ms, detail)

    def _finish(self, mark: DeletionMark, namespace: Namespace) -> Deletion:
        """Clear and tidy; a day later forget."""
        counter, deleted_ms = mark.counter, mark.deleted_at_ms or mark.at_ms
        older_ms = deletion.known_ms(mark) - self._doubt_ms(namespace)
        if not mark.tidied:
            if reason := self.everywhere.clear(mark):
                return deletion.skipped(counter, f"its numbers are deleted; a total: {reason}")
            self.everywhere.tidy(counter, older_ms)
            self.everywhere.quietly(deletion.tidied_of(self.regions.table, mark))
        forget_ms = deleted_ms + EMPTY_HEAD_LIFE_MS
        if self.connection.clock.now_ms() < forget_ms:
            detail = "an empty head keeps its place until then; call again to forget the name"
            return Deletion(counter, DeletionStage.DELETED, forget_ms, detail)
        # Once more: a late evaluator may have written states since.
        stays = self.everywhere.tidy(counter, older_ms)
        # Before the head: a process that finds the name forgotten must find nothing of it.
        if self.marks.dynamo.get(self.regions.table, keys.archived_key(counter), consistent=True):
            self.everywhere.quietly(unarchived_of(self.regions.table, counter, mark.emptied))
        empty = deletion.empty_head(mark, mark.generation or 0)
        # If that fails the head is gone, or belongs to the next counter of this name.
        self.everywhere.quietly(
            Delete(self.regions.table, keys.head_key(counter), plan.is_still(empty))
        )
        if self.everywhere.has_numbers(counter):
            stays.insert(0, "what was recorded since")
        self.everywhere.quietly(deletion.unmark_of(self.regions.table, mark))
        return Deletion(counter, DeletionStage.FORGOTTEN, None, deletion.what_is_left(stays))

    def _doubt_ms(self, namespace: Namespace) -> int:
        return deletion.doubt_ms(self._limit(namespace))

    def _ready_ms(
        self, counter: str, marked_ms: int, namespace: Namespace, total: Item | None
    ) -> int:
        here_ms = (total or {}).get("updated_at") or marked_ms
        changed_ms = max([here_ms, *self.everywhere.changed_elsewhere_ms(counter)])
        return deletion.ready_ms(self._limit(namespace), marked_ms, changed_ms)

    def _total(self, counter: str) -> Item | None:
        return self._totals(self.regions.region).item(counter)

    def _head(self, counter: str) -> Head:
        return self.regions.metered().head(counter)

    def _waits(self) -> str | None:
        """Why nothing may be written now, where there are other regions; else None."""
        survey = self.regions.survey()
        return self.everywhere.waits() if survey.others or survey.unready else None


@dataclass(frozen=True, slots=True)
class Deletions:
    """Deletes counters, in the home region.

    Attributes:
        ledger: deletes ledger counters.
        at_once: deletes a counter of another kind.
        tidy: deletes the markers of a strict counter's earlier incarnations, given its number of
            bins.
        names: the counters of a namespace that have a value.
        seen: finds what is kept beside a counter now; the result deletes that and nothing else.
    """

    ledger: LedgerDeleter
    at_once: Mapping[Kind, Callable[[str], None]]
    tidy: Callable[[str, int], None]
    names: Callable[[str], Iterator[str]]
    seen: Callable[[str], Callable[[], object]]

    def delete(self, counter: str) -> Deletion:
        """Delete a counter, or continue its deletion, as far as is safe now.

        A ledger counter needs three calls: the first marks it, the second deletes its numbers once
        no entry made before can arrive (a day and more), the third forgets its name a day later. A
        strict counter and a sequence are forgotten by the first.

        Raises:
            NoSuchCounter: no counter has that name.
            NamespaceUnknown: its namespace was never used.
            WrongRegion: this is not the home region.
            BadSetting: as `LedgerDeleter.delete`.
        """
        counter = keys.check_counter(counter)
        kind = self._kind(keys.namespace_of(counter))
        if kind is Kind.LEDGER:
            return self.ledger.delete(counter)
        self._delete(kind, counter)
        return Deletion(counter, DeletionStage.FORGOTTEN, None, "nothing is left of it")

    def delete_all(self, namespace: str) -> Iterator[Deletion]:
        """Delete the counters of a namespace, or continue that; the namespace itself stays.

        As `delete` for each; unless they are strict, the table `counters` is scanned for their
        totals, half a read unit for each 4 KB. It can be stopped at any time: the next call
        continues. A counter that was first recorded after all others were marked is marked then. A
        counter that cannot be read or written is skipped, with the reason, and stops no other.

        Raises:
            NamespaceUnknown: the namespace does not exist.
            WrongRegion, BadSetting, SetupError: as `delete`; it concerns every counter.
        """
        self._kind(namespace)
        marked = [*self.pending(namespace)]
        known = set(marked)
        fresh = (counter for counter in self.names(namespace) if counter not in known)
        for counter in chain(marked, fresh):
            try:
                yield self.delete(counter)
            except NoSuchCounter:
                continue  # another process was faster
            except (CorruptItem, Refused, ServiceFailed) as error:
                yield skipped(counter, str(error))

    def pending(self, namespace: str) -> Iterator[str]:
        """The counters of a namespace whose deletion has begun: as `DeletionMarks.pending`."""
        return self.ledger.marks.pending(namespace)

    def cancel(self, counter: str) -> bool:
        """Keep a counter after all, if its numbers are still there.

        Returns:
            True if it was marked, and no longer is.
        """
        counter = keys.check_counter(counter)
        return self.ledger.cancel(counter)

    def _delete(self, kind: Kind, counter: str) -> None:
        """Delete the counter, then what was beside it before; a call after a crash does the rest.

        What is put beside it later belongs to the next counter of the name.
        """
        delete_seen, connection = self.seen(counter), self.ledger.connection
        item = connection.retrying.get(connection.counters, keys.total_key(counter)) or {}
        bins = item.get("bins") or 1
        try:
            self.at_once[kind](counter)
        except NoSuchCounter:
            # A call before may have crashed after this.
            delete_seen()
            self.tidy(counter, bins)
            raise
        delete_seen()
        self.tidy(counter, bins)

    def _kind(self, namespace: str) -> Kind:
        namespace = keys.check_namespace(namespace)
        return self.ledger.namespaces.get(namespace).kind
