"""Remove a ledger counter: exactly, and so never at once.

What a producer may still send cannot be told from what is new, and no write looks at a mark. So a
counter is marked first, and removed once nothing that was made before the mark can arrive:

    mark      the time of asking; all numbers are read as before
    wait      until no entry made by then can arrive any more (`limit`), and until no stream record
              of it can be delivered again (30 hours after its total last moved): the total's
              watermarks go with it
    merge     compact: all entries go into the head, and no number changes
    prove     the stream has been handled past that (the proof of `verify`)
    remove    one transaction: an empty head in place of the head, the total deleted, the mark told
    tidy      alert states, alert log and memberships
    forget    a day later these again (a late judge), the empty head and the mark

What was made behind the mark stops it: the counter is in use, nothing is removed, and the mark
starts anew from now. An entry that arrives between the last look and the transaction is none of
what is removed: it makes a total of its own, and head and total agree at every moment.

| crash after | leaves |
|---|---|
| mark, wait, merge, prove | every number as it was; the next call goes on |
| remove | the mark tells it: the next call tidies |
| some of tidy | the same; what is gone is not asked for twice |
| the empty head was forgotten | a mark, which the next call removes |

Why the empty head stays for a day: a run of the compactor that began before there was any head
publishes on condition that there is none. It must find one; a run that is half a day old publishes
nothing any more (`run`). Versions of the total begin again as well, so a finding of `repair` that
is older than that is not written either.

Of a ledger with replicas nothing is removed: each region has totals of its own, and no transaction
reaches them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from countledger.compaction import removal_mark
from countledger.compaction.removal_mark import Mark, decode_mark
from countledger.compaction.removal_plan import RUN, plan_removal
from countledger.compaction.removal_stage import Removal, Stage
from countledger.compaction.report import Outcome
from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import (
    BadSetting,
    ConditionFailed,
    NoSuchCounter,
    TransactionCancelled,
)
from countledger.ledger.expressions import AllOf, BeginsWith, Compare
from countledger.ledger.limits import DAY_MS, STREAM_RECORD_MAX_AGE_MS
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Delete, Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.limit import AgeLimit
    from countledger.compaction.regions import Regions
    from countledger.compaction.report import Report
    from countledger.ledger.attributes import Item
    from countledger.ledger.door import Door
    from countledger.ledger.head import Head
    from countledger.ledger.namespace import Namespace, Namespaces
    from countledger.ledger.operations import Update

EMPTY_HEAD_LIFE_MS: Final = DAY_MS
_MERGED: Final = frozenset({Outcome.MERGED, Outcome.NOTHING})


@dataclass(frozen=True, slots=True)
class LedgerRemover:
    """Removes ledger counters, in the home region.

    Attributes:
        door: its SDK may retry; every write has a condition or can be repeated.
        table: the table `counters`.
        regions: of the table `ledger`.
        namespaces: tell kind and horizon.
        limit: after how long nothing that was made can arrive.
        compact: merges all entries of a counter that are old enough.
        unproven: why a counter's total cannot be taken for its last word; None: it can.
        tidy: removes what else is kept of a counter, up to a moment.
        clock: tells the time.
        new_token: makes a client request token.
    """

    door: Door
    table: str
    regions: Regions
    namespaces: Namespaces
    limit: Callable[[Namespace], AgeLimit]
    compact: Callable[[str], Report]
    unproven: Callable[[str], str | None]
    tidy: Callable[[str, int], None]
    clock: Clock = field(default_factory=SystemClock)
    new_token: Callable[[], str] = lambda: uuid4().hex

    def remove(self, counter: str) -> Removal:
        """Go on with the removal of a counter, as far as is safe now; the first call marks it.

        To mark: a write unit and some reads. To remove: what compacting it costs, two units for the
        head, the total and the mark each, one for each KB of what is tidied, and four more.

        Raises:
            NoSuchCounter: nothing was ever recorded under that name.
            NamespaceUnknown, WrongKind: it is no counter of a ledger.
            BadSetting: the ledger has replicas: no transaction reaches the totals of other regions.
        """
        namespace = self.namespaces.expect(keys.check_counter(counter), Kind.LEDGER)
        mark = self.mark(counter)
        if mark is None:
            return self._begin(counter, namespace)
        if mark.removed_at_ms is None:
            stopped = self._empty(mark, namespace)
            if stopped is not None:
                return stopped
            mark = self.mark(counter) or mark
        return self._finish(mark)

    def cancel(self, counter: str) -> bool:
        """Take the mark off a counter: one write unit. Whether there was one to take off.

        What was removed already stays so.
        """
        mark = self.mark(counter)
        if mark is None or mark.removed_at_ms is not None:
            return False
        try:
            self.door.delete(removal_mark.cancel_of(self.table, mark))
        except ConditionFailed:
            return self.mark(counter) is None
        return True

    def mark(self, counter: str) -> Mark | None:
        """The mark of a counter, or None: one read unit."""
        item = self.door.get(self.table, keys.removal_key(counter), consistent=True)
        return None if item is None else decode_mark(item)

    def _begin(self, counter: str, namespace: Namespace) -> Removal:
        self._refuse_more_regions(counter)
        total = self._total(counter)
        if total is None and not self._head(counter).generation and not self._has_entries(counter):
            raise NoSuchCounter(
                f"counter {counter!r} has no entries and no total: nothing to remove"
            )
        now_ms = self.clock.now_ms()
        try:
            self.door.put(removal_mark.mark_of(self.table, counter, now_ms))
        except ConditionFailed as failed:
            # By somebody else, or by an attempt of ours whose answer was lost.
            now_ms = decode_mark(failed.item).at_ms if failed.item else now_ms
        ready_ms = self._ready_ms(now_ms, namespace, total)
        return Removal(counter, Stage.MARKED, ready_ms, "nothing is removed before then")

    def _empty(self, mark: Mark, namespace: Namespace) -> Removal | None:
        """Merge, prove, remove. None: it was done."""
        counter, now_ms = mark.counter, self.clock.now_ms()
        self._refuse_more_regions(counter)
        total = self._total(counter)
        ready_ms = self._ready_ms(mark.at_ms, namespace, total)
        if now_ms < ready_ms:
            detail = "until then something made before the mark may arrive, or come again"
            return Removal(counter, Stage.WAITING, ready_ms, detail)
        unready = self._unready(counter)
        if unready is not None:
            return self._left(counter, unready)
        head = self._head(counter)
        if self._has_entries(counter) or (head.to_at_ms or 0) > mark.at_ms:
            return self._mark_again(mark, namespace)
        writes = plan_removal((self.regions.table, self.table), mark, head, total, now_ms)
        try:
            self.door.transact(writes, self.new_token())
        except TransactionCancelled:
            done = self.mark(counter)
            if done is None or done.removed_at_ms is None:
                return self._left(counter, "it moved at the last moment; call again")
        return None

    def _unready(self, counter: str) -> str | None:
        """Why its head cannot be taken for all there was; None: it is, and its total knows."""
        report = self.compact(counter)
        if report.outcome not in _MERGED:
            return f"compaction: {report.outcome} {report.detail}".rstrip()
        if self._head(counter).covers:
            return "another run is compacting it; call again"
        return self.unproven(counter)

    def _mark_again(self, mark: Mark, namespace: Namespace) -> Removal:
        now_ms = self.clock.now_ms()
        try:
            self.door.update(removal_mark.mark_again(self.table, mark, now_ms))
        except ConditionFailed:
            return self._left(mark.counter, "its mark was changed meanwhile; call again")
        ready_ms = self._ready_ms(now_ms, namespace, self._total(mark.counter))
        detail = "it was changed after it was marked: stop its writers; it is marked anew from now"
        return Removal(mark.counter, Stage.IN_USE, ready_ms, detail)

    def _finish(self, mark: Mark) -> Removal:
        """Tidy; a day later forget."""
        counter, removed_ms = mark.counter, mark.removed_at_ms or mark.at_ms
        if not mark.tidied:
            self.tidy(counter, removed_ms)
            self._quietly(removal_mark.tidied_of(self.table, mark))
        forget_ms = removed_ms + EMPTY_HEAD_LIFE_MS
        if self.clock.now_ms() < forget_ms:
            detail = "an empty head keeps its place until then; call again to forget the name"
            return Removal(counter, Stage.REMOVED, forget_ms, detail)
        # Once more: what judged its last moves late has written its states since.
        self.tidy(counter, removed_ms)
        empty = AllOf(Compare("generation", "=", mark.generation), Compare("run", "=", RUN))
        # Where that fails it is gone, or the name is in use again and this is the head of that.
        self._quietly(Delete(self.regions.table, keys.head_key(counter), empty))
        self._quietly(removal_mark.unmark_of(self.table, mark))
        return Removal(counter, Stage.FORGOTTEN, None, "nothing is left of it")

    def _refuse_more_regions(self, counter: str) -> None:
        survey = self.regions.survey()
        if survey.strong:
            raise BadSetting(
                f"counter {counter!r} cannot be removed: its ledger has multi-region strong "
                "consistency and takes no transactions, so its numbers cannot go at once"
            )
        if survey.others:
            raise BadSetting(
                f"counter {counter!r} cannot be removed: its ledger is in other regions as well: "
                f"{', '.join(survey.others)}. Its totals there would stay"
            )

    def _ready_ms(self, marked_ms: int, namespace: Namespace, total: Item | None) -> int:
        limit = self.limit(namespace)
        moved_ms = (total or {}).get("updated_at") or marked_ms
        again_ms = moved_ms + STREAM_RECORD_MAX_AGE_MS + limit.clock_skew_ms
        return max(marked_ms + limit.age_ms, again_ms) + 1

    def _total(self, counter: str) -> Item | None:
        return self.door.get(self.table, keys.total_key(counter), consistent=True)

    def _head(self, counter: str) -> Head:
        return self.regions.metered().head(counter)

    def _has_entries(self, counter: str) -> bool:
        entries = AllOf(Compare("counter", "=", counter), BeginsWith("entry", keys.ENTRY_PREFIX))
        read = Query(self.regions.table, entries, consistent=True, page_size=1)
        # A page may be empty although more follow.
        return any(self.door.pages(read))

    def _quietly(self, write: Update | Delete) -> None:
        """Write, unless it was done before."""
        try:
            if isinstance(write, Delete):
                self.door.delete(write)
            else:
                self.door.update(write)
        except ConditionFailed:
            return

    @staticmethod
    def _left(counter: str, detail: str) -> Removal:
        return Removal(counter, Stage.LEFT, None, detail)
