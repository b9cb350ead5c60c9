"""Rules that are switched off, one at a time: the explorer must find each.

Here those of records, entries, deletions, groups, rankings, schedules and alert rules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from countledger.compaction import deletion, deletions, plan, schedule
from countledger.compaction.compactor import Run
from countledger.compaction.deletion import HeadEmptier
from countledger.compaction.deletions import LedgerDeleter
from countledger.compaction.schedules import Schedules
from countledger.consumers import group_board, rankings
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.group_board import GroupBoard
from countledger.consumers.groups import GroupItems
from countledger.consumers.rankings import Rankings
from countledger.ledger import records
from countledger.ledger.errors import Unclear
from countledger.ledger.indexes import PLACE
from countledger.ledger.operations import Absent, AnyOf, Assign, Compare, Delete
from countledger.ledger.records import NotRead, Records, Writing
from countledger.ledger.tombstones import NOT_REMOVED, present
from countledger.producers.sender import Sender
from tests.exploring import producer_canaries, stream_canaries
from tests.exploring.canary import SwitchedOff
from tests.switches import bare, replaced, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.deletion import Deletion, DeletionMark
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Condition, Update, Write
    from countledger.ledger.records import Seen

# Of every item.
_HOLDS: Final = Absent("an attribute that no item has")
# Of every tombstone.
_REMOVED: Final = Compare("removed_at", ">", 0)
_FOLLOWS_ALWAYS: Final = replaced(Writing, "follows", lambda *_: True)


def _of_any_revision(is_seen: Any, one: Records, seen: Seen, planned_ms: int) -> Condition:  # noqa: ANN401
    if isinstance(seen, NotRead) or present(seen) is None:
        return is_seen(one, seen, planned_ms)  # type: ignore[no-any-return]  # as it is
    return Compare(records.INCARNATION, "=", (seen or {})[records.INCARNATION])


_SEEN_BY_INCARNATION: Final = wrapped(Records, "is_seen", _of_any_revision)

_RECORDS: Final = (
    SwitchedOff(
        "after an attempt without an answer only the next revision says that it was not applied",
        "records",
        "none: create 5 | remove, create 7",
        _FOLLOWS_ALWAYS,
    ),
    SwitchedOff(
        "a call knows its write by its id",
        "records",
        "none: create 5 | add",
        replaced(Writing, "is_own", lambda *_: False),
    ),
    SwitchedOff(
        "a record is changed as it was read", "records", "made: add | add", _SEEN_BY_INCARNATION
    ),
    SwitchedOff(
        "a record is created after the removals that its creator knew",
        "records",
        "none: create 5 | remove",
        replaced(records, "vacant", lambda *_: AnyOf(Absent("counter"), _REMOVED)),
    ),
    SwitchedOff(
        "a record is created in place of the tombstone that was met",
        "records",
        "made: remove | remove, create 7",
        replaced(records, "was_removed", lambda _: _REMOVED),
    ),
    SwitchedOff(
        "an entry that may be deleted soon refuses no call with an unclear attempt",
        "ledger",
        "an old key: record key | compact",
        replaced(Sender, "_check_it_stays", lambda *_: None),
    ),
)


def _any_total(planned: Any, *of: Any) -> tuple[Write, ...]:  # noqa: ANN401 - as of the plan
    return tuple(bare(one) if isinstance(one, Delete) else one for one in planned(*of))


def _skipped_after_no_answer(
    emptied: Any,  # noqa: ANN401 - handed on
    emptier: HeadEmptier,
    mark: DeletionMark,
    *of: Any,  # noqa: ANN401 - handed on
) -> Deletion | DeletionMark:
    try:
        return emptied(emptier, mark, *of)  # type: ignore[no-any-return]  # as it is
    except Unclear:
        return deletion.skipped(mark.counter, "")


_DELETIONS: Final = (
    SwitchedOff(
        "a deletion deletes the total that it has read, and no other",
        "deletions",
        "merged: delete | record",
        wrapped(deletion, "plan_deletion", _any_total),
        faults=0,
    ),
    SwitchedOff(
        "a deletion empties a counter whose mark is the one that it has read",
        "deletions",
        "merged: delete | cancel",
        wrapped(
            deletion, "emptied_of", lambda emptied, *of: replace(emptied(*of), condition=_HOLDS)
        ),
        faults=0,
    ),
    SwitchedOff(
        "a cancellation that meets the next mark after no answer does not cancel that",
        "marks",
        "marked: cancel | cancel, mark",
        _FOLLOWS_ALWAYS,
    ),
    SwitchedOff(
        "a deletion that is refused after no answer is not skipped",
        "deletions",
        "merged: delete",
        wrapped(HeadEmptier, "emptied", _skipped_after_no_answer),
        faults=2,
    ),
    SwitchedOff(
        "a deletion merges and proves before it empties the head",
        "deletions-unmerged",
        "marked: delete, exact",
        replaced(LedgerDeleter, "_unready", lambda *_: None),
    ),
    SwitchedOff(
        "a counter with something that is newer than its mark is in use",
        "deletions-whole",
        "merged: record, a day passes, delete, exact",
        wrapped(LedgerDeleter, "_head", lambda head, *of: replace(head(*of), to_at_ms=None)),
        faults=0,
    ),
    SwitchedOff(
        "a deletion forgets the empty head that it has left, and no other",
        "deletions",
        "used again: delete | compact",
        replaced(plan, "is_still", lambda _: _HOLDS),
    ),
    SwitchedOff(
        "an empty head stays for a day",
        "deletions-unmerged",
        "marked: compact | delete, exact",
        replaced(deletions, "EMPTY_HEAD_LIFE_MS", 0),
        faults=0,
    ),
    SwitchedOff(
        "a run whose lease has ended, or that is half a day old, publishes nothing",
        "deletions-unmerged",
        "marked: compact | delete, a day passes, delete",
        replaced(Run, "_check_leaving", lambda _: None),
        faults=0,
    ),
)


def _any_place(update: Update, _seen: Item | None, place: str) -> Update:
    return replace(update, clauses=(*update.clauses, Assign(PLACE, place)))


def _one_look_at_members(
    board: GroupBoard,
    counter: str,
    seen: Item | None,
    *,
    on: bool,
    group_first: bool = False,
    mark: bool = False,
) -> None:
    del group_first
    board._write(counter, seen, on=on, mark=mark)


def _any_membership(is_seen: Any, one: Records, seen: Seen, planned_ms: int) -> Condition:  # noqa: ANN401
    if "membership" in one.kind and not isinstance(seen, NotRead) and present(seen):
        return NOT_REMOVED
    return is_seen(one, seen, planned_ms)  # type: ignore[no-any-return]  # as it is


def _only_new(make: Any, items: GroupItems, group: str, *is_wanted: Callable[[], bool]) -> None:  # noqa: ANN401
    if not is_wanted:
        make(items, group)


def _one_look_at_the_rule(one: Rankings, name: str, rule: Item, *, moves: bool = False) -> int:
    return one._sweep_by(name, rule, moves=moves)


_GROUPS: Final = (
    SwitchedOff(
        "a placement follows the one that was seen, and no other",
        "groups",
        "ranked: add, remove",
        replaced(group_board, "after_place", _any_place),
    ),
    SwitchedOff(
        "a call that has written a place looks at membership and group again",
        "groups",
        "ranked: add | remove",
        replaced(GroupBoard, "_write_until_agreed", _one_look_at_members),
        faults=0,
    ),
    SwitchedOff(
        "a removal removes the membership that it has read, and no other",
        "groups",
        "a member: remove, add",
        wrapped(Records, "is_seen", _any_membership),
    ),
    SwitchedOff(
        "a group that is deleted while a counter is added is made again",
        "groups",
        "a member: delete | add",
        wrapped(GroupItems, "make", _only_new),
        faults=0,
    ),
    SwitchedOff(
        "a group is made again only if it has a member",
        "groups",
        "a member: delete | add",
        wrapped(GroupItems, "make", lambda make, items, group, *_: make(items, group)),
        faults=0,
    ),
    SwitchedOff(
        "a write of a sweep follows the one that was seen, and no other",
        "rankings",
        "off: on, off",
        replaced(rankings, "after_sweep", lambda update, *_: update),
    ),
    SwitchedOff(
        "a call that has swept looks at the rule again",
        "rankings",
        "off: on | off",
        replaced(Rankings, "_sweep_until_agreed", _one_look_at_the_rule),
        faults=0,
    ),
)


def _own_trigger_alone(one: Schedules, namespace: str, revision: str) -> Item:
    if schedule.revision_of(one._read(namespace)) != revision:
        one.triggers.delete(namespace, revision)
    return _of_revision(revision)


def _of_revision(written: str) -> Item:
    """A record that this write has left."""
    incarnation, _, revision = written.rpartition(".")
    return {records.INCARNATION: incarnation, records.REVISION: int(revision)}


def _never_stored(is_seen: Any, one: Records, seen: Seen, planned_ms: int) -> Condition:  # noqa: ANN401
    """A deleted rule is as one that never was: a late creation replaces it."""
    wanted: Condition = is_seen(one, seen, planned_ms)
    item = None if isinstance(seen, NotRead) else seen
    return wanted if present(item) else AnyOf(wanted, Absent("current"))


_TRIGGERS: Final = (
    SwitchedOff(
        "who creates a trigger looks whether its revision is still stored",
        "schedules",
        "hourly: set | delete",
        replaced(Schedules, "_stored_now", lambda *args: _of_revision(args[-1])),
        faults=0,
    ),
    SwitchedOff(
        "who finds another revision creates its trigger before it deletes its own",
        "schedules",
        "hourly: set | set",
        replaced(Schedules, "_stored_now", _own_trigger_alone),
    ),
    SwitchedOff(
        "a change of an alert rule changes the stamp in the same transaction",
        "alert rules",
        "none: create 10",
        wrapped(Rules, "_replaced", lambda replaced, *of: replaced(*of)._replace(beside=())),
        faults=0,
    ),
    SwitchedOff(
        "a deleted alert rule stays, so that no late creation is applied",
        "alert rules",
        "none: create 10, delete",
        wrapped(Records, "is_seen", _never_stored),
    ),
    SwitchedOff(
        "an alert rule is changed as it was read",
        "alert rules",
        "a rule: set 20 | delete",
        _SEEN_BY_INCARNATION,
        faults=0,
    ),
)

CANARIES: Final = (
    *_RECORDS,
    *_DELETIONS,
    *_GROUPS,
    *_TRIGGERS,
    *producer_canaries.CANARIES,
    *stream_canaries.CANARIES,
)
