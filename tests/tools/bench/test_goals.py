"""A goal is reached by what was measured with the fast transport, and only then."""

from __future__ import annotations

import pytest

from tools.bench.goals import GOALS, memory_results, results, through_result
from tools.bench.memory import Peak
from tools.bench.rounds import Row
from tools.bench.suite import SUITES
from tools.bench.through import Through
from tools.bench.way import TRANSPORTS, named


def _rows(cheaper: float) -> dict[str, list[Row]]:
    return {
        name: [Row(way.name, 1.0, 1.0, 1.0, 1.0, 1.0, cheaper) for way in suite.ways]
        for name, suite in SUITES.items()
    }


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.text)
def test_every_goal_has_its_rows(goal: object) -> None:
    """With each transport, or one without any."""
    (one,) = [each for each in GOALS if each is goal]
    ways = {way.name for way in SUITES[one.table].ways}

    assert {named(one.way, transport) for transport in TRANSPORTS} <= ways or one.way in ways


def test_a_goal_is_reached_at_its_ratio() -> None:
    assert all(one.reached for one in results(_rows(200.0)))
    assert [one.beyond for one in results(_rows(119.0)) if one.beyond is not None] == [False] * 2
    assert [one.goal for one in results(_rows(79.9)) if not one.reached] == [
        "`record_many`",
        "`buffered`",
        "`buffered`, coalescing, uniform",
        "`buffered`, coalescing, Zipf",
    ]
    assert not any(one.reached for one in results(_rows(0.01)))


def test_memory_and_the_way_to_the_total_have_limits() -> None:
    peaks = [Peak("a", 150.0, 150.0), Peak("b", 150.1, 150.0), Peak("c", 1.0, None)]

    assert [one.reached for one in memory_results(peaks)] == [True, False]
    assert through_result(Through(1_000, 1, 500, 1, 1)).reached
    assert not through_result(Through(1_000, 1, 499, 1, 1)).reached
