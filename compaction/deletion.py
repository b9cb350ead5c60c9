"""The deletion of a ledger counter: its stages, and the transaction that does it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.compaction import plan
from countledger.compaction.deletion_marks import emptied_of, reopened_of
from countledger.ledger import keys
from countledger.ledger.departure import guarded
from countledger.ledger.errors import (
    BadSetting,
    ConditionFailed,
    ServiceFailed,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.exact import Head, encode_head
from countledger.ledger.limits import (
    HOUR_MS,
    MEMBERSHIP_LEAVES_MS,
    SECOND_MS,
    STREAM_RECORD_MAX_AGE_MS,
)
from countledger.ledger.operations import Absent, Check, Compare, Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.compaction.counter_regions import CounterRegions
    from countledger.compaction.deletion_marks import DeletionMark, DeletionMarks
    from countledger.compaction.plan import AgeLimit
    from countledger.compaction.regions import Survey
    from countledger.ledger.attributes import Item
    from countledger.ledger.clock import Clock
    from countledger.ledger.operations import Write

# How long after the time that it carries the transaction may leave: with half a day for a run, and
# the life of a request, that is less than a day.
_EMPTIES_WITHIN_MS: Final = HOUR_MS
# How many of the things that stay a report names.
_NAMED: Final = 5


class DeletionStage(StrEnum):
    """How far a deletion has come."""

    MARKED = "marked"
    WAITING = "waiting"
    IN_USE = "in use"
    SKIPPED = "skipped"
    DELETED = "deleted"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Deletion:
    """How far the deletion of a counter has come.

    Attributes:
        counter: its name.
        stage: `marked` just now; `waiting` until it is safe; `in use`: an entry is newer than the
            mark, so the wait begins again; `skipped` this time, for the reason in `detail`;
            `deleted`: its numbers are gone; `forgotten`: its name as well.
        next_at_ms: when the next call can continue; None: at any time, or nothing is left to do.
        detail: one line for people.
    """

    counter: str
    stage: DeletionStage
    next_at_ms: int | None
    detail: str


def skipped(counter: str, detail: str) -> Deletion:
    """A deletion that did nothing this time, for this reason."""
    return Deletion(counter, DeletionStage.SKIPPED, None, detail)


def what_is_left(stays: Sequence[str]) -> str:
    """What a report says of a deleted counter, given what is kept under its name."""
    if not stays:
        return "nothing is left of it"
    more = f" and {len(stays) - _NAMED} more" if len(stays) > _NAMED else ""
    return f"the name is in use again; kept: {', '.join(stays[:_NAMED])}{more}"


def deleted(mark: DeletionMark, head: Head, now_ms: int, region: str) -> DeletionMark:
    """The mark once this head was emptied, together with the total of a region."""
    return replace(
        mark,
        deleted_at_ms=now_ms,
        generation=head.generation + 1,
        emptied=head.incarnation,
        region=region,
    )


def deleted_elsewhere(
    mark: DeletionMark, head: Head, archived: Item | None, now_ms: int
) -> DeletionMark:
    """The mark of a counter whose head was emptied by a region that is lost.

    Args:
        mark: pending, as it was read.
        head: the empty one, or one of its incarnation that has merged what was recorded since.
        archived: the record of the archive that the counter still has, or None.
        now_ms: the time, from which the empty head stays for a day.
    """
    is_empty = head.run == head.incarnation
    before = str((archived or {}).get("incarnation", ""))
    return replace(
        mark,
        deleted_at_ms=now_ms,
        generation=head.generation if is_empty else 0,
        emptied="" if before == mark.id else before,
        region="",
    )


def is_missing(mark: DeletionMark, head: Callable[[], Head]) -> bool:
    """Whether a mark says that the head was emptied, and the ledger here does not show it.

    Once it is noted that all is tidied every region has shown the empty head.

    Args:
        mark: as it was read.
        head: reads the head; called only if it decides.
    """
    if mark.deleted_at_ms is None or mark.tidied:
        return False
    found = head()
    return found.incarnation != mark.id and found.incarnation == mark.emptied


def ready_ms(limit: AgeLimit, marked_ms: int, changed_ms: int) -> int:
    """From when on the numbers of a counter can be deleted.

    Args:
        limit: after how long no entry can arrive any more.
        marked_ms: when the counter was marked.
        changed_ms: when its total changed last, in any region.
    """
    again_ms = changed_ms + STREAM_RECORD_MAX_AGE_MS + limit.clock_skew_ms
    return max(marked_ms + limit.age_ms, again_ms) + 1


def doubt_ms(limit: AgeLimit) -> int:
    """What is dated later than so long before the deletion may belong to the next counter.

    Clocks differ, alerts are dated in whole seconds, and a membership is dated before its request
    leaves, which then may be under way for as long as its signature is valid.
    """
    return limit.clock_skew_ms + MEMBERSHIP_LEAVES_MS + limit.request_life_ms + SECOND_MS


def known_ms(mark: DeletionMark) -> int:
    """Until when all that was made belonged to the deleted counter, of an emptied one."""
    unknown = mark.region == "" or mark.deleted_at_ms is None
    return mark.at_ms if unknown else mark.deleted_at_ms or mark.at_ms


def empty_head(mark: DeletionMark, generation: int) -> Head:
    """The empty head that a deletion leaves: the first of a new incarnation.

    Its `run` names the deletion, so no other head is mistaken for it. Everything recorded up to
    `to_at` was deleted; what is dated later was not.
    """
    return Head(generation=generation, run=mark.id, incarnation=mark.id, to_at_ms=mark.at_ms)


def plan_deletion(
    tables: tuple[str, str],
    mark: DeletionMark,
    after: DeletionMark,
    head: Head,
    total: Item | None,
) -> tuple[Write, ...]:
    """The transaction that empties a counter, if everything is still as it was read.

    Args:
        tables: `ledger` and `counters`.
        mark: of the counter, not deleted yet.
        after: the mark once it is.
        head: as it was read; it covers nothing.
        total: its total as it was read, or None.
    """
    ledger, counters = tables
    total_key = keys.total_key(mark.counter)
    empty = empty_head(mark, head.generation + 1)
    return (
        Put(ledger, encode_head(mark.counter, empty), plan.is_still(head)),
        Check(counters, total_key, Absent("part"))
        if total is None
        else Delete(counters, total_key, Compare("version", "=", total.get("version"))),
        emptied_of(ledger, mark, after),
    )


@dataclass(frozen=True, slots=True)
class HeadEmptier:
    """Empties heads, and says so in their marks.

    Attributes:
        everywhere: the counter in every region; this one holds the lease.
        marks: of the stack.
        counters: the table `counters`.
        clock: the time.
        new_id: makes the token of the transaction.
    """

    everywhere: CounterRegions
    marks: DeletionMarks
    counters: str
    clock: Clock
    new_id: Callable[[], str]

    def emptied(
        self, mark: DeletionMark, head: Head, total: Item | None
    ) -> Deletion | DeletionMark:
        """Empty a head and delete the total here: the mark then, or why nothing was deleted.

        Two write units for each of head, total and mark.
        """
        deleted_ms = self.clock.now_ms()
        after = deleted(mark, head, deleted_ms, self.everywhere.regions.region)
        writes = plan_deletion((self.marks.ledger, self.counters), mark, after, head, total)
        try:
            with guarded(partial(self._refuse_if_late, deleted_ms)):
                self.marks.dynamo.transact(writes, self.new_id())
        except TransactionCancelled as refused:
            done = self.marks.find(mark.counter)
            if done is None or done.deleted_at_ms is None:
                # A condition that has failed once keeps an earlier attempt from landing.
                if refused.maybe_applied and not refused.condition_failed:
                    raise Unclear(
                        f"the numbers of {mark.counter!r} may have been deleted; call again"
                    ) from refused
                return skipped(mark.counter, "its head, total or mark has just changed; call again")
            return done
        return after

    def noted(self, mark: DeletionMark, head: Head) -> Deletion | DeletionMark:
        """Note again that a head was emptied: the note of a lost home never arrived here.

        A read unit and a write unit.
        """
        key, table = keys.archived_key(mark.counter), self.marks.ledger
        archived = self.marks.dynamo.get(table, key, consistent=True)
        after = deleted_elsewhere(mark, head, archived, self.clock.now_ms())
        try:
            self.everywhere.write(emptied_of(table, mark, after))
        except ConditionFailed:
            return skipped(mark.counter, "its mark has just changed; call again")
        return after

    def reopened(self, mark: DeletionMark, head: Head) -> DeletionMark:
        """The mark, pending again: the empty head was lost with its home.

        A read unit and a write unit, and two read units in each other region.

        Raises:
            ServiceFailed: the empty head may still arrive, or the mark has just changed.
        """
        if reason := self.everywhere.differing(mark, head):
            raise ServiceFailed(f"{reason}: it is not known yet whether its numbers were deleted")
        self.everywhere.quietly(reopened_of(self.marks.ledger, mark))
        found = self.marks.find(mark.counter)
        if found is None or found.id != mark.id:
            raise ServiceFailed("its mark has just changed; call again")
        return found

    def _refuse_if_late(self, deleted_ms: int) -> None:
        """The empty head stays for a day, counted from the time that is written with it."""
        if self.clock.now_ms() - deleted_ms > _EMPTIES_WITHIN_MS:
            raise ServiceFailed("this deletion was suspended before it was sent; call again")
        self.everywhere.regions.check_lease()


def refuse_strong(survey: Survey, counter: str) -> None:
    """Refuse a counter that one transaction cannot delete.

    Raises:
        BadSetting: the ledger allows no transactions.
    """
    if survey.strong:
        raise BadSetting(
            f"counter {counter!r} cannot be deleted: its ledger has multi-region strong "
            "consistency, which allows no transactions, and its numbers must go in one"
        )
