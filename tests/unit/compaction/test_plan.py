"""What is read, merged and written, decided from values."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.compaction import plan
from countledger.compaction.deletion import DeletionMark, empty_head
from countledger.compaction.report import RunOutcome
from countledger.ledger import keys
from countledger.ledger.entry import Entry, encode_entry
from countledger.ledger.errors import SumOverflow
from countledger.ledger.expressions import Absent, AllOf, Compare
from countledger.ledger.head import NO_HEAD, Covered, Head, decode_head, encode_head
from countledger.ledger.ids import id_of_key, new_id
from tests.simulation.judgement import holds

NOW_MS = 1_900_000_000_000


def _candidate(at_ms: int, delta: int = 1, events: int = 1, key: str | None = None) -> Any:  # noqa: ANN401
    entry_id = id_of_key(key) if key else new_id(at_ms)
    entry = Entry(
        counter="c", id=entry_id, delta=delta, at_ms=at_ms, origin="here", events=events, key=key
    )
    item = {n: v for n, v in encode_entry(entry, 1).items() if v is not None}
    return plan.Candidate(item["entry"], entry, item)


@given(
    st.integers(1, 1 << 47),
    st.integers(-3, 3),
    st.sampled_from([1, 16, 256]),
    st.sampled_from(["bare", "timed"]),
)
def test_the_ranges_hold_every_old_entry_and_no_young_one_with_a_time(
    cutoff_ms: int, offset_ms: int, spread: int, kind: str
) -> None:
    """Whatever the spread; bare keys are in them at any age."""
    at_ms = max(0, cutoff_ms + offset_ms)
    entry_id = id_of_key(f"key {at_ms}") if kind == "bare" else new_id(at_ms)
    item = {"entry": keys.entry_key(entry_id, spread)}

    inside = [one for one in plan.ranges(spread, cutoff_ms) if holds(one, item)]

    assert len(inside) == (1 if kind == "bare" or at_ms < cutoff_ms else 0)


@pytest.mark.parametrize("cutoff_ms", [0, -5, 1 << 48])
def test_a_cutoff_that_is_no_time_selects_nothing(cutoff_ms: int) -> None:
    """A clock that is far off merges nothing."""
    assert plan.ranges(16, cutoff_ms) == []


def test_only_old_entries_outside_the_covers_can_be_merged() -> None:
    """One that is old, one at the cutoff, one that the head has taken in."""
    old, young, taken = (_candidate(NOW_MS - 1), _candidate(NOW_MS), _candidate(NOW_MS - 2))
    head = Head(generation=1, covers={taken.key: taken.covered})

    found = plan.mergeable([one.item for one in (old, young, taken)], head, NOW_MS)

    assert found == [old]


def test_a_bare_key_used_anew_is_no_covered_entry() -> None:
    """The head took in the one that was made earlier."""
    first, second = (_candidate(NOW_MS - 9, key="k"), _candidate(NOW_MS - 5, key="k"))
    head = Head(generation=1, covers={first.key: first.covered})

    assert plan.mergeable([second.item], head, NOW_MS) == [second]
    assert plan.still_there(head, [second.item]) == {}
    assert plan.still_there(head, [first.item]) == {first.key: first.item}


@pytest.mark.parametrize("name", ["delta", "at", "events"])
def test_an_entry_that_differs_somewhere_is_not_merged(name: str) -> None:
    """Two writers met under one key; the last of them has not won everywhere yet."""
    one = _candidate(NOW_MS, 5)
    elsewhere = {one.key: {**one.item, name: 7}}

    assert plan.shown_alike([one], [{one.key: one.item}, elsewhere]) == []
    assert plan.shown_alike([one], [{one.key: one.item}, {}]) == []
    assert plan.shown_alike([one], [{one.key: one.item}]) == [one]
    assert plan.shown_alike([one], []) == [one]


def test_the_next_head_adds_up() -> None:
    """Sum, events, entries, the span of time; it covers these and no others."""
    head = Head(
        generation=4, run="r", sum=Decimal("1.5"), events=3, entries=2, from_at_ms=50, to_at_ms=60
    )
    entries = [_candidate(40, 5, 2), _candidate(55, -7)]

    after = plan.next_head(head, entries, "run", None)

    assert (after.generation, after.run, after.sum) == (5, "run", Decimal("-0.5"))
    assert (after.events, after.entries) == (6, 4)
    assert (after.from_at_ms, after.to_at_ms) == (40, 60)
    assert after.covers == {entries[0].key: Covered(5), entries[1].key: Covered(-7)}


def test_a_sum_that_the_service_cannot_hold_is_refused() -> None:
    """It would be rounded."""
    with pytest.raises(SumOverflow, match="38 digits"):
        plan.next_head(Head(sum=10**38 - 1), [_candidate(1, 1)], "run", None)


def test_a_closing_head_keeps_the_numbers_and_forgets_the_covers() -> None:
    """One generation on."""
    head = plan.next_head(NO_HEAD, [_candidate(1, 5)], "run", None)

    closed = plan.closing_head(head, "other")

    assert (closed.generation, closed.run, closed.sum, closed.covers) == (2, "other", 5, {})
    assert (closed.entries, closed.from_at_ms) == (1, 1)


def test_a_head_replaces_only_the_one_that_was_read() -> None:
    """The first one only where there is none."""
    first = plan.publish_of("t", "c", NO_HEAD, Head(generation=1))
    second = plan.publish_of("t", "c", Head(generation=1, run="r"), Head(generation=2))

    assert first.condition == Absent("entry")
    assert second.condition == AllOf(Compare("generation", "=", 1), Compare("run", "=", "r"))


def test_every_head_of_a_sequence_names_its_first_run() -> None:
    """Also across closing heads and runs; a deletion's empty head begins another sequence."""
    first = plan.next_head(NO_HEAD, [_candidate(1, 5)], "run 1", None)
    second = plan.closing_head(first, "run 2")
    third = plan.next_head(second, [_candidate(2, 5)], "run 3", None)
    empty = empty_head(DeletionMark(counter="c", id="m", at_ms=9), 4)

    assert [one.incarnation for one in (first, second, third)] == ["run 1"] * 3
    assert (
        empty.incarnation
        == empty.run
        != empty_head(DeletionMark(counter="c", id="n", at_ms=9), 4).run
    )
    assert plan.next_head(empty, [_candidate(3, 5)], "run 4", None).incarnation == empty.run


