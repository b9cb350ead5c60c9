"""P4: the exact sum of a set far larger than a page, while two compactors run beside it."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event as Signal

import pytest

from countledger.compaction.compactor import Compactor
from countledger.compaction.report import CompactionReport, RunOutcome
from countledger.compaction.retire import Retire
from countledger.producers.event import Event
from tests.engines.compacting import compactor
from tests.engines.differences import Difference
from tests.engines.store import Store
from tests.faults.injection import calls

# Two KB each: a page of a megabyte holds some five hundred of them.
COUNT = 1_500
BIG = {"note": "v" * 1_000}
KEY = "k" * 900


def _compactor(store: Store, retire: Retire) -> Compactor:
    # Engines answer one call at a time, and a page takes long: many deletes between two pages.
    return compactor(store, retire=retire, covers_max=100, workers=16)


@pytest.mark.parametrize("retire", list(Retire))
def test_p4_a_sum_of_many_pages_beside_two_compactors(
    store: Store, counter: str, retire: Retire
) -> None:
    """All entries were there when each read began, so each sum is all of them."""
    if store.engine.has(Difference.LOSES_UPDATES_UNDER_THREADS):
        pytest.skip(Difference.LOSES_UPDATES_UNDER_THREADS.value)
    events = (Event(counter, 1, f"{KEY}{n}", note=BIG) for n in range(COUNT))
    outcomes = store.recorder().record_many(events)
    assert all(getattr(one, "status", None) == "recorded" for one in outcomes)
    reader = store.exact()
    with calls(reader.dynamo.client) as made:
        assert reader.read(counter).value == COUNT
    assert made.count("Query") > 2
    done = Signal()

    def compact() -> list[CompactionReport]:
        reports: list[CompactionReport] = []
        while not reports or reports[-1].outcome is RunOutcome.OVERTAKEN:
            reports.append(_compactor(store, retire).compact(counter))
        return reports

    def read() -> list[tuple[object, int, int]]:
        found: list[tuple[object, int, int]] = []
        while not (done.is_set() and found):
            exact = store.exact().read(counter)
            found.append((exact.value, exact.entries, exact.generation))
        return found

    with ThreadPoolExecutor(3) as pool:
        compactors = [pool.submit(compact) for _ in range(2)]
        readers = [pool.submit(read)]
        try:
            reports = [report for one in compactors for report in one.result()]
        finally:
            done.set()
        sums = [found for one in readers for found in one.result()]

    assert {(total, entries) for total, entries, _ in sums} == {(COUNT, COUNT)}
    assert len({generation for _, _, generation in sums}) > 3
    assert sum(report.merged for report in reports) == COUNT
    assert {report.outcome for report in reports} <= {
        RunOutcome.MERGED,
        RunOutcome.NOTHING,
        RunOutcome.OVERTAKEN,
    }
    assert store.entry_items(counter) == []
    assert store.exact().read(counter).value == COUNT
