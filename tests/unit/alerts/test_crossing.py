"""Crossings against a walk through every number between the old total and the new one."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.consumers.alerts.crossing import crossings, is_back, last_passed
from countledger.consumers.alerts.rule import Crossing, Direction
from countledger.ledger.amount import canonical
from countledger.ledger.limits import CROSSINGS_MAX
from tests.unit.alerts.evaluating import rule
from tests.unit.alerts.walk import walked

NUMBERS = st.integers(-250, 250)
DIRECTIONS = st.sampled_from(list(Direction))
STEPS = st.none() | st.integers(1, 40)


@given(NUMBERS, NUMBERS, NUMBERS, DIRECTIONS, STEPS)
def test_crossings_are_those_of_a_walk_through_every_integer(
    old: int, new: int, threshold: int, direction: Direction, step: int | None
) -> None:
    wanted = rule(threshold, direction, step=step)
    steps = walked(old, new, wanted)

    found = crossings(old, new, wanted)

    if len(steps) > CROSSINGS_MAX:
        assert found == (Crossing(steps[0], steps[-1], len(steps)),)
    else:
        assert found == tuple(map(Crossing, steps))


@given(NUMBERS, NUMBERS, NUMBERS, DIRECTIONS, STEPS, st.integers(1, 30))
def test_decimals_cross_as_the_integers_that_they_are_a_part_of(  # noqa: PLR0917 - the draw
    old: int, new: int, threshold: int, direction: Direction, step: int | None, places: int
) -> None:
    """All numbers divided by a power of ten: the same crossings, divided; nothing is rounded."""

    def part(number: int) -> int | Decimal:
        return canonical(Decimal(number).scaleb(-places))

    whole = crossings(old, new, rule(threshold, direction, step=step))
    parts = crossings(
        part(old),
        part(new),
        rule(part(threshold), direction, step=None if step is None else part(step)),
    )

    assert parts == tuple(
        Crossing(
            part(int(one.threshold)),
            None if one.through is None else part(int(one.through)),
            one.count,
        )
        for one in whole
    )


@pytest.mark.parametrize("direction", ["rising", "falling"])
def test_a_huge_jump_is_one_range_and_takes_no_time(direction: str) -> None:
    high, low = 10**38 - 1, 1
    old, new = (low, high) if direction == "rising" else (high, low)
    start = 10 if direction == "rising" else 10**38 - 10

    (one,) = crossings(old, new, rule(start, direction, step=10))

    assert one.threshold == start
    assert one.count == 10**37 - 1
    assert one.through == (10**38 - 10 if direction == "rising" else 10)


def test_the_longest_decimals_are_exact() -> None:
    tiny = Decimal("1E-38")

    (one,) = crossings(0, tiny * 2, rule(2 * tiny, "rising", step=tiny))

    assert one == Crossing(2 * tiny)


@given(NUMBERS, NUMBERS, st.integers(1, 50))
def test_a_rule_is_armed_again_at_its_level_and_beyond(
    total: int, threshold: int, gap: int
) -> None:
    rising = rule(threshold, "rising", rearm=threshold - gap)
    falling = rule(threshold, "falling", rearm=threshold + gap)

    assert is_back(total, rising) == (total <= threshold - gap)
    assert is_back(total, falling) == (total >= threshold + gap)


@given(NUMBERS, NUMBERS, st.sampled_from(["rising", "falling"]), STEPS)
def test_a_total_has_last_passed_the_last_threshold_on_its_way(
    total: int, threshold: int, direction: str, step: int | None
) -> None:
    wanted = rule(threshold, direction, step=step)
    before = threshold - 1 if direction == "rising" else threshold + 1
    on_its_way = walked(before, total, wanted)

    found = last_passed(total, wanted)

    assert found == (Crossing(on_its_way[-1]) if on_its_way else None)
