"""Rules that are switched off, one at a time: the explorer must find each.

A canary names the rule, how to switch it off, the case in which that is wrong, and within how many
states the search must find it. How many seconds that takes says what else the machine does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
from countledger.producers.claims import claim, claims
from countledger.producers.claims.claim import Before, Freeing
from countledger.producers.quotas import acquiring
from countledger.producers.sender import Sender
from countledger.producers.sequences import sequences
from countledger.producers.strict import applying, creation, token
from countledger.producers.strict.holds import Readmission
from countledger.producers.strict.marker import MarkerChange
from countledger.producers.strict.multi_update import KeyedWrite
from countledger.producers.strict.token import SetChange

if TYPE_CHECKING:
    from types import ModuleType

    import pytest

    from countledger.compaction.deletion import Deletion, DeletionMark
    from countledger.ledger.attempts import Steps
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Condition, Update, Write
    from countledger.ledger.records import Seen
    from countledger.producers.strict.outcome import Refusal, StrictOutcome


@dataclass(frozen=True, slots=True)
class SwitchedOff:
    """A rule without which a case is wrong.

    Attributes:
        rule: what it says.
        capability: the name of the explored capability.
        case: of it, as `--case` takes it.
        states: within how many states it is found.
        switch: switches it off, until the test ends.
        faults: how many the search allows.
    """

    rule: str
    capability: str
    case: str
    states: int
    switch: Callable[[pytest.MonkeyPatch], None]
    faults: int = 1


def _any_incarnation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sequences, "AllOf", lambda is_one, _same: is_one)


def _any_trigger(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Schedules, "_stored_now", lambda *args: _of_revision(args[-1]))


def _own_trigger_alone(patch: pytest.MonkeyPatch) -> None:
    def stored_now(self: Schedules, namespace: str, revision: str) -> Item:
        if schedule.revision_of(self._read(namespace)) != revision:
            self.triggers.delete(namespace, revision)
        return _of_revision(revision)

    patch.setattr(Schedules, "_stored_now", stored_now)


def _of_revision(written: str) -> Item:
    """A record that this write has left."""
    incarnation, _, revision = written.rpartition(".")
    return {records.INCARNATION: incarnation, records.REVISION: int(revision)}


def _no_stamp(patch: pytest.MonkeyPatch) -> None:
    replaced = Rules._replaced
    patch.setattr(Rules, "_replaced", lambda *of: replaced(*of)._replace(beside=()))


def _never_stored(patch: pytest.MonkeyPatch) -> None:
    """A deleted rule is as one that never was: a late creation replaces it."""
    is_seen = Records.is_seen

    def seen(one: Records, seen: Seen, planned_ms: int) -> Condition:
        wanted = is_seen(one, seen, planned_ms)
        return wanted if present(_item_of(seen)) else AnyOf(wanted, Absent("current"))

    patch.setattr(Records, "is_seen", seen)


def _item_of(seen: Seen) -> Item | None:
    return None if isinstance(seen, NotRead) else seen


def _any_age(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sender, "_check_it_stays", lambda *_: None)


# True of every item, and of none that is absent.
_ANYTHING: Final = Compare("part", "<>", "")


def _unfenced(module: ModuleType) -> Callable[[pytest.MonkeyPatch], None]:
    """Every request is applied, whatever the number of the fence is."""
    return lambda patch: patch.setattr(module, "unraised", lambda _: _ANYTHING)


def _over_any_tombstone(module: ModuleType) -> Callable[[pytest.MonkeyPatch], None]:
    free = AnyOf(Absent("part"), _ANYTHING)
    return lambda patch: patch.setattr(module, "vacant", lambda *_: free)


def _refused_at_once(write: type) -> Callable[[pytest.MonkeyPatch], None]:
    def confirmed(_: object, refused: Refusal) -> Steps[StrictOutcome]:
        yield from ()
        return refused

    return lambda patch: patch.setattr(write, "confirm_refusal", confirmed)


def _without_question(patch: pytest.MonkeyPatch) -> None:
    def said(*args: object) -> Steps[object]:
        yield from ()
        return args[-1]

    patch.setattr(applying, "_confirm_by_token", said)


def _unfenced_creation(patch: pytest.MonkeyPatch) -> None:
    def raised(*_: object) -> Steps[bool]:
        yield from ()
        return True

    patch.setattr(creation, "_fenced", raised)


def _unnumbered(patch: pytest.MonkeyPatch) -> None:
    def same(write: Update, _moves: int, _call: str) -> Update:
        return write

    patch.setattr(creation, "_numbered", same)


def _without_fence(patch: pytest.MonkeyPatch) -> None:
    def raised(*_: object) -> Steps[bool]:
        yield from ()
        return True

    for module in (creation, token):
        patch.setattr(module, "raise_fences", raised)


def _any_place(patch: pytest.MonkeyPatch) -> None:
    def after_place(update: Update, _seen: Item | None, place: str) -> Update:
        return replace(update, clauses=(*update.clauses, Assign(PLACE, place)))

    patch.setattr(group_board, "after_place", after_place)


def _one_look_at_members(patch: pytest.MonkeyPatch) -> None:
    def write(
        self: GroupBoard,
        counter: str,
        seen: Item | None,
        *,
        on: bool,
        group_first: bool = False,
        mark: bool = False,
    ) -> None:
        del group_first
        self._write(counter, seen, on=on, mark=mark)

    patch.setattr(GroupBoard, "_write_until_agreed", write)


def _any_membership(patch: pytest.MonkeyPatch) -> None:
    is_seen = Records.is_seen

    def of_any_membership(self: Records, seen: Seen, planned_ms: int) -> Condition:
        if "membership" in self.kind and not isinstance(seen, NotRead) and present(seen):
            return NOT_REMOVED
        return is_seen(self, seen, planned_ms)

    patch.setattr(Records, "is_seen", of_any_membership)


def _never_made_again(patch: pytest.MonkeyPatch) -> None:
    make = GroupItems.make

    def only_new(items: GroupItems, group: str, *is_wanted: Callable[[], bool]) -> None:
        if not is_wanted:
            make(items, group)

    patch.setattr(GroupItems, "make", only_new)


def _made_again_unasked(patch: pytest.MonkeyPatch) -> None:
    make = GroupItems.make
    patch.setattr(GroupItems, "make", lambda items, group, *_: make(items, group))


def _any_sweep(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rankings, "after_sweep", lambda update, *_: update)


def _one_look_at_the_rule(patch: pytest.MonkeyPatch) -> None:
    def sweep(self: Rankings, name: str, rule: Item, *, moves: bool = False) -> int:
        return self._sweep_by(name, rule, moves=moves)

    patch.setattr(Rankings, "_sweep_until_agreed", sweep)


def _follows_always(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writing, "follows", lambda *_: True)


def _not_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Writing, "is_own", lambda *_: False)


def _seen_by_incarnation_alone(patch: pytest.MonkeyPatch) -> None:
    is_seen = Records.is_seen

    def of_any_revision(self: Records, seen: Seen, planned_ms: int) -> Condition:
        if isinstance(seen, NotRead) or present(seen) is None:
            return is_seen(self, seen, planned_ms)
        return Compare(records.INCARNATION, "=", (seen or {})[records.INCARNATION])

    patch.setattr(Records, "is_seen", of_any_revision)


def _vacant_at_any_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        records, "vacant", lambda *_: AnyOf(Absent("counter"), Compare("removed_at", ">", 0))
    )


def _in_place_of_any_tombstone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(records, "was_removed", lambda _: Compare("removed_at", ">", 0))


# Of every item.
_HOLDS: Final = Absent("an attribute that no item has")


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(claims, "fence_of", lambda *_: None)


def _nothing_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Before, "of", lambda _: Before(None, None, None))


def _released_for_good(patch: pytest.MonkeyPatch) -> None:
    """A claim that is released leaves no tombstone."""
    write = Freeing.write

    def deletion(step: Freeing) -> Delete:
        return Delete(step.table, step.claim.key, write(step).condition)

    patch.setattr(Freeing, "write", deletion)


def _any_tombstone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        claim, "_undisturbed", lambda *_: AnyOf(Absent("removed_at"), Compare("removed_at", ">", 0))
    )


def _any_total(patch: pytest.MonkeyPatch) -> None:
    planned = deletion.plan_deletion

    def unconditional(*of: Any) -> tuple[Write, ...]:  # noqa: ANN401 - as of the plan
        return tuple(
            replace(one, condition=None) if isinstance(one, Delete) else one for one in planned(*of)
        )

    patch.setattr(deletion, "plan_deletion", unconditional)


def _any_mark(patch: pytest.MonkeyPatch) -> None:
    emptied = deletion.emptied_of
    patch.setattr(deletion, "emptied_of", lambda *of: replace(emptied(*of), condition=_HOLDS))


def _skipped_after_no_answer(patch: pytest.MonkeyPatch) -> None:
    emptied = HeadEmptier.emptied

    def refused(emptier: HeadEmptier, mark: DeletionMark, *of: Any) -> Deletion | DeletionMark:  # noqa: ANN401 - as of the emptier
        try:
            return emptied(emptier, mark, *of)
        except Unclear:
            return deletion.skipped(mark.counter, "")

    patch.setattr(HeadEmptier, "emptied", refused)


def _unproven(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LedgerDeleter, "_unready", lambda *_: None)


def _never_in_use(patch: pytest.MonkeyPatch) -> None:
    head = LedgerDeleter._head
    patch.setattr(LedgerDeleter, "_head", lambda *of: replace(head(*of), to_at_ms=None))


def _any_empty_head(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "is_still", lambda _: _HOLDS)


def _forgotten_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(deletions, "EMPTY_HEAD_LIFE_MS", 0)


def _runs_of_any_age(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Run, "_check_leaving", lambda _: None)


CANARIES: Final = (
    SwitchedOff(
        "after an attempt without an answer only the next revision says that it was not applied",
        "records",
        "none: create 5 | remove, create 7",
        2_000,
        _follows_always,
    ),
    SwitchedOff(
        "a call knows its write by its id",
        "records",
        "none: create 5 | add",
        2_000,
        _not_its_own,
    ),
    SwitchedOff(
        "a record is changed as it was read",
        "records",
        "made: add | add",
        2_000,
        _seen_by_incarnation_alone,
    ),
    SwitchedOff(
        "a record is created after the removals that its creator knew",
        "records",
        "none: create 5 | remove",
        2_000,
        _vacant_at_any_time,
    ),
    SwitchedOff(
        "a record is created in place of the tombstone that was met",
        "records",
        "made: remove | remove, create 7",
        5_000,
        _in_place_of_any_tombstone,
    ),
    SwitchedOff(
        "a deletion deletes the total that it has read, and no other",
        "deletions",
        "merged: delete | record",
        20_000,
        _any_total,
        faults=0,
    ),
    SwitchedOff(
        "a deletion empties a counter whose mark is the one that it has read",
        "deletions",
        "merged: delete | cancel",
        20_000,
        _any_mark,
        faults=0,
    ),
    SwitchedOff(
        "a cancellation that meets the next mark after no answer does not cancel that",
        "marks",
        "marked: cancel | cancel, mark",
        20_000,
        _follows_always,
    ),
    SwitchedOff(
        "a deletion that is refused after no answer is not skipped",
        "deletions",
        "merged: delete",
        5_000,
        _skipped_after_no_answer,
        faults=2,
    ),
    SwitchedOff(
        "a deletion merges and proves before it empties the head",
        "deletions-unmerged",
        "marked: delete, exact",
        20_000,
        _unproven,
    ),
    SwitchedOff(
        "a counter with something that is newer than its mark is in use",
        "deletions-whole",
        "merged: record, a day passes, delete, exact",
        20_000,
        _never_in_use,
        faults=0,
    ),
    SwitchedOff(
        "a deletion forgets the empty head that it has left, and no other",
        "deletions",
        "used again: delete | compact",
        20_000,
        _any_empty_head,
    ),
    SwitchedOff(
        "an empty head stays for a day",
        "deletions-unmerged",
        "marked: compact | delete, exact",
        20_000,
        _forgotten_at_once,
        faults=0,
    ),
    SwitchedOff(
        "a run whose lease has ended, or that is half a day old, publishes nothing",
        "deletions-unmerged",
        "marked: compact | delete, a day passes, delete",
        20_000,
        _runs_of_any_age,
        faults=0,
    ),
    SwitchedOff(
        "a change by request_token names the number of the fence",
        "strict-request_token",
        "created: add | add",
        20_000,
        _unfenced(token),
    ),
    SwitchedOff(
        "a creation replaces no tombstone that is as new as itself",
        "strict-life",
        "absent: create | delete",
        20_000,
        _over_any_tombstone(creation),
    ),
    SwitchedOff(
        "a creation that is refused after no answer raises the fence of the counter",
        "strict-life",
        "created: delete | create",
        20_000,
        _unfenced_creation,
    ),
    SwitchedOff(
        "a deletion names the number of the fence",
        "holds",
        "held: confirm | delete",
        20_000,
        _unfenced(creation),
    ),
    SwitchedOff(
        "a deletion that is refused raises the fence",
        "holds",
        "held: confirm | delete",
        20_000,
        _without_fence,
    ),
    SwitchedOff(
        "a move of bounds names the number of the moves before",
        "strict-marker",
        "created: raise bound | lower bound",
        20_000,
        _unnumbered,
    ),
    SwitchedOff(
        "a refusal by marker leaves a void marker",
        "strict-marker",
        "created: take | key, add",
        20_000,
        _refused_at_once(MarkerChange),
    ),
    SwitchedOff(
        "a refusal by set leaves a token of zero",
        "strict-set",
        "created: take | key, add",
        20_000,
        _refused_at_once(SetChange),
    ),
    SwitchedOff(
        "a refusal to readmit a hold reads the hold again",
        "holds-lapsing-2",
        "released: readmit | readmit",
        20_000,
        _refused_at_once(Readmission),
    ),
    SwitchedOff(
        "a refusal of all bins under a key asks its token once more",
        "strict-request_token-2",
        "created: key | key",
        5_000,
        _without_question,
        faults=0,
    ),
    SwitchedOff(
        "a refusal of several counters leaves a void marker",
        "transfers",
        "created: take | transfer, add",
        20_000,
        _refused_at_once(KeyedWrite),
    ),
    SwitchedOff(
        "an amount of a quota under a token names the number of the fence",
        "quotas-request_token",
        "created: key 1 | raise limit",
        20_000,
        _unfenced(acquiring),
    ),
    SwitchedOff(
        "a placement follows the one that was seen, and no other",
        "groups",
        "ranked: add, remove",
        5_000,
        _any_place,
    ),
    SwitchedOff(
        "a call that has written a place looks at membership and group again",
        "groups",
        "ranked: add | remove",
        5_000,
        _one_look_at_members,
        faults=0,
    ),
    SwitchedOff(
        "a removal removes the membership that it has read, and no other",
        "groups",
        "a member: remove, add",
        5_000,
        _any_membership,
    ),
    SwitchedOff(
        "a group that is deleted while a counter is added is made again",
        "groups",
        "a member: delete | add",
        5_000,
        _never_made_again,
        faults=0,
    ),
    SwitchedOff(
        "a group is made again only if it has a member",
        "groups",
        "a member: delete | add",
        5_000,
        _made_again_unasked,
        faults=0,
    ),
    SwitchedOff(
        "a write of a sweep follows the one that was seen, and no other",
        "rankings",
        "off: on, off",
        5_000,
        _any_sweep,
    ),
    SwitchedOff(
        "a call that has swept looks at the rule again",
        "rankings",
        "off: on | off",
        5_000,
        _one_look_at_the_rule,
        faults=0,
    ),
    SwitchedOff(
        "an entry that may be deleted soon refuses no call with an unclear attempt",
        "ledger",
        "an old key: record key | compact",
        5_000,
        _any_age,
    ),
    SwitchedOff(
        "who creates a trigger looks whether its revision is still stored",
        "schedules",
        "hourly: set | delete",
        5_000,
        _any_trigger,
        faults=0,
    ),
    SwitchedOff(
        "who finds another revision creates its trigger before it deletes its own",
        "schedules",
        "hourly: set | set",
        20_000,
        _own_trigger_alone,
    ),
    SwitchedOff(
        "a change of an alert rule changes the stamp in the same transaction",
        "alert rules",
        "none: create 10",
        5_000,
        _no_stamp,
        faults=0,
    ),
    SwitchedOff(
        "a deleted alert rule stays, so that no late creation is applied",
        "alert rules",
        "none: create 10, delete",
        20_000,
        _never_stored,
    ),
    SwitchedOff(
        "an alert rule is changed as it was read",
        "alert rules",
        "a rule: set 20 | delete",
        5_000,
        _seen_by_incarnation_alone,
        faults=0,
    ),
    SwitchedOff(
        "a deletion deletes the sequence that it has read, and no other",
        "sequences",
        "created: delete | delete, create at 5",
        5_000,
        _any_incarnation,
    ),
    SwitchedOff(
        "a claim that an item of the app refused moves a fence before it says so",
        "claims-with-items",
        "an item: ann takes with item | drop, look",
        5_000,
        _no_fence,
    ),
    SwitchedOff(
        "a release leaves a tombstone",
        "claims",
        "free: ann takes, ann releases",
        5_000,
        _released_for_good,
    ),
    SwitchedOff(
        "a claim takes the place of an earlier tombstone alone",
        "claims",
        "free: ann takes, ann releases",
        5_000,
        _any_tombstone,
    ),
    SwitchedOff(
        "a claim that replaces a tombstone keeps what that says of the removal",
        "claims",
        "free: ann takes | ann releases, bob takes",
        5_000,
        _nothing_before,
    ),
)
