"""What became of a write without an answer: the table of `occ` and `history`, cell by cell."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.infra.memory.tables import holds
from countledger.ledger.errors import IdempotencyKeyReused
from countledger.producers.strict.change import StrictChange
from countledger.producers.strict.definition import Definition, Method, StrictState, encode_state
from countledger.producers.strict.optimistic import Fate, applied_to, fate, plan_change, plan_fence

BEFORE = StrictState("made", 10, 0, tags=("incarnation=0",))
MINE = StrictChange("n:c", 5, "mine", 0)
DEFINITION = Definition("n:c", "made", Method.OCC)


def _others(state: StrictState, count: int, kept: int) -> StrictState:
    for number in range(count):
        state = applied_to(
            state, StrictChange("n:c", 1, f"other-{state.version}-{number}", 0), kept
        )
    return state


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (applied_to(BEFORE, MINE, 1), Fate.APPLIED),
        (BEFORE, Fate.NOT_YET),
        (_others(BEFORE, 1, 1), Fate.NOT_APPLIED),
        (replace(BEFORE, version=11), Fate.NOT_APPLIED),
        (_others(BEFORE, 2, 1), Fate.UNKNOWN),
        (_others(applied_to(BEFORE, MINE, 1), 1, 1), Fate.UNKNOWN),
        (replace(BEFORE, incarnation="again"), Fate.UNKNOWN),
    ],
    ids=["mine", "same", "one other", "fenced", "two others", "mine and another", "made again"],
)
def test_one_tag_says_what_became_of_one_step(found: StrictState, expected: Fate) -> None:
    assert fate(MINE, BEFORE, found, kept=1) is expected


@given(
    kept=st.integers(2, 6),
    applied=st.booleans(),
    before=st.integers(0, 8),
    others=st.integers(0, 10),
)
def test_a_history_is_never_wrong(kept: int, *, applied: bool, before: int, others: int) -> None:
    based_on = _others(BEFORE, before, kept)
    first = applied_to(based_on, MINE, kept) if applied else based_on
    found = _others(first, others, kept)

    told = fate(MINE, based_on, found, kept)

    match told:
        case Fate.APPLIED:
            assert applied
        case Fate.NOT_APPLIED:
            assert not applied
        case Fate.NOT_YET:
            assert found == based_on
        case Fate.UNKNOWN:
            assert others >= kept


def test_the_same_key_with_another_delta_is_found_out() -> None:
    """It was used for something else."""
    other = StrictChange("n:c", 7, "mine", 0, key="k")

    with pytest.raises(IdempotencyKeyReused, match="'k'"):
        fate(replace(MINE, key="k"), BEFORE, applied_to(BEFORE, other, 1), kept=1)


def test_after_a_fence_no_old_request_is_applied() -> None:
    """The write of a change and its fence require the same version: one of them comes first."""
    change = plan_change("t", DEFINITION, BEFORE, MINE)
    fence = plan_fence("t", DEFINITION, BEFORE)
    for condition in (change.condition, fence.condition):
        assert condition is not None
        assert holds(condition, encode_state(BEFORE))
        assert not holds(condition, encode_state(replace(BEFORE, version=11)))


def test_a_history_is_bounded_and_forgets_the_oldest() -> None:
    found = _others(BEFORE, 5, 3)

    assert [tag.split("-")[1] for tag in found.tags] == ["12", "13", "14"]
