"""A counter far larger than any page: merged in one run, with the memory of one generation."""

import tracemalloc
from dataclasses import replace

import pytest

from countledger.compaction.report import Retire, RunOutcome
from countledger.ledger import keys
from countledger.ledger.limits import DAY_MS, HEAD_COVERS_MAX
from tests.simulation.calm import calm_world
from tests.simulation.product import Product
from tests.simulation.shape import LEDGER

COUNTER = "n:large"
# What a generation of 300 entries holds at once, its requests included, with some to spare.
_MEMORY_BYTES = 4 << 20


@pytest.mark.parametrize("count", [6_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_p5_a_large_counter_is_merged_in_one_run(count: int) -> None:
    world = calm_world(watched=False)
    table, product = world.copies["home"][LEDGER], Product(world.process("home", "operator"))
    world.streams["home"].on = False
    product.namespaces.create("n", horizon_ms=world.shape.horizon_ms)
    at_ms = product.process.now_ms()
    for number in range(count):
        key = f"e#{at_ms >> 16:08x}-{at_ms & 0xFFFF:04x}-7000-8000-{number:012x}"
        item = {"counter": COUNTER, "entry": key, "delta": 1, "at": at_ms, "origin": "home"}
        table.items[COUNTER, key] = item
    table.partitions[COUNTER] = [key for counter, key in table.items if counter == COUNTER]
    world.schedule.now_ms += DAY_MS

    def measure(step: object) -> None:
        table.earlier.clear()
        if getattr(step, "merged", 0) >= count - 10 * HEAD_COVERS_MAX:
            tracemalloc.start()

    compactor = replace(product.compactor(), retire=Retire.TRANSACTION, covers_max=HEAD_COVERS_MAX)
    try:
        report = compactor.compact(COUNTER, on_step=measure)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (report.outcome, report.merged) == (RunOutcome.MERGED, count)
    assert report.generations == -(-count // HEAD_COVERS_MAX) + 1
    assert peak_bytes < _MEMORY_BYTES
    assert table.items[COUNTER, keys.HEAD]["covers"] == {}
    exact = product.exact.read(COUNTER)
    assert (exact.value, exact.entries, exact.entries_read) == (count, count, 0)
