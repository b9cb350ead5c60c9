"""A counter far larger than any page: merged in one run, with the memory of one generation."""

import tracemalloc
from random import Random

import pytest

from countledger.compaction.report import RunOutcome
from countledger.compaction.retire import Retire
from countledger.ledger import keys
from countledger.ledger.exact import ExactReader
from countledger.ledger.head import decode_head
from countledger.ledger.limits import HEAD_COVERS_MAX, HOUR_MS
from tests.simulation.compaction.simulation import COUNTER, TABLE, ModelRun
from tests.simulation.compaction.world import ModelWorld

# What a generation of 300 entries holds at once, its requests included, with room to spare.
_MEMORY_BYTES = 4 << 20


def _large(count: int) -> ModelRun:
    """A simulation in which nothing else happens, and a counter of so many entries."""
    simulation = ModelRun(0)
    world = ModelWorld(Random(0), ["home"], simulation.world.now_ms, HOUR_MS, 0, 0)  # noqa: S311
    simulation.world = world
    for number in range(count):
        time = f"{world.now_ms - HOUR_MS + number:012x}"
        key = f"e#{time[:8]}-{time[8:]}-7000-8000-{number:012x}"
        at_ms = world.now_ms - HOUR_MS + number
        item = {"counter": COUNTER, "entry": key, "delta": 1, "at": at_ms, "origin": "here"}
        world.home.items[key] = item
        world.home.ordered.append(key)
    world.now_ms += 24 * HOUR_MS
    simulation.namespace = type(simulation.namespace)("n", horizon_ms=HOUR_MS)
    simulation.covers_max, simulation.retire = HEAD_COVERS_MAX, Retire.TRANSACTION
    return simulation


@pytest.mark.parametrize("count", [30_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_p5_a_large_counter_is_merged_in_one_run(count: int) -> None:
    """Through thousands of generations to the closing one; memory stays that of one of them."""
    simulation = _large(count)
    compactor = simulation.compactor()
    merged_at = count - 10 * HEAD_COVERS_MAX

    def measure(step: object) -> None:
        if getattr(step, "merged", 0) >= merged_at and not tracemalloc.is_tracing():
            tracemalloc.start()

    try:
        report = compactor.compact(COUNTER, on_step=measure)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    generations = -(-count // HEAD_COVERS_MAX) + 1
    assert (report.outcome, report.merged) == (RunOutcome.MERGED, count)
    assert report.generations == generations
    assert peak_bytes < _MEMORY_BYTES
    assert decode_head(simulation.world.home.items[keys.HEAD]).covers == {}
    exact = ExactReader(simulation.dynamo("home"), TABLE).read(COUNTER)
    assert (exact.sum, exact.entries, exact.entries_read) == (count, count, 0)
