"""What is deleted beside a counter is what it left, and never what belongs to the next one."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from countledger.compaction.deletion import Deletion, DeletionStage
from countledger.compaction.deletions import Deletions
from countledger.consumers.leftovers import Leftovers
from countledger.ledger import keys
from countledger.ledger.limits import DAY_MS, MINUTE_MS
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Delete, Put
from countledger.ledger.total import windows_names
from tests.unit.compaction import world as worlds
from tests.unit.compaction.parts import COUNTERS
from tests.unit.compaction.world import COUNTER, Stopped
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import ManualClock

GROUP = "posts"


@dataclass
class World(worlds.World):
    """A counter with memberships and alert states.

    Attributes:
        late_ms: how late the clock is of whoever uses the name again.
    """

    late_ms: int = 0

    @property
    def leftovers(self) -> Leftovers:
        return Leftovers(connection_on(self.dynamo, self.clock))

    def add(self, group: str = GROUP) -> None:
        """A membership, and the state and the log of an alert, by a clock that is late."""
        clock = ManualClock(self.clock.at_ms - self.late_ms)
        self.groups(clock).add(group, [COUNTER])
        at_ms = clock.at_ms // 1_000 * 1_000
        self.put_state(group, version=1, at=at_ms)
        for key in keys.alert_log_keys(COUNTER, group, 1, at_ms):
            self.dynamo.put(Put(COUNTERS, key))

    def put_state(self, rule: str, **attributes: object) -> None:
        key = keys.alert_state_key(COUNTER, rule)
        self.dynamo.put(Put(COUNTERS, {**key, "revision": "r", **attributes}))

    @property
    def logged(self) -> int:
        """How many items the log has, two for each alert."""
        items = self.dynamo.items(COUNTERS)
        beside = [one for one in items if one["part"].startswith(keys.LOG_PREFIX)]
        return len([*beside, *(one for one in items if one["counter"] == keys.ALERT_LOG)])

    @property
    def states(self) -> list[str]:
        """The rules that have a state for the counter."""
        parts = [item["part"] for item in self.dynamo.items(COUNTERS)]
        return [one[len(keys.ALERT_PREFIX) :] for one in parts if one.startswith(keys.ALERT_PREFIX)]

    def call(self, tidy: Callable[[str, int], list[str]] | None = None) -> Deletion:
        """One deletion call; then two days go by."""
        deletion = self.deleter(tidy=tidy or self.leftovers.delete).delete(COUNTER)
        self.later()
        return deletion


_MOMENTS = ["crash before tidying", "crash in tidying", "after the deletion", "before forgetting"]


@pytest.mark.parametrize("moment", _MOMENTS)
@pytest.mark.parametrize("group", [GROUP, "other"], ids=["the same group", "another group"])
@pytest.mark.parametrize("late_ms", [0, MINUTE_MS], ids=["", "late clock"])
def test_what_belongs_to_the_counter_that_uses_the_name_again_stays(
    moment: str, group: str, late_ms: int
) -> None:
    """At every point between the calls; and what the deleted counter had goes."""
    world = World(late_ms=late_ms)
    world.record()
    world.add(GROUP)
    world.add("left")
    world.call()

    def tidy(counter: str, before_ms: int) -> list[str]:
        if moment == "crash in tidying":
            # It is seen before it is added again, and deleted after that.
            found = world.leftovers.seen(counter)
            world.add(group)
            found()
        if moment.startswith("crash"):
            raise Stopped
        return world.leftovers.delete(counter, before_ms)

    if moment.startswith("crash"):
        with pytest.raises(Stopped):
            world.call(tidy)
        if moment == "crash before tidying":
            world.add(group)
        world.call()
    else:
        assert world.deleter(tidy=tidy).delete(COUNTER).stage is DeletionStage.DELETED
        if moment == "after the deletion":
            world.add(group)
        world.later(2 * DAY_MS)
        if moment == "before forgetting":
            world.add(group)
    forgotten = world.call()

    assert forgotten.stage is DeletionStage.FORGOTTEN
    assert f"membership in group {group!r}" in forgotten.detail
    assert f"state of alert rule {group!r}" in forgotten.detail
    assert "1 logged alert(s)" in forgotten.detail
    assert ([*world.groups().of(COUNTER)], world.states) == ([group], [group])
    assert world.logged == 2


def test_nothing_is_left_of_a_counter_whose_name_nobody_used_again() -> None:
    world = World()
    world.record()
    world.add()
    details = [world.call().detail for _ in range(3)]

    assert details[-1] == "nothing is left of it"
    assert [one for one in world.dynamo.items(COUNTERS) if one["counter"] == COUNTER] == []
    assert [*world.groups().of(COUNTER)] == []


def test_what_is_put_beside_a_strict_counter_that_is_created_again_stays() -> None:
    """It goes at once, so only what was seen before it went is deleted with it."""
    world = World(late_ms=MINUTE_MS)
    world.stack.namespace("seats", Kind.STRICT)
    world.add(GROUP)
    world.add("left")

    def delete(counter: str) -> None:
        world.dynamo.delete(Delete(COUNTERS, keys.total_key(counter)))
        world.add(GROUP)

    leftovers = world.leftovers
    deletions = Deletions(
        world.deleter(),
        {Kind.LEDGER: delete},
        leftovers.delete_markers,
        lambda _: iter(()),
        leftovers.seen,
    )
    deletions._delete(Kind.LEDGER, COUNTER)

    assert [*world.groups().of(COUNTER)] == [GROUP]


@pytest.mark.parametrize("again", [False, True], ids=["left", "added again"])
def test_a_membership_takes_its_place_in_a_ranking_along_unless_it_was_added_again(
    *, again: bool
) -> None:
    world = World()
    groups = world.groups()
    groups.add(GROUP, [COUNTER])
    groups.switch_ranking(GROUP, on=True)
    (membership,) = groups.memberships.of(COUNTER)
    if again:
        groups.add(GROUP, [COUNTER])

    world.leftovers._leave(membership)
    if again:
        groups.board(GROUP).take_off(COUNTER)

    assert ("ranked_group" in world.stack.total(COUNTER)) is again


@pytest.mark.parametrize("attribute", [{"version": 1}, {"incarnation": "id-2"}], ids=str)
def test_a_state_that_gets_an_attribute_after_it_was_found_stays(
    attribute: dict[str, object],
) -> None:
    """A deletion is conditional on each attribute as it was seen, also on one that was missing."""
    world = World()
    world.record()
    world.put_state(GROUP)
    found = world.leftovers.seen(COUNTER)

    world.put_state(GROUP, **attribute)
    found()

    assert world.states == [GROUP]


def test_windows_that_no_total_names_go_and_those_of_the_next_counter_stay() -> None:
    world = World()
    for windows_id in ("old", "new"):
        for item in ("month#2026-11", "day#2026-11-22"):
            world.dynamo.put(Put(COUNTERS, keys.window_key(COUNTER, windows_id, item)))
    other = keys.window_key(f"{COUNTER}0", "old", "month#2026-11")
    world.dynamo.put(Put(COUNTERS, other))
    total = {**keys.total_key(COUNTER), windows_names("one")[0]: "new"}
    world.dynamo.put(Put(COUNTERS, total))

    world.leftovers.delete(COUNTER, 0)

    left = {(one["counter"], one["part"]) for one in world.dynamo.items(COUNTERS)}
    assert left >= {(COUNTER, "w#new#month#2026-11"), (COUNTER, "w#new#day#2026-11-22")}
    assert not [part for counter, part in left if (counter, part[:6]) == (COUNTER, "w#old#")]
    assert (other["counter"], other["part"]) in left
