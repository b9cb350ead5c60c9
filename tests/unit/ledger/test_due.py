"""The due index under every interleaving of those who keep it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.ledger import keys
from countledger.ledger.due import (
    BUCKETS,
    DueRule,
    DueState,
    bucket_of,
    buckets_of,
    due_state_of,
    mark_of,
    reschedule_of,
)
from countledger.ledger.errors import ConditionFailed, CorruptItem
from countledger.ledger.expressions import Add
from countledger.ledger.limits import HOUR_MS
from countledger.ledger.operations import Update
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import MemoryClient

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE: Final = "counters"
COUNTER: Final = "a:b"
RULE: Final = DueRule(min_entries=3, age_ms=HOUR_MS)


class World:
    """A total, and those who write it, each one step at a time."""

    def __init__(self) -> None:
        self.dynamo = MemoryClient()
        self.now_ms = NOW_MS
        self.head = 0
        self.entries = 0

    def due_state(self) -> DueState:
        """Where the counter stands."""
        item = self.dynamo.get(TABLE, keys.total_key(COUNTER))
        return due_state_of(item) if item else DueState(COUNTER, 0)

    def materialize(self, count: int) -> Iterator[None]:
        """Take entries in, then put the counter into the index."""
        clauses = (Add("entries", count), Add("version", 1))
        self.entries += count
        update = Update(TABLE, keys.total_key(COUNTER), clauses, returning="ALL_NEW")
        item = self.dynamo.update(update)
        yield
        mark = mark_of(TABLE, due_state_of(item or {}), RULE, self.now_ms)
        self._write(mark)

    def compact(self, *, blindly: bool = False) -> Iterator[None]:
        """Compact all but a few, then note it, until it is noted."""
        self.head = max(self.head, self.entries - 1)
        while True:
            yield
            compacted, seen = self.head, self.due_state()
            yield
            note = reschedule_of(TABLE, seen, compacted, RULE, self.now_ms)
            if blindly and note is not None:
                note = Update(note.table, note.key, note.clauses)
            if self._write(note):
                return

    def _write(self, update: Update | None) -> bool:
        try:
            if update is not None:
                self.dynamo.update(update)
        except ConditionFailed:
            return False
        return True


def _run(seed: int, *, blindly: bool = False) -> World:
    random = Random(seed)  # noqa: S311 - a test's choices
    world = World()
    for _ in world.materialize(1):
        pass
    running: list[Iterator[None]] = []
    for _ in range(30):
        if random.random() < 0.3 or not running:
            new = random.choice([world.materialize(random.randint(1, 3)), None])
            running.append(new or world.compact(blindly=blindly))
        one = random.choice(running)
        if next(one, one) is one:
            running.remove(one)
        world.now_ms += random.randint(0, 1_000)
    for one in running:
        for _ in one:
            pass
    return world


def _lost(world: World) -> bool:
    """Whether enough entries wait and nobody would ever look."""
    due_state = world.due_state()
    return due_state.waiting >= RULE.min_entries and due_state.due_at_ms is None


def test_no_interleaving_loses_a_counter_that_is_worth_a_run() -> None:
    """Marks and removals that meet: in the end whoever has enough waiting is in the index."""
    for seed in range(500):
        world = _run(seed)

        assert not _lost(world), f"_run({seed})"
        assert world.due_state().compacted <= world.head


def test_a_removal_without_its_condition_loses_counters() -> None:
    """The test can fail: a removal that meets a new entry forgets it."""
    assert any(_lost(_run(seed, blindly=True)) for seed in range(500))


def test_a_removal_that_meets_a_new_entry_is_refused() -> None:
    """The one interleaving that matters, spelled out."""
    world = World()
    for _ in world.materialize(3):
        pass
    seen = world.due_state()
    note = reschedule_of(TABLE, seen, 3, RULE, world.now_ms)
    assert note is not None

    for _ in world.materialize(3):
        pass
    with pytest.raises(ConditionFailed):
        world.dynamo.update(note)

    again = reschedule_of(TABLE, world.due_state(), 3, RULE, world.now_ms)
    assert again is not None
    world.dynamo.update(again)
    assert world.due_state() == DueState(COUNTER, 6, 3, world.now_ms + HOUR_MS)


def test_a_run_that_left_too_little_takes_the_counter_out() -> None:
    """Its next entries bring it back."""
    world = World()
    for _ in world.materialize(5):
        pass
    note = reschedule_of(TABLE, world.due_state(), 3, RULE, world.now_ms)
    assert note is not None
    world.dynamo.update(note)
    item = world.dynamo.get(TABLE, keys.total_key(COUNTER))
    assert item is not None
    assert "due_at" not in item
    assert "due_bucket" not in item
    assert item["compacted"] == 3

    for _ in world.materialize(1):
        pass

    assert world.due_state().due_at_ms == world.now_ms + HOUR_MS


def test_a_slower_run_takes_nothing_back() -> None:
    """Two compactors note one after the other: the later head stays."""
    world = World()
    for _ in world.materialize(10):
        pass
    slow = reschedule_of(TABLE, world.due_state(), 4, RULE, world.now_ms)
    fast = reschedule_of(TABLE, world.due_state(), 10, RULE, world.now_ms)
    assert slow is not None
    assert fast is not None
    world.dynamo.update(fast)

    with pytest.raises(ConditionFailed):
        world.dynamo.update(slow)

    late = reschedule_of(TABLE, world.due_state(), 4, RULE, world.now_ms)
    assert late is not None
    with pytest.raises(ConditionFailed):
        world.dynamo.update(late)
    assert world.due_state().compacted == 10


@given(waiting=st.integers(3, 10**9), age_ms=st.integers(1, 10**11))
@settings(max_examples=100)
def test_a_busy_counter_is_due_again_sooner_never_later_than_its_age(
    waiting: int, age_ms: int
) -> None:
    """With just enough waiting: after a whole age; with twice as many, after half of it."""
    seen, rule = DueState(COUNTER, waiting, 0, NOW_MS), DueRule(3, age_ms)
    note = reschedule_of(TABLE, seen, 0, rule, NOW_MS)
    assert note is not None
    (due,) = (clause.value for clause in note.clauses if clause.name == "due_at")  # type: ignore[union-attr]

    assert isinstance(due, int)
    assert 1 <= due - NOW_MS <= age_ms
    assert abs((due - NOW_MS) * waiting - 3 * age_ms) <= waiting


def test_what_is_noted_already_is_not_written_again() -> None:
    """A second run over a counter at rest costs no write."""
    assert reschedule_of(TABLE, DueState(COUNTER, 4, 4), 4, RULE, NOW_MS) is None
    assert reschedule_of(TABLE, DueState(COUNTER, 4, 4), 4, None, NOW_MS) is None


def test_without_a_schedule_a_counter_leaves_the_index() -> None:
    """It was deleted since: nobody asks for its counters any more."""
    note = reschedule_of(TABLE, DueState(COUNTER, 9, 0, NOW_MS), 0, None, NOW_MS)

    assert note is not None
    assert {clause.name for clause in note.clauses} == {"due_at", "due_bucket"}


def test_counters_spread_over_the_buckets_of_their_namespace() -> None:
    """All sixteen are used, and only those."""
    used = {bucket_of(f"likes:{number}") for number in range(500)}

    assert used == set(buckets_of("likes"))
    assert len(used) == BUCKETS
    assert bucket_of("plain").startswith("default#")


def test_a_standing_that_was_corrupt_by_hand_is_refused() -> None:
    """Nothing is decided on what is no number."""
    with pytest.raises(CorruptItem, match="compacted"):
        due_state_of({"counter": COUNTER, "part": "total", "entries": 3, "compacted": "x"})


def test_more_compacted_than_counted_is_not_noted() -> None:
    """The total is of the counter that uses the name of a removed one: its entries would wait."""
    seen = DueState("n:c", entries=3, due_at_ms=5)

    assert reschedule_of("t", seen, 4, DueRule(2, 1_000), 10) is None
    assert reschedule_of("t", seen, 3, DueRule(2, 1_000), 10) is not None
