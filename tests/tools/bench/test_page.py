"""The page about performance tells what was measured, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from countledger.infra.cost import BY_DELETES, BY_TRANSACTIONS, Price, price_of, prices
from tools.bench.page import BY, PAGE, RAW, tables
from tools.bench.rounds import Measurement, rows_of
from tools.bench.suite import SUITES
from tools.guide.marked import with_tables


@pytest.fixture
def raw() -> Any:  # noqa: ANN401 - as it was kept
    """The run that the page tells of."""
    return json.loads(RAW.read_text())


def test_the_page_has_the_tables_of_the_run_beside_it(raw: Any) -> None:  # noqa: ANN401
    """After a change of prices or ways, `make bench ARGS=--page` writes them again."""
    text = PAGE.read_text()

    assert text == with_tables(text, tables(raw), BY)
    assert all(table in text for table in tables(raw).values())


def test_the_run_beside_the_page_has_every_way(raw: Any) -> None:  # noqa: ANN401
    measured = sorted((one["table"], one["way"], one["round"]) for one in raw["measurements"])
    wanted = sorted(
        (name, way.name, number)
        for name, suite in SUITES.items()
        for way in suite.ways
        for number in range(raw["rounds"])
    )

    assert measured == wanted


def _measured(way: str, number: int, cpu_us: float) -> Measurement:
    return Measurement("t", way, number, cpu_us, cpu_us * 2, 1.0)


def test_a_ratio_is_the_median_of_the_ratios_within_rounds() -> None:
    slow, fast = (300.0, 100.0, 100.0), (30.0, 10.0, 20.0)
    found = [_measured("a", n, cost) for n, cost in enumerate(slow)]
    found += [_measured("b", n, cost) for n, cost in enumerate(fast)]

    first, second = rows_of(found)

    assert (first.cpu_us, first.lowest_us, first.highest_us, first.cheaper) == (100, 100, 300, 1)
    assert (second.cpu_us, second.wall_us, second.cheaper) == (20, 40, 10)


def test_a_million_events_cost_their_units() -> None:
    plain, streamed = price_of("plain", 1.0), price_of("streamed", 1.0, streamed=True)

    assert plain.units == 1.065
    assert plain.dollars == pytest.approx(1.065 * 0.625, abs=0.002)
    assert plain.compacted(BY_DELETES) == pytest.approx(2.125 * 0.625, abs=0.002)
    assert plain.compacted(BY_TRANSACTIONS) == pytest.approx(3.125 * 0.625, abs=0.002)
    assert 0 < streamed.dollars - plain.dollars < 0.01
    assert Price("marker", 4.0).dollars == 2.5
    assert Price("marker", 4.0).compacted(BY_DELETES) is None


def test_what_is_coalesced_costs_less_by_as_much() -> None:
    _, _, plain, _, uniform, zipf = prices(0.1, 0.2)

    assert uniform.dollars == pytest.approx(plain.dollars / 10)
    assert zipf.dollars == pytest.approx(plain.dollars / 5)
