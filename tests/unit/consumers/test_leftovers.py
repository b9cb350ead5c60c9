"""What is deleted beside a counter is what it left, and never what belongs to the next one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from countledger.compaction.deletion import Deletion, DeletionStage
from countledger.compaction.deletions import Deletions
from countledger.consumers.groups import Groups
from countledger.consumers.leftovers import Leftovers
from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.limits import DAY_MS, MINUTE_MS
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Delete, Put
from tests.unit.compaction.parts import COUNTERS
from tests.unit.compaction.test_deletion import COUNTER, Emptying
from tests.unit.ledger.clocks import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.ledger_deletion import LedgerDeleter

GROUP = "posts"


class _Crashed(BaseException):
    """The process ends here."""


@dataclass
class Beside(Emptying):
    """A counter with memberships and alert states, in memory.

    Attributes:
        late_ms: how late the clock is of whoever uses the name again.
    """

    late_ms: int = 0

    def groups(self, clock: ManualClock | None = None) -> Groups:
        """Groups of a process of its own."""
        totals = TotalsReader(self.dynamo, COUNTERS)
        return Groups(totals, self.stack.namespaces, clock or self.stack.clock)

    @property
    def leftovers(self) -> Leftovers:
        """What deletes them."""
        return Leftovers(self.groups())

    def deleting(self, tidy: Callable[[str, int], list[str]] | None = None) -> LedgerDeleter:
        """A deleter that tidies."""
        return replace(self.deleter(), tidy=tidy or self.leftovers.delete)

    def add(self, group: str = GROUP) -> None:
        """A membership and the state of an alert, by a clock that is late."""
        clock = ManualClock(self.stack.clock.at_ms - self.late_ms)
        self.groups(clock).add(group, [COUNTER])
        at_ms = clock.at_ms // 1_000 * 1_000
        state = {**keys.alert_state_key(COUNTER, group), "revision": "r", "version": 1, "at": at_ms}
        self.dynamo.put(Put(COUNTERS, state))

    def kept(self) -> tuple[list[str], list[str]]:
        """The groups of the counter, and the rules that have a state for it."""
        states = [item["part"] for item in self.dynamo.items(COUNTERS)]
        mine = [one for one in states if one.startswith(keys.ALERT_PREFIX)]
        return [*self.groups().of(COUNTER)], [one.removeprefix(keys.ALERT_PREFIX) for one in mine]

    def call(self, deleter: LedgerDeleter | None = None) -> Deletion:
        """One deletion call; then two days go by."""
        deletion = (deleter or self.deleting()).delete(COUNTER)
        self.stack.clock.at_ms += 2 * DAY_MS
        return deletion


_MOMENTS = ["crash before tidying", "crash in tidying", "after the deletion", "before forgetting"]


@pytest.mark.parametrize("moment", _MOMENTS)
@pytest.mark.parametrize("group", [GROUP, "other"], ids=["the same group", "another group"])
@pytest.mark.parametrize("late_ms", [0, MINUTE_MS], ids=["", "late clock"])
def test_what_belongs_to_the_counter_that_uses_the_name_again_stays(
    moment: str, group: str, late_ms: int
) -> None:
    """At every point between the calls; and what the deleted counter had goes."""
    beside = Beside(late_ms=late_ms)
    beside.record()
    beside.add(GROUP)
    beside.add("left")
    beside.call()

    def tidy(counter: str, before_ms: int) -> list[str]:
        if moment == "crash in tidying":
            # It is seen before it is added again, and deleted after that.
            found = beside.leftovers.seen(counter)
            beside.add(group)
            found()
            raise _Crashed
        if moment == "crash before tidying":
            raise _Crashed
        return beside.leftovers.delete(counter, before_ms)

    if moment.startswith("crash"):
        with pytest.raises(_Crashed):
            beside.deleting(tidy).delete(COUNTER)
        if moment == "crash before tidying":
            beside.add(group)
        beside.call()
    else:
        deleted = beside.deleting().delete(COUNTER)
        assert deleted.stage is DeletionStage.DELETED
        if moment == "after the deletion":
            beside.add(group)
        beside.stack.clock.at_ms += 2 * DAY_MS
        if moment == "before forgetting":
            beside.add(group)
    forgotten = beside.call()

    assert forgotten.stage is DeletionStage.FORGOTTEN
    assert f"membership in group {group!r}" in forgotten.detail
    assert f"state of alert rule {group!r}" in forgotten.detail
    assert beside.kept() == ([group], [group])


def test_nothing_is_left_of_a_counter_whose_name_nobody_used_again() -> None:
    """And only then the report says so."""
    beside = Beside()
    beside.record()
    beside.add()
    details = [beside.call().detail for _ in range(3)]

    assert details[-1] == "nothing is left of it"
    assert beside.kept() == ([], [])
    assert [one for one in beside.dynamo.items(COUNTERS) if one["counter"] == COUNTER] == []


def test_what_was_recorded_since_is_named_as_what_stays() -> None:
    """The report of the last call tells of a name that is in use again."""
    beside = Beside()
    beside.record()
    beside.call()
    beside.call()
    beside.record()

    assert beside.call().detail == "the name is in use again; kept: what was recorded since"


def test_what_is_put_beside_a_strict_counter_that_is_created_again_stays() -> None:
    """It goes at once, so only what was seen before it went is deleted with it."""
    beside = Beside(late_ms=MINUTE_MS)
    beside.stack.namespace("seats", Kind.STRICT)
    beside.add(GROUP)
    beside.add("left")

    def delete(counter: str) -> None:
        beside.dynamo.delete(Delete(COUNTERS, keys.total_key(counter)))
        beside.add(GROUP)

    leftovers = beside.leftovers
    deletions = Deletions(
        beside.deleter(),
        {Kind.LEDGER: delete},
        leftovers.delete_markers,
        lambda _: iter(()),
        leftovers.seen,
    )
    deletions._delete(Kind.LEDGER, COUNTER)

    assert beside.kept()[0] == [GROUP]


@dataclass(frozen=True)
class _Ranked:
    """A ranked group whose one member's counter was deleted."""

    beside: Beside = field(default_factory=Beside)

    def __post_init__(self) -> None:
        self.beside.groups().add(GROUP, [COUNTER])
        self.beside.groups().switch_ranking(GROUP, on=True)

    @property
    def is_on_the_board(self) -> bool:
        return "ranked_group" in self.beside.stack.total(COUNTER)


