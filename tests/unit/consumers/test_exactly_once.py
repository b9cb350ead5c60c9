"""A total is the exact sum of its records, whatever is delivered again, split or overlaps.

The world: one counter, a few shards, each an ordered list of records. A delivery is a slice of a
shard that begins at the latest behind what was handled before: in order the first time, anything
afterwards. The rule is the product's own: the fold, `after`, and the one conditional update.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.consumers import watermark
from countledger.consumers.fold import CounterChanges, after, fold, folded_change
from countledger.consumers.total_writer import TotalWriter, update_of
from countledger.ledger.errors import ConditionFailed
from tests.unit.consumers.records import COUNTER, record
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import MemoryClient

if TYPE_CHECKING:
    from countledger.consumers.record import EntryChange

TABLE = "counters"
Delivery = tuple[int, int, int]


def _refuse(change: EntryChange, reason: str) -> None:
    raise AssertionError(f"{change} was quarantined: {reason}")


def _total(dynamo: MemoryClient) -> tuple[object, object, object]:
    item = dynamo.items(TABLE)[0]
    return item["total"], item["events"], item["entries"]


@st.composite
def _histories(draw: st.DrawFn) -> tuple[list[list[dict[str, object]]], list[Delivery]]:
    """Shards, and deliveries that show each shard's records in order the first time."""
    shards = []
    for shard in range(draw(st.integers(1, 3))):
        deltas = draw(st.lists(st.integers(-9, 9).filter(bool), min_size=1, max_size=8))
        first = 10**20 + shard
        shards.append([record(first + 10 * n, delta) for n, delta in enumerate(deltas)])
    handled = [0] * len(shards)
    deliveries: list[Delivery] = []
    while any(done < len(shard) for done, shard in zip(handled, shards, strict=True)):
        shard = draw(st.integers(0, len(shards) - 1))
        begin = draw(st.integers(0, handled[shard]))
        end = draw(st.integers(begin, len(shards[shard])))
        deliveries.append((shard, begin, end))
        handled[shard] = max(handled[shard], end)
        if len(deliveries) > 12:
            deliveries += [(n, 0, len(records)) for n, records in enumerate(shards)]
            break
    return shards, deliveries


@settings(max_examples=150, deadline=None)
@given(_histories())
def test_a_total_is_exact_whatever_is_delivered_again(
    history: tuple[list[list[dict[str, object]]], list[Delivery]],
) -> None:
    """Splits, overlaps, repeats and interleaved shards."""
    shards, deliveries = history
    dynamo = MemoryClient()

    for shard, begin, end in deliveries:
        writer = TotalWriter(dynamo, TABLE, f"label/{shard}", _refuse, NOW_MS)
        changes = fold(shards[shard][begin:end], NOW_MS).changes.get(
            COUNTER, CounterChanges(COUNTER, ())
        )
        if changes:
            written = writer.write(COUNTER, changes)
            assert written.error is None
            assert written.applied + written.duplicates == len(changes)

    every = [change for one in shards for change in fold(one, NOW_MS).changes[COUNTER]]
    exact = sum(change.delta for change in every)
    assert _total(dynamo) == (exact, len(every), len(every))


_RECORDS = [record(100 + n, n + 1) for n in range(8)]
_OVERLAPPING = [(0, 3), (0, 3), (2, 6), (1, 8)]


def _deliver(dynamo: MemoryClient, begin: int, end: int) -> None:
    writer = TotalWriter(dynamo, TABLE, "label/s", _refuse, NOW_MS)
    writer.write(COUNTER, fold(_RECORDS[begin:end], NOW_MS).changes[COUNTER])


def test_overlapping_batches_add_up_once() -> None:
    """The same batch, one that begins within it, one that spans all."""
    dynamo = MemoryClient()

    for begin, end in _OVERLAPPING:
        _deliver(dynamo, begin, end)

    assert _total(dynamo) == (36, 8, 8)


def test_without_the_condition_overlapping_batches_count_twice() -> None:
    """The rule switched off: the same deliveries go wrong, so the test above can fail."""
    dynamo = MemoryClient()

    for begin, end in _OVERLAPPING:
        step = folded_change(fold(_RECORDS[begin:end], NOW_MS).changes[COUNTER])
        update = update_of(TABLE, COUNTER, step, "label/s", NOW_MS)
        dynamo.update(type(update)(update.table, update.key, update.clauses))

    assert _total(dynamo) != (36, 8, 8)


def test_dropping_the_whole_overlapping_batch_loses_its_new_records() -> None:
    """The third rule switched off: a failed condition alone does not say that all was applied."""
    dynamo = MemoryClient()

    for begin, end in _OVERLAPPING:
        step = folded_change(fold(_RECORDS[begin:end], NOW_MS).changes[COUNTER])
        try:
            dynamo.update(update_of(TABLE, COUNTER, step, "label/s", NOW_MS))
        except ConditionFailed:
            continue

    assert _total(dynamo) == (6, 3, 3)


def test_one_watermark_for_two_shards_loses_records() -> None:
    """Watermarks are kept per shard: numbers of different shards do not tell before from after."""
    dynamo = MemoryClient()
    for shard_records in ([record(500, 1)], [record(100, 1)]):
        writer = TotalWriter(dynamo, TABLE, "one for all", _refuse, NOW_MS)
        writer.write(COUNTER, fold(shard_records, NOW_MS).changes[COUNTER])

    assert _total(dynamo) == (1, 1, 1)


def test_a_zombies_late_write_is_refused() -> None:
    """An earlier invocation's update lands behind its successor's."""
    dynamo = MemoryClient()
    late = update_of(
        TABLE,
        COUNTER,
        folded_change(fold(_RECORDS[:5], NOW_MS).changes[COUNTER]),
        "label/s",
        NOW_MS,
    )
    _deliver(dynamo, 0, 8)

    with pytest.raises(ConditionFailed) as refused:
        dynamo.update(late)

    assert watermark.sequence_in(refused.value.item, "label/s") == 107
    assert _total(dynamo) == (36, 8, 8)


@given(
    sequences=st.lists(st.integers(0, 10**40 - 1), min_size=1, max_size=8, unique=True),
    mark=st.one_of(st.none(), st.integers(0, 10**40 - 1)),
)
def test_after_keeps_what_lies_above_the_watermark(sequences: list[int], mark: int | None) -> None:
    """None keeps all; at the watermark is applied."""
    ordered = sorted(sequences)
    changes = fold([record(sequence) for sequence in ordered], NOW_MS).changes[COUNTER]

    kept = [change.sequence for change in after(changes, mark)]

    assert kept == [s for s in ordered if mark is None or s > mark]
