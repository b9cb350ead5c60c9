"""Delete a ledger counter: exactly, and therefore in steps.

A producer may still send an entry that it made before the request, and no write of an entry checks
a mark. So the counter is marked first, and deleted once no entry made before the mark can arrive.
Each call does as many steps as are safe:

    mark      store the time of the request; all numbers are read as before
    wait      until no entry made by then can arrive any more (`AgeLimit`), and until no stream
              record of the counter can be delivered again (30 hours after its total last changed):
              the watermarks are deleted with the total
    merge     compact: all entries are merged into the head, and no number changes
    prove     all stream records up to then have been applied (the proof of `verify`)
    delete    one transaction: an empty head replaces the head, the total goes, the mark says so
    tidy      delete alert states, alert log and memberships that are older than the deletion
    forget    a day later tidy again (for a late evaluator), then delete the empty head and the mark

If an entry is newer than the mark, nothing is deleted: the counter is in use, and the wait begins
again. An entry that arrives between the last check and the transaction is not part of what is
deleted: it makes a new total, and head and total agree at every moment.

The name may be used again at any time after that transaction. So every write names the identity of
what it saw: the head by its run, the mark by its id, a membership by its id. Alert states and log
carry a time instead of the counter's identity; they are deleted if they are older than the
transaction by more than clocks differ. The report names everything that stays.

| crash after | state |
|---|---|
| mark, wait, merge, prove | every number as it was; the next call continues |
| delete | the mark says so: the next call tidies |
| some of tidy | the same; what is gone is not deleted again |
| the empty head is deleted | a mark, which the next call deletes |

Why the empty head stays for a day: a run of the compactor that began before the counter had a head
publishes on condition that there is none. It must find one; after half a day a run publishes
nothing any more (`run`). An exact read that takes half a day starts over for the same reason.
Versions of the total begin again as well, so `repair` writes no finding older than that.

A counter of a ledger with replicas cannot be deleted: each region has totals of its own, and no
transaction reaches them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from countledger.compaction import deletion, deletion_marks, plan
from countledger.compaction.archive import unarchived_of
from countledger.compaction.deletion import Deletion, DeletionStage
from countledger.compaction.deletion_marks import DeletionMark, DeletionMarks
from countledger.compaction.report import RunOutcome
from countledger.ledger import keys
from countledger.ledger.before_send import guarded
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import (
    ConditionFailed,
    NoSuchCounter,
    ServiceFailed,
    TransactionCancelled,
)
from countledger.ledger.expressions import AllOf, BeginsWith, Compare
from countledger.ledger.limits import (
    DAY_MS,
    HOUR_MS,
    MEMBERSHIP_LEAVES_MS,
    SECOND_MS,
    STREAM_RECORD_MAX_AGE_MS,
)
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Delete, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.compaction.plan import AgeLimit
    from countledger.compaction.regions import Regions
    from countledger.compaction.report import CompactionReport
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.head import Head
    from countledger.ledger.namespace import Namespace, Namespaces
    from countledger.ledger.operations import Update

EMPTY_HEAD_LIFE_MS: Final = DAY_MS
_MERGED: Final = frozenset({RunOutcome.MERGED, RunOutcome.NOTHING})
# How long after the time that it carries the transaction may leave: with half a day for a run, and
# the life of a request, that is less than a day.
_EMPTIES_WITHIN_MS: Final = HOUR_MS


@dataclass(frozen=True, slots=True)
class LedgerDeleter:
    """Deletes ledger counters, in the home region.

    Attributes:
        dynamo: its SDK may retry; every write has a condition or can be repeated.
        table: the table `counters`.
        regions: of the table `ledger`.
        namespaces: kind and horizon of each namespace.
        limit: after how long no entry can arrive any more.
        compact: merges all entries of a counter that are old enough.
        unproven: why a counter's total may not be final; None: it is.
        tidy: deletes what else is kept of a counter and dated no later than a time (ms), and
            returns what stays.
        clock: the time.
        new_id: makes an id that is never used again: of a deletion, or of a request.
    """

    dynamo: DynamoClient
    table: str
    regions: Regions
    namespaces: Namespaces
    limit: Callable[[Namespace], AgeLimit]
    compact: Callable[[str], CompactionReport]
    unproven: Callable[[str], str | None]
    tidy: Callable[[str, int], Sequence[str]]
    clock: Clock = field(default_factory=SystemClock)
    new_id: Callable[[], str] = lambda: uuid4().hex

    def delete(self, counter: str) -> Deletion:
        """Continue the deletion of a counter, as far as is safe now; the first call marks it.

        To mark: a write unit and some reads. To delete: what compacting it costs, two units for the
        head, the total and the mark each, one for each KB that is tidied, and four more.

        Raises:
            NoSuchCounter: nothing was ever recorded under that name.
            NamespaceUnknown, WrongKind: it is not a counter of a ledger.
            BadSetting: the ledger has replicas: no transaction reaches the totals of other regions.
        """
        namespace = self.namespaces.expect(keys.check_counter(counter), Kind.LEDGER)
        mark = self.mark(counter)
        if mark is None:
            return self._begin(counter, namespace)
        if mark.deleted_at_ms is not None:
            return self._finish(mark, namespace)
        emptied = self._empty(mark, namespace)
        return self._finish(emptied, namespace) if isinstance(emptied, DeletionMark) else emptied

    def cancel(self, counter: str) -> bool:
        """Delete the mark of a counter: one write unit. True if it had one.

        What was deleted already stays deleted.
        """
        mark = self.mark(counter)
        if mark is None or mark.deleted_at_ms is not None:
            return False
        try:
            self.dynamo.delete(deletion_marks.cancel_of(self.regions.table, mark))
        except ConditionFailed:
            return self.mark(counter) is None
        return True

    def mark(self, counter: str) -> DeletionMark | None:
        """The mark of a counter, or None; costs as `DeletionMarks.find`."""
        return self.marks.find(counter)

    @property
    def marks(self) -> DeletionMarks:
        """The marks of the stack."""
        return DeletionMarks(self.dynamo, self.regions.table, self.table, self.new_id)

    def _begin(self, counter: str, namespace: Namespace) -> Deletion:
        deletion.refuse_replicas(self.regions.survey(), counter)
        total = self._total(counter)
        if total is None and not self._head(counter).generation and not self._has_entries(counter):
            raise NoSuchCounter(
                f"counter {counter!r} has no entries and no total: nothing to delete"
            )
        now_ms = self.clock.now_ms()
        mark = deletion_marks.mark_of(self.regions.table, counter, self.new_id(), now_ms)
        try:
            self.dynamo.put(mark)
        except ConditionFailed as failed:
            # Marked by another process, or by an attempt of this one that got no answer.
            now_ms = deletion_marks.decode_mark(failed.item).at_ms if failed.item else now_ms
        ready_ms = self._ready_ms(now_ms, namespace, total)
        return Deletion(counter, DeletionStage.MARKED, ready_ms, "nothing is deleted before then")

    def _empty(self, mark: DeletionMark, namespace: Namespace) -> Deletion | DeletionMark:
        """Merge, prove, delete: the mark as it is then, or why nothing was deleted."""
        counter, now_ms = mark.counter, self.clock.now_ms()
        deletion.refuse_replicas(self.regions.survey(), counter)
        total = self._total(counter)
        ready_ms = self._ready_ms(mark.at_ms, namespace, total)
        if now_ms < ready_ms:
            detail = "until then an entry made before the mark may arrive, or be delivered again"
            return Deletion(counter, DeletionStage.WAITING, ready_ms, detail)
        unready = self._unready(counter)
        if unready is not None:
            return deletion.skipped(counter, unready)
        head = self._head(counter)
        if self._has_entries(counter) or (head.to_at_ms or 0) > mark.at_ms:
            return self._mark_again(mark, namespace)
        deleted_ms = self.clock.now_ms()
        tables = (self.regions.table, self.table)
        writes = deletion.plan_deletion(tables, mark, head, total, deleted_ms)
        try:
            with guarded(partial(self._refuse_if_late, deleted_ms)):
                self.dynamo.transact(writes, self.new_id())
        except TransactionCancelled:
            done = self.mark(counter)
            if done is None or done.deleted_at_ms is None:
                return deletion.skipped(
                    counter, "its head, total or mark has just changed; call again"
                )
            return done
        return deletion.deleted(mark, head, deleted_ms)

    def _refuse_if_late(self, deleted_ms: int) -> None:
        """The empty head stays for a day, counted from the time that is written with it."""
        if self.clock.now_ms() - deleted_ms > _EMPTIES_WITHIN_MS:
            raise ServiceFailed("this deletion was suspended before it was sent; call again")

    def _unready(self, counter: str) -> str | None:
        """Why the head may lack an entry, or the total a record; None: both are complete."""
        report = self.compact(counter)
        if report.outcome not in _MERGED:
            return f"compaction: {report.outcome} {report.detail}".rstrip()
        if self._head(counter).covers:
            return "another run is compacting it; call again"
        return self.unproven(counter)

    def _mark_again(self, mark: DeletionMark, namespace: Namespace) -> Deletion:
        now_ms = self.clock.now_ms()
        try:
            self.dynamo.update(deletion_marks.mark_again(self.regions.table, mark, now_ms))
        except ConditionFailed:
            return deletion.skipped(mark.counter, "its mark has just changed; call again")
        ready_ms = self._ready_ms(now_ms, namespace, self._total(mark.counter))
        detail = "it was changed after it was marked: stop its writers; the wait begins again now"
        return Deletion(mark.counter, DeletionStage.IN_USE, ready_ms, detail)

    def _finish(self, mark: DeletionMark, namespace: Namespace) -> Deletion:
        """Tidy; a day later forget."""
        counter, deleted_ms = mark.counter, mark.deleted_at_ms or mark.at_ms
        older_ms = deleted_ms - self._doubt_ms(namespace)
        if not mark.tidied:
            self.tidy(counter, older_ms)
            self._quietly(deletion_marks.tidied_of(self.regions.table, mark))
        forget_ms = deleted_ms + EMPTY_HEAD_LIFE_MS
        if self.clock.now_ms() < forget_ms:
            detail = "an empty head keeps its place until then; call again to forget the name"
            return Deletion(counter, DeletionStage.DELETED, forget_ms, detail)
        # Once more: a late evaluator may have written states since.
        stays = [*self.tidy(counter, older_ms)]
        # Before the head: a process that finds the name forgotten must find nothing of it.
        if self.dynamo.get(self.regions.table, keys.archived_key(counter), consistent=True):
            self._quietly(unarchived_of(self.regions.table, counter, mark.emptied))
        empty = deletion.empty_head(mark, mark.generation or 0)
        # If that fails the head is gone, or belongs to the next counter of this name.
        self._quietly(Delete(self.regions.table, keys.head_key(counter), plan.is_still(empty)))
        if self._has_numbers(counter):
            stays.insert(0, "what was recorded since")
        self._quietly(deletion_marks.unmark_of(self.regions.table, mark))
        return Deletion(counter, DeletionStage.FORGOTTEN, None, deletion.what_is_left(stays))

    def _doubt_ms(self, namespace: Namespace) -> int:
        """What is dated later than so long before the deletion may belong to the next counter.

        Clocks differ, alerts are dated in whole seconds, and a membership is dated before its
        request leaves, which then may be under way for as long as its signature is valid.
        """
        limit = self.limit(namespace)
        return limit.clock_skew_ms + MEMBERSHIP_LEAVES_MS + limit.request_life_ms + SECOND_MS

    def _ready_ms(self, marked_ms: int, namespace: Namespace, total: Item | None) -> int:
        limit = self.limit(namespace)
        changed_ms = (total or {}).get("updated_at") or marked_ms
        again_ms = changed_ms + STREAM_RECORD_MAX_AGE_MS + limit.clock_skew_ms
        return max(marked_ms + limit.age_ms, again_ms) + 1

    def _total(self, counter: str) -> Item | None:
        return self.dynamo.get(self.table, keys.total_key(counter), consistent=True)

    def _head(self, counter: str) -> Head:
        return self.regions.metered().head(counter)

    def _has_numbers(self, counter: str) -> bool:
        """Whether anything was recorded under the name: three read units."""
        head, total = self._head(counter), self._total(counter)
        return bool(head.generation) or total is not None or self._has_entries(counter)

    def _has_entries(self, counter: str) -> bool:
        entries = AllOf(Compare("counter", "=", counter), BeginsWith("entry", keys.ENTRY_PREFIX))
        read = Query(self.regions.table, entries, consistent=True, page_size=1)
        # A page may be empty although more follow.
        return any(self.dynamo.pages(read))

    def _quietly(self, write: Update | Delete) -> None:
        """Write, unless it was done before."""
        try:
            if isinstance(write, Delete):
                self.dynamo.delete(write)
            else:
                self.dynamo.update(write)
        except ConditionFailed:
            return
