"""Crossings against a walk through every number between the old total and the new one."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.consumers.alerts.crossing import Crossing, crossings, is_back, last_passed
from countledger.consumers.alerts.rule import Direction
from countledger.ledger.amount import canonical
from countledger.ledger.limits import CROSSINGS_MAX
from tests.unit.alerts.evaluating import rule

if TYPE_CHECKING:
    from countledger.consumers.alerts.rule import Rule

NUMBERS = st.integers(-250, 250)
DIRECTIONS = st.sampled_from(list(Direction))
STEPS = st.none() | st.integers(1, 40)


def _is_threshold(value: int, of: Rule) -> bool:
    far = value - int(of.threshold)
    if of.step is None:
        return far == 0
    onwards = far <= 0 if of.direction is Direction.FALLING else far >= 0
    return onwards and far % int(of.step) == 0


def _walked(old: int, new: int, of: Rule) -> list[int]:
    """Step from one integer to the next, and look at each threshold that a step reaches."""
    one = 1 if new > old else -1
    way = Direction.RISING if one == 1 else Direction.FALLING
    if of.direction not in (way, Direction.BOTH):
        return []
    return [at for at in range(old + one, new + one, one) if _is_threshold(at, of)]


@given(NUMBERS, NUMBERS, NUMBERS, DIRECTIONS, STEPS)
def test_crossings_are_those_of_a_walk_through_every_integer(
    old: int, new: int, threshold: int, direction: Direction, step: int | None
) -> None:
    """Each once, in the order in which the walk meets them; past the most, as one range."""
    wanted = rule(threshold, direction, step=step)
    walked = _walked(old, new, wanted)

    found = crossings(old, new, wanted)

    if len(walked) > CROSSINGS_MAX:
        assert found == (Crossing(walked[0], walked[-1], len(walked)),)
    else:
        assert found == tuple(map(Crossing, walked))


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


@given(st.lists(NUMBERS, min_size=2, max_size=6), NUMBERS, STEPS)
def test_a_way_in_pieces_rises_through_what_it_rises_through_at_once(
    totals: list[int], threshold: int, step: int | None
) -> None:
    """A total that only grows crosses the same thresholds, in however many updates."""
    grown = sorted(set(totals))
    wanted = rule(threshold, "rising", step=step)
    pieces = [c for a, b in pairwise(grown) for c in crossings(a, b, wanted)]

    assert sum(c.count for c in crossings(grown[0], grown[-1], wanted)) == sum(
        c.count for c in pieces
    )


@pytest.mark.parametrize("direction", ["rising", "falling"])
def test_a_huge_jump_is_one_range_and_takes_no_time(direction: str) -> None:
    """Ten to the 37th thresholds are counted, not walked."""
    high, low = 10**38 - 1, 1
    old, new = (low, high) if direction == "rising" else (high, low)
    start = 10 if direction == "rising" else 10**38 - 10

    (one,) = crossings(old, new, rule(start, direction, step=10))

    assert one.threshold == start
    assert one.count == 10**37 - 1
    assert one.through == (10**38 - 10 if direction == "rising" else 10)


def test_the_longest_decimals_are_exact() -> None:
    """A step of the last of 38 places, near a total of 38 digits' reach."""
    tiny = Decimal("1E-38")

    (one,) = crossings(0, tiny * 2, rule(2 * tiny, "rising", step=tiny))

    assert one == Crossing(2 * tiny)


@given(NUMBERS, NUMBERS, st.integers(1, 50))
def test_a_rule_is_armed_again_at_its_level_and_beyond(
    total: int, threshold: int, gap: int
) -> None:
    """By the level alone, on the other side of the threshold."""
    rising = rule(threshold, "rising", rearm=threshold - gap)
    falling = rule(threshold, "falling", rearm=threshold + gap)

    assert is_back(total, rising) == (total <= threshold - gap)
    assert is_back(total, falling) == (total >= threshold + gap)


@given(NUMBERS, NUMBERS, st.sampled_from(["rising", "falling"]), STEPS)
def test_where_a_total_stands_is_the_last_threshold_on_its_way_there(
    total: int, threshold: int, direction: str, step: int | None
) -> None:
    """As if it had come from before the first one."""
    wanted = rule(threshold, direction, step=step)
    before = threshold - 1 if direction == "rising" else threshold + 1
    on_its_way = _walked(before, total, wanted)

    found = last_passed(total, wanted)

    assert found == (Crossing(on_its_way[-1]) if on_its_way else None)
