"""The deletion of a ledger counter: its stages, and the transaction that does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from countledger.compaction import plan
from countledger.compaction.regions import PATIENCE_MS
from countledger.ledger import keys
from countledger.ledger.attempts import write_one
from countledger.ledger.attributes import check_format, optional, require
from countledger.ledger.clock import polled
from countledger.ledger.departure import guarded
from countledger.ledger.errors import (
    BadSetting,
    ConditionFailed,
    ServiceFailed,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.exact import Head, decode_head, encode_head
from countledger.ledger.limits import (
    HOUR_MS,
    MEMBERSHIP_LEAVES_MS,
    SECOND_MS,
    STREAM_RECORD_MAX_AGE_MS,
)
from countledger.ledger.operations import (
    Absent,
    AllOf,
    Assign,
    BeginsWith,
    Check,
    Compare,
    Delete,
    Drop,
    Put,
    Query,
    Update,
)
from countledger.ledger.records import CHANGED_BY, INCARNATION, REVISION
from countledger.ledger.tombstones import present

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from countledger.compaction.plan import AgeLimit
    from countledger.compaction.regions import Regions, Survey
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Clause, Write


# The marks of counters that are being deleted, in the table `ledger`: so every region shows them.
#
# A mark is a record (`ledger/records.py`). The ledger has no time to live: the tombstone of a
# cancelled deletion stays until the counter is marked again. The mark of a deletion that has
# ended leaves none: it is a day and more older than the life of a request.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionMark:
    """A counter that is being deleted.

    Attributes:
        id: the incarnation of its record and the identity of the deletion; never used again.
        at_ms: when the deletion was requested: everything made by then is deleted.
        deleted_at_ms: when its head and total were emptied, in the transaction that writes this;
            None: not yet.
        generation: of the empty head that was left in their place.
        emptied: the incarnation of the head that the empty one replaced; empty: there was no head.
        region: whose total went with the head; empty: nobody knows any more; None: nothing was
            deleted yet.
        tidied: whether alert states, alert log and memberships are deleted.
    """

    counter: str
    id: str
    revision: int = 1
    at_ms: int
    deleted_at_ms: int | None = None
    generation: int | None = None
    emptied: str = ""
    region: str | None = None
    tidied: bool = False


def decode_mark(item: Item) -> DeletionMark:
    check_format(item)
    return DeletionMark(
        counter=require(item, "entry", str),
        id=require(item, INCARNATION, str),
        revision=require(item, REVISION, int),
        at_ms=require(item, "at", int),
        deleted_at_ms=optional(item, "deleted_at", int),
        generation=optional(item, "generation", int),
        emptied=optional(item, "emptied", str) or "",
        region=optional(item, "region", str),
        tidied=item.get("tidied") is True,
    )


def mark_in(item: Item | None) -> DeletionMark | None:
    """The mark in an item that was read; None: there is none, or its deletion was cancelled."""
    found = present(item)
    return None if found is None else decode_mark(found)


class DeletionMarks:
    """Reads the marks, in any region: each shows them."""

    def __init__(self, connection: Connection) -> None:
        self.dynamo, self.ledger = connection.retrying, connection.ledger

    def find(self, counter: str) -> DeletionMark | None:
        """The mark of a counter, or None: one read unit."""
        return mark_in(self.stored(counter))

    def stored(self, counter: str) -> Item | None:
        """The item of a mark, or the tombstone of a cancelled one: one read unit."""
        return self.dynamo.get(self.ledger, keys.deletion_key(counter), consistent=True)

    def pending(self, namespace: str) -> Iterator[str]:
        """The marked counters of a namespace: half a read unit for each 4 KB."""
        marks = Compare("counter", "=", keys.DELETION_PREFIX + keys.check_namespace(namespace))
        for page in self.dynamo.pages(Query(self.ledger, marks)):
            yield from (item["entry"] for item in page if present(item))


def new_mark(counter: str, at_ms: int) -> Item:
    return {**keys.deletion_key(counter), "at": at_ms}


def mark_again(table: str, mark: DeletionMark, at_ms: int, call: str) -> Update:
    """Begin the wait again for a counter that is still in use: one write unit."""
    return _next(table, mark, (Assign("at", at_ms),), call)


def emptied_of(table: str, mark: DeletionMark, after: DeletionMark, call: str) -> Update:
    """Note that head and total were emptied, in the transaction that does it."""
    clauses = (
        Assign("deleted_at", after.deleted_at_ms),
        Assign("generation", after.generation),
        Assign("emptied", after.emptied),
        Assign("region", after.region),
    )
    return _next(table, mark, clauses, call)


def reopened_of(table: str, mark: DeletionMark, call: str) -> Update:
    """Note that nothing was deleted after all, unless it was since: one write unit."""
    noted = ("deleted_at", "generation", "emptied", "region")
    again = _next(table, mark, tuple(map(Drop, noted)), call)
    return replace(again, condition=AllOf(again.condition or Absent(""), Absent("tidied")))


def tidied_of(table: str, mark: DeletionMark) -> Update:
    """Note that alert states, alert log and memberships are deleted: one write unit."""
    clauses = (Assign("tidied", value=True),)
    return Update(table, keys.deletion_key(mark.counter), clauses, _is(mark))


def unmark_of(table: str, mark: DeletionMark) -> Delete:
    """Delete the mark of a deletion that has ended: one write unit."""
    return Delete(table, keys.deletion_key(mark.counter), _is(mark))


def _is(mark: DeletionMark) -> Compare:
    return Compare(INCARNATION, "=", mark.id)


def _next(table: str, mark: DeletionMark, clauses: tuple[Clause, ...], call: str) -> Update:
    raised = Assign(REVISION, mark.revision + 1), Assign(CHANGED_BY, call)
    same = AllOf(_is(mark), Compare(REVISION, "=", mark.revision))
    return Update(table, keys.deletion_key(mark.counter), (*clauses, *raised), same)


# A ledger counter that is being deleted, as the home sees it in every region of its ledger.
#
# The ledger is one table with a copy in each region; totals are regional. One transaction in the
# home empties the head and deletes the total there. The total of each other region is deleted
# afterwards, once that region shows the empty head: then its own ledger says that nothing is left,
# and the proof of `verify` decides. So a call may be repeated, and a region that was cut off is
# made up for later.


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
    """What the home sees and does in all regions."""

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
        """Write to the ledger here; with replicas it leaves only under the lease."""
        with self.under_lease():
            write_one(self.regions.home, write)

    def quietly(self, write: Update | Delete) -> None:
        """As `write`, unless it was done before."""
        with suppress(ConditionFailed):
            self.write(write)

    def under_lease(self) -> AbstractContextManager[None]:
        """Writes to the ledger leave; with replicas only under the lease."""
        others = self.regions.survey().others
        return guarded(self.regions.check_lease if others else lambda: None)

    def _polled(self, missing: Callable[[], _T | None]) -> _T | None:
        return polled(self.regions.connection.clock, PATIENCE_MS, missing, lambda _: False)

    def _of(self, region: str, text: str) -> str:
        return text if region == self.regions.region else f"in {region}: {text}"

    def _head(self, counter: str, region: str) -> Head:
        return decode_head(self._get(region, keys.head_key(counter)))

    def _get(self, region: str, key: dict[str, str]) -> Item | None:
        return self.regions.dynamo(region).get(self.regions.table, key, consistent=True)


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
        revision=mark.revision + 1,
        deleted_at_ms=now_ms,
        generation=head.generation + 1,
        emptied=head.incarnation,
        region=region,
    )


def deleted_elsewhere(
    mark: DeletionMark, head: Head, archived: Item | None, now_ms: int
) -> DeletionMark:
    """The mark of a counter whose head was emptied by a region that is lost.

    The head is the empty one, or one of its incarnation that has merged what was recorded since;
    the empty head stays for a day from `now_ms` on. `archived` is the record of the archive that
    the counter still has, or None.
    """
    is_empty = head.run == head.incarnation
    before = str((archived or {}).get("incarnation", ""))
    return replace(
        mark,
        revision=mark.revision + 1,
        deleted_at_ms=now_ms,
        generation=head.generation if is_empty else 0,
        emptied="" if before == mark.id else before,
        region="",
    )


def is_missing(mark: DeletionMark, head: Callable[[], Head]) -> bool:
    """Whether a mark says that the head was emptied, and the ledger here does not show it.

    Once it is noted that all is tidied every region has shown the empty head: `head` is not called.
    """
    if mark.deleted_at_ms is None or mark.tidied:
        return False
    found = head()
    return found.incarnation != mark.id and found.incarnation == mark.emptied


def ready_ms(limit: AgeLimit, marked_ms: int, changed_ms: int) -> int:
    """From when on the numbers of a counter can be deleted; `changed_ms` is of any region."""
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
    change: tuple[DeletionMark, DeletionMark],
    head: Head,
    total: Item | None,
    call: str,
) -> tuple[Write, ...]:
    """The transaction that empties a counter, if everything is still as it was read.

    The head covers nothing. `tables` are `ledger` and `counters`; `change` is the mark, not deleted
    yet, and the mark once it is.
    """
    (ledger, counters), (mark, after) = tables, change
    total_key = keys.total_key(mark.counter)
    empty = empty_head(mark, head.generation + 1)
    gone: Write = Check(counters, total_key, Absent("part"))
    if total is not None:
        gone = Delete(counters, total_key, Compare("version", "=", total.get("version")))
    put = Put(ledger, encode_head(mark.counter, empty), plan.is_still(head))
    return put, gone, emptied_of(ledger, mark, after, call)


class HeadEmptier:
    """Empties heads, and says so in their marks."""

    def __init__(self, connection: Connection, everywhere: CounterRegions) -> None:
        self.connection, self.everywhere = connection, everywhere
        self.marks = DeletionMarks(connection)

    def emptied(
        self, mark: DeletionMark, head: Head, total: Item | None
    ) -> Deletion | DeletionMark:
        """Empty a head and delete the total here: the mark then, or why nothing was deleted.

        Two write units for each of head, total and mark.
        """
        deleted_ms = self.connection.clock.now_ms()
        after = deleted(mark, head, deleted_ms, self.everywhere.regions.region)
        tables = self.marks.ledger, self.connection.counters
        call = self.connection.ids.unique_id()
        writes = plan_deletion(tables, (mark, after), head, total, call)
        try:
            with guarded(partial(self._refuse_if_late, deleted_ms)):
                self.marks.dynamo.transact(writes, call)
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
        after = deleted_elsewhere(mark, head, archived, self.connection.clock.now_ms())
        try:
            self.everywhere.write(emptied_of(table, mark, after, self.connection.ids.unique_id()))
        except ConditionFailed:
            return skipped(mark.counter, "its mark has just changed; call again")
        return after

    def reopened(self, mark: DeletionMark, head: Head) -> DeletionMark:
        """The mark, pending again: the empty head was lost with its home.

        A read unit and a write unit, and two read units in each other region. ServiceFailed: the
        empty head may still arrive, or the mark has just changed.
        """
        if reason := self.everywhere.differing(mark, head):
            raise ServiceFailed(f"{reason}: it is not known yet whether its numbers were deleted")
        call = self.connection.ids.unique_id()
        self.everywhere.quietly(reopened_of(self.marks.ledger, mark, call))
        found = self.marks.find(mark.counter)
        if found is None or found.id != mark.id:
            raise ServiceFailed("its mark has just changed; call again")
        return found

    def _refuse_if_late(self, deleted_ms: int) -> None:
        """The empty head stays for a day, counted from the time that is written with it."""
        if self.connection.clock.now_ms() - deleted_ms > _EMPTIES_WITHIN_MS:
            raise ServiceFailed("this deletion was suspended before it was sent; call again")
        self.everywhere.regions.check_lease()


def refuse_strong(survey: Survey, counter: str) -> None:
    """Raise BadSetting for a counter whose ledger allows no transactions."""
    if survey.strong:
        raise BadSetting(
            f"counter {counter!r} cannot be deleted: its ledger has multi-region strong "
            "consistency, which allows no transactions, and its numbers must go in one"
        )
