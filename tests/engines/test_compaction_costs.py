"""P9 of compaction: what a merged entry costs, all told, for a counter of thousands."""

import pytest

from countledger.compaction.report import Retire, RunOutcome
from countledger.ledger.limits import HEAD_COVERS_MAX
from countledger.producers.event import Event
from tests.engines import in_memory
from tests.engines.compacting import compactor
from tests.engines.store import Store


@pytest.fixture
def store(store: Store) -> Store:
    """The store on the one engine that merges thousands of entries in seconds."""
    if store.engine.name not in {in_memory.NAME, "ministack"}:
        pytest.skip("thousands of entries take minutes here; costs are the same on every engine")
    return store


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize(("retire", "each"), [(Retire.TRANSACTION, 2), (Retire.DELETE, 1)], ids=str)
def test_p9_a_merged_entry_costs_its_deletion_and_a_share_of_its_head(
    store: Store, counter: str, retire: Retire, each: int, count: int
) -> None:
    """Publishing and closing included; and the plan has said so before."""
    outcomes = store.recorder().record_many(Event(counter, 1) for _ in range(count))
    assert all(getattr(outcome, "status", None) == "recorded" for outcome in outcomes)
    one = compactor(store, retire=retire, workers=4, covers_max=HEAD_COVERS_MAX)
    planned = one.plan(counter)

    report = one.compact(counter)

    assert (report.outcome, report.merged, report.compacted) == (
        RunOutcome.MERGED,
        count,
        count,
    )
    generations = -(-count // HEAD_COVERS_MAX)
    assert report.generations == generations + 1
    heads = report.write_units - each * count
    # Each head once in full and, being closed, once in one unit.
    assert generations + 1 < heads <= count / 10
    assert planned.entries == count
    assert abs(planned.write_units - report.write_units) <= 0.01 * report.write_units
    exact = store.exact().read(counter)
    assert (exact.value, exact.entries_read) == (count, 0)
    assert exact.read_units <= 3
