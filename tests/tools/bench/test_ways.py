"""Every way that is measured does what its row says."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tools.bench.rounds import environment, servers
from tools.bench.suite import SUITES
from tools.bench.transports import KINDS
from tools.bench.way import COUNTERS, uniform, zipf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.bench.way import Way

_FEW = 25
_BATCH = 1_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that answers at once, and nothing of the user's AWS."""
    with pytest.MonkeyPatch.context() as patch, servers([0]) as urls:
        for name in set(os.environ) - set(environment()):
            patch.delenv(name)
        for name, value in environment().items():
            patch.setenv(name, value)
        yield urls[0]


def _units(way: Way, url: str) -> float:
    """What it costs for a thousand events, where it takes them in batches."""
    events = _BATCH if way.events > _BATCH else _FEW
    return way.prepare(url)(way.counters(events)) / events


@pytest.mark.parametrize("way", SUITES["emit"].ways, ids=lambda way: way.name)
def test_a_way_to_emit_costs_a_unit_for_each_entry(way: Way, url: str) -> None:
    units = _units(way, url)

    if way.name == "kinesis":
        assert units == 0
    elif "coalescing" in way.name:
        assert len(set(way.counters(_BATCH))) / _BATCH <= units < 1
    else:
        assert units == 1


@pytest.mark.parametrize(("table", "updates"), [("apply", 64), ("near", 64), ("distinct", 1_000)])
def test_the_materializer_updates_each_counter_once(table: str, updates: int, url: str) -> None:
    """And moves the progress of the shard; the usual handler updates for each record."""
    usual, *ours = SUITES[table].ways

    assert _units(usual, url) == 1
    assert [_units(way, url) for way in ours] == [(updates + 1) / _BATCH] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_every_candidate_makes_its_calls(kind: str, url: str) -> None:
    """What it returns is its own affair; here it must not fail."""
    for way in SUITES[f"call-{kind}"].ways:
        way.prepare(url)(way.counters(way.per * 2))


@pytest.mark.parametrize("table", ["total", "strict", "evaluate"])
def test_the_other_ways_do_their_work(table: str, url: str) -> None:
    for way in SUITES[table].ways:
        units = way.prepare(url)(way.counters(_BATCH if table == "evaluate" else _FEW))

        assert units == (_FEW if table == "strict" else 0)


def test_counters_are_drawn_as_they_are_said_to_be() -> None:
    even, skewed = uniform(50_000), zipf(50_000)

    assert even == uniform(50_000)
    assert skewed == zipf(50_000)
    assert len(set(even)) == COUNTERS
    assert even.count("bench:0") < 100
    assert 1.8 < skewed.count("bench:0") / skewed.count("bench:1") < 2.2
