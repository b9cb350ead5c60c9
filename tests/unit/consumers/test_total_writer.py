"""Writing one counter's changes: effect and watermark in one write."""

import pytest

from countledger.consumers import progress
from countledger.consumers.record import EntryChange
from countledger.consumers.total_writer import CounterChanges, TotalWriter, fold
from countledger.ledger.errors import (
    NewerFormat,
    RequestRejected,
    ServiceFailed,
    Throttled,
)
from countledger.ledger.limits import WATERMARK_LIFE_MS
from countledger.ledger.total import decode_total
from tests.unit.consumers.records import COUNTER, record
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import Fault, MemoryClient

TABLE = "counters"
SHARD = "label/s"


class Aside:
    """Collects what is quarantined; fails where told."""

    def __init__(self, error: Exception | None = None) -> None:
        self.sequences: list[int] = []
        self.error = error

    def __call__(self, change: EntryChange, reason: str) -> None:
        assert reason
        if self.error:
            raise self.error
        self.sequences.append(change.sequence)


def _changes(*deltas: int | str) -> CounterChanges:
    records = [record(100 + n, delta) for n, delta in enumerate(deltas)]
    return fold(records, NOW_MS).changes[COUNTER]


def _writer(dynamo: MemoryClient, aside: Aside | None = None) -> TotalWriter:
    return TotalWriter(dynamo, TABLE, SHARD, aside or Aside(), NOW_MS)


def test_of_overlapping_batches_only_the_new_records_count() -> None:
    """The same batch, one that begins within it, one that spans all."""
    dynamo, changes = MemoryClient(), _changes(*range(1, 9))

    for begin, end in [(0, 3), (0, 3), (2, 6), (1, 8)]:
        written = _writer(dynamo).write(COUNTER, changes[begin:end])
        assert (written.error, written.applied + written.duplicates) == (None, end - begin)

    total = decode_total(dynamo.items(TABLE)[0])
    assert (total.value, total.events, total.entries) == (36, 8, 8)


_BAD = Fault(RequestRejected("invalid"))


@pytest.mark.parametrize(
    ("third", "faults"),
    [("9" * 38, []), (3, [_BAD, None, _BAD, _BAD, None])],
    ids=["a sum of more than 38 digits", "an update that the service calls invalid"],
)
def test_a_change_that_can_never_be_applied_is_quarantined_alone(
    third: int | str, faults: list[Fault | None]
) -> None:
    """The changes are halved until it is alone, in order."""
    dynamo, aside = MemoryClient(faults=faults), Aside()

    written = _writer(dynamo, aside).write(COUNTER, _changes(1, 2, third, 4))

    assert aside.sequences == [102]
    assert (written.applied, written.rejected, written.error) == (3, 1, None)
    assert decode_total(dynamo.items(TABLE)[0]).value == 7


def test_no_later_change_passes_one_that_could_not_be_set_aside() -> None:
    """Its watermark would bury it: neither counted nor in the quarantine."""
    dynamo = MemoryClient(faults=[_BAD, _BAD])
    full = ServiceFailed("the queue takes nothing")

    written = _writer(dynamo, Aside(full)).write(COUNTER, _changes(1, 2))

    assert written.error is full
    assert dynamo.items(TABLE) == []


@pytest.mark.parametrize(("v", "error"), [(1, None), (2, NewerFormat)])
def test_only_a_total_in_a_later_format_is_left_alone(
    v: int, error: type[Exception] | None
) -> None:
    """Absent and 1 are the same format; to refuse it would stop the shard for ever."""
    dynamo = MemoryClient()
    _writer(dynamo).write(COUNTER, _changes(1))
    dynamo.tables[TABLE][COUNTER, "total"]["v"] = v

    written = TotalWriter(dynamo, TABLE, "label/next", Aside(), NOW_MS).write(COUNTER, _changes(1))

    assert (type(written.error) is error) if error else written.error is None
    assert dynamo.items(TABLE)[0]["total"] == (1 if error else 2)


@pytest.mark.parametrize("method", ["atomic", "sequence"])
def test_an_entry_never_moves_a_strict_counter_or_a_sequence(method: str) -> None:
    """No producer writes such an entry, and it could pass the bounds: it is quarantined."""
    dynamo, aside = MemoryClient(), Aside()
    strict = {"counter": COUNTER, "part": "total", "method": method, "total": 5, "version": 9}
    dynamo.tables[TABLE] = {(COUNTER, "total"): strict}

    written = _writer(dynamo, aside).write(COUNTER, _changes(1, 2))

    assert (written.applied, written.rejected, written.error) == (0, 2, None)
    assert aside.sequences == [100, 101]
    assert dynamo.items(TABLE) == [strict]


def _aged(dynamo: MemoryClient, shards: int) -> None:
    old_ms = NOW_MS - WATERMARK_LIFE_MS - 120_000
    for shard in range(shards):
        TotalWriter(dynamo, TABLE, f"label/old-{shard}", Aside(), old_ms).write(
            COUNTER, _changes(1)
        )
    dynamo.calls.clear()


@pytest.mark.parametrize(("stale", "left"), [(3, 4), (4, 1), (7, 1)])
def test_stale_watermarks_are_removed_by_the_way_when_they_are_many(stale: int, left: int) -> None:
    dynamo = MemoryClient()
    _aged(dynamo, stale)

    _writer(dynamo).write(COUNTER, _changes(1))

    item = dynamo.items(TABLE)[0]
    marks = [name for name, value in item.items() if isinstance(value, bytes)]
    assert len(marks) == left
    assert progress.attribute(SHARD) in marks
    assert item["total"] == stale + 1


def test_a_repair_of_many_shards_leaves_no_watermarks_for_good() -> None:
    dynamo = MemoryClient()
    old_ms = NOW_MS - WATERMARK_LIFE_MS - 120_000
    marks = {progress.attribute(f"label/{n}"): progress.encode(n, old_ms) for n in range(256)}
    _writer(dynamo).write(COUNTER, _changes(1))
    dynamo.tables[TABLE][COUNTER, "total"] |= marks

    for number in range(10):
        writer = TotalWriter(dynamo, TABLE, f"label/new-{number}", Aside(), NOW_MS)
        assert writer.write(COUNTER, _changes(1)).error is None

    assert len(progress.stale(dynamo.items(TABLE)[0], NOW_MS)) < progress.STALE_ENOUGH


def test_a_clean_up_that_fails_changes_no_total() -> None:
    dynamo = MemoryClient()
    _aged(dynamo, 4)
    dynamo.faults[:] = [None, Fault(Throttled("slow"))]

    written = _writer(dynamo).write(COUNTER, _changes(1))

    assert (written.applied, written.error) == (1, None)
