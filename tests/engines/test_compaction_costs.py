"""P9 of compaction: what a merged entry costs, all told, for a counter of ten thousand."""

import pytest

from countledger.compaction.report import Outcome
from countledger.compaction.retire import Retire
from countledger.ledger.limits import HEAD_COVERS_MAX
from countledger.producers.event import Event
from tests.engines.compacting import compactor
from tests.engines.store import Store

COUNT = 10_000


@pytest.fixture
def store(store: Store) -> Store:
    """The store on the one engine that merges ten thousand entries in seconds."""
    if store.engine.name != "ministack":
        pytest.skip("ten thousand entries take minutes here; costs are the same on every engine")
    return store


@pytest.mark.parametrize(
    ("retire", "each", "at_most"),
    [(Retire.TRANSACTION, 2, 2.1), (Retire.DELETE, 1, 1.1)],
    ids=str,
)
def test_p9_a_merged_entry_costs_its_deletion_and_a_share_of_its_head(
    store: Store, counter: str, retire: Retire, each: int, at_most: float
) -> None:
    """Publishing and closing included; and the plan has said so before."""
    outcomes = store.recorder().record_many(Event(counter, 1) for _ in range(COUNT))
    assert all(getattr(outcome, "status", None) == "recorded" for outcome in outcomes)
    one = compactor(store, retire=retire, workers=4, covers_max=HEAD_COVERS_MAX)
    planned = one.plan(counter)

    report = one.compact(counter)

    assert (report.outcome, report.merged, report.compacted) == (Outcome.MERGED, COUNT, COUNT)
    generations = -(-COUNT // HEAD_COVERS_MAX)
    assert report.generations == generations + 1
    heads = report.write_units - each * COUNT
    # Each head once in full and, being closed, once in one unit.
    assert generations + 1 < heads <= (at_most - each) * COUNT
    assert report.write_units / COUNT <= at_most
    assert planned.entries == COUNT
    assert abs(planned.write_units - report.write_units) <= 0.01 * report.write_units
    exact = store.exact().read(counter)
    assert (exact.sum, exact.entries_read) == (COUNT, 0)
    assert exact.read_units <= 3
