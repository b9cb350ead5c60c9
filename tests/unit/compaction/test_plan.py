"""What is read, merged and written, decided from values."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.compaction import plan
from countledger.compaction.deletion import DeletionMark, empty_head
from countledger.compaction.plan import AgeLimit, limits_by
from countledger.compaction.report import RunOutcome
from countledger.infra.memory.tables import holds
from countledger.ledger import keys
from countledger.ledger.entry import Entry, encode_entry
from countledger.ledger.errors import BadSetting, SumOverflow
from countledger.ledger.exact import NO_HEAD, Covered, Head, decode_head, encode_head
from countledger.ledger.ids import id_of_key, new_id
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.ledger.namespace import Namespace
from countledger.ledger.operations import Absent, AllOf, Compare
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import MemoryClient

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
    at_ms = max(0, cutoff_ms + offset_ms)
    entry_id = id_of_key(f"key {at_ms}") if kind == "bare" else new_id(at_ms)
    item = {"entry": keys.entry_key(entry_id, spread)}

    inside = [one for one in plan.ranges(spread, cutoff_ms) if holds(one, item)]

    assert len(inside) == (1 if kind == "bare" or at_ms < cutoff_ms else 0)


@pytest.mark.parametrize("cutoff_ms", [0, -5, 1 << 48])
def test_a_cutoff_that_is_no_time_selects_nothing(cutoff_ms: int) -> None:
    assert plan.ranges(16, cutoff_ms) == []


def test_only_old_entries_outside_the_covers_can_be_merged() -> None:
    old, young, taken = (_candidate(NOW_MS - 1), _candidate(NOW_MS), _candidate(NOW_MS - 2))
    head = Head(generation=1, covers={taken.key: taken.covered})

    found = plan.mergeable([one.item for one in (old, young, taken)], head, NOW_MS)

    assert found == [old]


def test_a_bare_key_used_again_is_no_covered_entry() -> None:
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
    with pytest.raises(SumOverflow, match="38 digits"):
        plan.next_head(Head(sum=10**38 - 1), [_candidate(1, 1)], "run", None)


def test_a_closing_head_keeps_the_numbers_and_forgets_the_covers() -> None:
    head = plan.next_head(NO_HEAD, [_candidate(1, 5)], "run", None)

    closed = plan.closing_head(head, "other")

    assert (closed.generation, closed.run, closed.sum, closed.covers) == (2, "other", 5, {})
    assert (closed.entries, closed.from_at_ms) == (1, 1)


def test_a_head_replaces_only_the_one_that_was_read() -> None:
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


_MINE = Head(generation=4, run="r", incarnation="a")
_ELSEWHERE: dict[str, tuple[Head, Head, RunOutcome | None]] = {
    "the same head": (_MINE, _MINE, None),
    "an earlier one": (_MINE, replace(_MINE, generation=3, run="q"), RunOutcome.WAITING),
    "another run's": (_MINE, replace(_MINE, run="q"), RunOutcome.WAITING),
    "a later one": (_MINE, replace(_MINE, generation=5, run="q"), RunOutcome.OVERTAKEN),
    # It is only not replaced there yet.
    "another counter's": (_MINE, replace(_MINE, run="q", incarnation="b"), RunOutcome.WAITING),
    "another counter's later one": (
        _MINE,
        Head(generation=5, run="q", incarnation="b"),
        RunOutcome.WAITING,
    ),
    "no head, as here": (NO_HEAD, NO_HEAD, None),
    "the first one, none here": (NO_HEAD, _MINE, RunOutcome.OVERTAKEN),
}


@pytest.mark.parametrize(("mine", "elsewhere", "outcome"), _ELSEWHERE.values(), ids=_ELSEWHERE)
def test_a_run_waits_for_its_head_and_ends_at_a_later_one_of_its_counter(
    mine: Head, elsewhere: Head, outcome: RunOutcome | None
) -> None:
    found = plan.arrived(mine, {"west": mine, "east": elsewhere})

    assert (found and found[0]) == outcome


@given(st.integers(-(10**37), 10**37), st.one_of(st.none(), st.integers(0, 1 << 47)))
def test_a_head_comes_back_as_it_was_written(delta: int, at_ms: int | None) -> None:
    head = Head(generation=3, run="r", sum=delta, covers={"e#x": Covered(delta, at_ms)})

    assert decode_head(encode_head("c", head)) == head


# ---- how old an entry must be ----

LIMIT = AgeLimit(24 * HOUR_MS, 15 * MINUTE_MS, MINUTE_MS)


def test_a_larger_age_replaces_the_limit() -> None:
    assert LIMIT.with_min_age(48 * HOUR_MS).age_ms == 48 * HOUR_MS


def test_an_age_below_the_limit_is_refused_with_the_arithmetic() -> None:
    """A late retry would count twice; every term is named."""
    with pytest.raises(BadSetting) as refused:
        LIMIT.with_min_age(24 * HOUR_MS)

    assert str(refused.value) == (
        "a minimum age of 24 h is less than 24 h 31 min = horizon 24 h + replication bound 15 min "
        "+ clock skew 1 min + life of a signed request 15 min: a late retry of a merged entry "
        "would count twice"
    )
    assert LIMIT.with_min_age(LIMIT.age_ms).age_ms == LIMIT.age_ms


def test_the_limit_of_a_namespace_follows_its_horizon_and_the_settings() -> None:
    connection = connection_on(MemoryClient(), replication_bound_ms=MINUTE_MS, clock_skew_ms=1_000)

    limit = limits_by(connection)(Namespace("n", horizon_ms=HOUR_MS))

    assert limit.age_ms == HOUR_MS + MINUTE_MS + 1_000 + 15 * MINUTE_MS