def test_a_membership_takes_its_place_in_a_ranking_along() -> None:
    """Nothing stays on the board that is no member."""
    ranked = _Ranked()
    (membership,) = ranked.beside.groups().memberships.of(COUNTER)
    before = ranked.is_on_the_board

    ranked.beside.leftovers._leave(membership)

    assert (before, ranked.is_on_the_board) == (True, False)


def test_a_member_that_was_added_again_keeps_its_place() -> None:
    """Whether it is added before the membership is deleted, or behind that."""
    ranked = _Ranked()
    groups = ranked.beside.groups()
    (membership,) = groups.memberships.of(COUNTER)
    groups.add(GROUP, [COUNTER])

    ranked.beside.leftovers._leave(membership)

    assert ranked.is_on_the_board

    board = groups.board(GROUP)
    board.take_off_unless_member(COUNTER)
    assert ranked.is_on_the_board


def test_a_state_that_gets_an_attribute_after_it_was_found_stays() -> None:
    """A deletion is conditional on each attribute as it was seen, also on one that was missing."""
    beside = Beside()
    beside.record()
    bare = keys.alert_state_key(COUNTER, GROUP)
    beside.dynamo.put(Put(COUNTERS, {**bare, "revision": "r"}))
    found = beside.leftovers.seen(COUNTER)

    beside.dynamo.put(Put(COUNTERS, {**bare, "revision": "r", "version": 1}))
    found()

    assert beside.kept()[1] == [GROUP]
