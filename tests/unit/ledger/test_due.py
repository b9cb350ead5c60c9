"""The due index under every interleaving of its writers."""

from collections.abc import Iterator
from random import Random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger import keys
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.indexes import (
    BUCKETS,
    DueRule,
    DueState,
    bucket_of,
    buckets_of,
    due_state_of,
    mark_of,
    reschedule_of,
)
from countledger.ledger.limits import HOUR_MS
from countledger.ledger.operations import Add, Update
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import MemoryClient

TABLE: Final = "counters"
COUNTER: Final = "a:b"
RULE: Final = DueRule(min_entries=3, age_ms=HOUR_MS)


class World:
    """A total and its writers, each one step at a time."""

    def __init__(self, entries: int = 0) -> None:
        self.dynamo = MemoryClient()
        self.now_ms = NOW_MS
        self.head = 0
        self.entries = 0
        if entries:
            list(self.materialize(entries))

    @property
    def due_state(self) -> DueState:
        item = self.dynamo.get(TABLE, keys.total_key(COUNTER))
        return due_state_of(item) if item else DueState(COUNTER, 0)

    def materialize(self, count: int) -> Iterator[None]:
        """Count entries, then put the counter into the index."""
        clauses = (Add("entries", count), Add("version", 1))
        self.entries += count
        update = Update(TABLE, keys.total_key(COUNTER), clauses, returning="ALL_NEW")
        item = self.dynamo.update(update)
        yield
        self.write(mark_of(TABLE, due_state_of(item or {}), RULE, self.now_ms))

    def compact(self, *, blindly: bool = False) -> Iterator[None]:
        """Compact all but a few, then note it, until it is noted."""
        self.head = max(self.head, self.entries - 1)
        while True:
            yield
            compacted, seen = self.head, self.due_state
            yield
            note = reschedule_of(TABLE, seen, compacted, RULE, self.now_ms)
            if blindly and note is not None:
                note = Update(note.table, note.key, note.clauses)
            if self.write(note):
                return

    def note(self, compacted: int) -> Update:
        """What a run writes that has just read the total."""
        note = reschedule_of(TABLE, self.due_state, compacted, RULE, self.now_ms)
        assert note is not None
        return note

    def write(self, update: Update | None) -> bool:
        try:
            if update is not None:
                self.dynamo.update(update)
        except ConditionFailed:
            return False
        return True


def _run(seed: int, *, blindly: bool = False) -> World:
    random = Random(seed)  # noqa: S311 - a test's choices
    world = World(1)
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
        list(one)
    return world


def _lost(world: World) -> bool:
    """Whether enough entries wait and no run would ever look."""
    return world.due_state.waiting >= RULE.min_entries and world.due_state.due_at_ms is None


def test_no_interleaving_loses_a_counter_that_is_worth_a_run() -> None:
    for seed in range(500):
        world = _run(seed)

        assert not _lost(world), f"_run({seed})"
        assert world.due_state.compacted <= world.head


def test_a_removal_without_its_condition_loses_counters() -> None:
    assert any(_lost(_run(seed, blindly=True)) for seed in range(500))


def test_a_removal_that_meets_a_new_entry_is_refused() -> None:
    world = World(3)
    note = world.note(3)
    list(world.materialize(3))

    assert not world.write(note)
    assert world.write(world.note(3))
    assert world.due_state == DueState(COUNTER, 6, 3, world.now_ms + HOUR_MS)


def test_a_run_that_left_too_little_removes_the_counter_until_its_next_entries() -> None:
    world = World(5)

    assert world.write(world.note(3))
    item = world.dynamo.get(TABLE, keys.total_key(COUNTER)) or {}
    assert not {"due_at", "due_bucket"} & item.keys()
    assert item["compacted"] == 3

    list(world.materialize(1))
    assert world.due_state.due_at_ms == world.now_ms + HOUR_MS


def test_a_slower_run_reverts_nothing() -> None:
    world = World(10)
    slow, fast = world.note(4), world.note(10)

    assert world.write(fast)
    assert not world.write(slow)
    assert not world.write(world.note(4))
    assert world.due_state.compacted == 10


@given(waiting=st.integers(3, 10**9), age_ms=st.integers(1, 10**11))
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


@pytest.mark.parametrize(
    ("seen", "compacted", "rule", "written"),
    [
        (DueState(COUNTER, 4, 4), 4, RULE, None),
        (DueState(COUNTER, 4, 4), 4, None, None),
        # The schedule was deleted since: the counter leaves the index.
        (DueState(COUNTER, 9, 0, NOW_MS), 0, None, {"due_at", "due_bucket"}),
        # The total is of a counter that uses the name of a deleted one: its entries would wait.
        (DueState(COUNTER, 3, due_at_ms=5), 4, RULE, None),
    ],
    ids=["noted already", "noted, without a schedule", "without a schedule", "of another counter"],
)
def test_a_run_writes_only_what_changes(
    seen: DueState, compacted: int, rule: DueRule | None, written: set[str] | None
) -> None:
    note = reschedule_of(TABLE, seen, compacted, rule, NOW_MS)

    assert (note and {clause.name for clause in note.clauses}) == written


def test_counters_spread_over_the_buckets_of_their_namespace() -> None:
    used = {bucket_of(f"likes:{number}") for number in range(500)}

    assert used == set(buckets_of("likes"))
    assert len(used) == BUCKETS
    assert bucket_of("plain").startswith("default#")