@pytest.mark.parametrize(
    ("elsewhere", "outcome"),
    [
        (Head(generation=4, run="r", incarnation="a"), None),
        (Head(generation=3, run="q", incarnation="a"), RunOutcome.WAITING),
        (Head(generation=4, run="q", incarnation="b"), RunOutcome.WAITING),
        (Head(generation=5, run="q", incarnation="a"), RunOutcome.OVERTAKEN),
        (Head(generation=5, run="q", incarnation="b"), RunOutcome.WAITING),
    ],
)
def test_only_a_later_head_of_the_same_counter_overtakes(
    elsewhere: Head, outcome: RunOutcome | None
) -> None:
    """A higher generation that another counter of that name had is only not replaced there yet."""
    found = plan.arrived(Head(generation=4, run="r", incarnation="a"), {"east": elsewhere})

    assert (found and found[0]) == outcome


def test_every_head_overtakes_a_run_that_found_none() -> None:
    """Without a head there is no incarnation that the first head could differ from."""
    first = Head(generation=1, run="q", incarnation="q")

    overtaken = plan.arrived(NO_HEAD, {"west": NO_HEAD, "east": first})

    assert overtaken is not None
    assert overtaken[0] is RunOutcome.OVERTAKEN
    assert plan.arrived(NO_HEAD, {"west": NO_HEAD}) is None


@given(st.integers(-(10**37), 10**37), st.one_of(st.none(), st.integers(0, 1 << 47)))
def test_a_head_comes_back_as_it_was_written(delta: int, at_ms: int | None) -> None:
    """Covers with and without their times."""
    head = Head(generation=3, run="r", sum=delta, covers={"e#x": Covered(delta, at_ms)})

    assert decode_head(encode_head("c", head)) == head


@pytest.mark.parametrize(
    ("generation", "run", "outcome"),
    [
        (3, "r", None),
        (2, "r", RunOutcome.WAITING),
        (3, "other", RunOutcome.WAITING),
        (4, "other", RunOutcome.OVERTAKEN),
    ],
)
def test_a_head_has_arrived_where_generation_and_run_are_shown(
    generation: int, run: str, outcome: RunOutcome | None
) -> None:
    """An older one is waited for; a newer one ends the run."""
    mine = Head(generation=3, run="r")

    missing = plan.arrived(mine, {"east": mine, "west": Head(generation=generation, run=run)})

    assert (missing[0] if missing else None) == outcome
