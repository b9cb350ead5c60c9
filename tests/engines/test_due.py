"""The due index on every engine: sparse, by time, and free for the plain update."""

from dataclasses import replace

import pytest

from countledger.compaction.report import LastRunStore, WorkDone
from countledger.consumers.total_writer import FoldedChange, update_of
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.dynamo import Meter
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.indexes import (
    DueRule,
    bucket_of,
    buckets_of,
    due_query,
    due_state_of,
    mark_of,
    reschedule_of,
)
from countledger.ledger.limits import HOUR_MS
from tests.engines.store import Store

RULE = DueRule(min_entries=2, age_ms=HOUR_MS)
NOW_MS = 1_900_000_000_000


def _update(store: Store, counter: str, sequence: int, entries: int = 1) -> Item:
    step = FoldedChange(sequence, sequence, 1, entries, entries)
    item = store.dynamo().update(update_of(store.counters, counter, step, "s", NOW_MS))
    assert item is not None
    return item


def _due(store: Store, namespace: str, at_ms: int) -> list[str]:
    dynamo = store.dynamo()
    return [
        item["counter"]
        for bucket in buckets_of(namespace)
        for page in dynamo.pages(due_query(store.counters, bucket, at_ms))
        for item in page
    ]


def _mark(store: Store, item: Item, now_ms: int = NOW_MS) -> None:
    mark = mark_of(store.counters, due_state_of(item), RULE, now_ms)
    assert mark is not None
    store.dynamo().update(mark)


def test_the_index_lists_what_is_due_and_nothing_else(
    store: Store, namespace: str, counter: str
) -> None:
    """By its moment; counters without a mark, and other namespaces, are not in it."""
    _mark(store, _update(store, counter, 1, entries=2))
    _update(store, f"{namespace}:other", 1, entries=2)

    assert _due(store, namespace, NOW_MS + HOUR_MS - 1) == []
    assert _due(store, namespace, NOW_MS + HOUR_MS) == [counter]
    assert _due(store, f"{namespace}x", NOW_MS + HOUR_MS) == []


def test_what_waited_longest_comes_first(store: Store, namespace: str) -> None:
    names = [f"{namespace}:{number}" for number in range(200)]
    bucket = bucket_of(names[0])
    alike = [name for name in names if bucket_of(name) == bucket][:4]
    for number, name in enumerate(reversed(alike)):
        _mark(store, _update(store, name, 1, entries=2), NOW_MS + number)

    assert _due(store, namespace, NOW_MS + HOUR_MS + 10) == alike[::-1]


def test_a_settled_counter_leaves_the_index(store: Store, namespace: str, counter: str) -> None:
    """What is compacted is noted and the mark goes, in one update, if nothing came in between."""
    first = _update(store, counter, 1, entries=3)
    _mark(store, first)
    seen = due_state_of(store.item(store.counters, keys.total_key(counter)) or {})
    late = reschedule_of(store.counters, seen, 3, RULE, NOW_MS)
    assert late is not None
    _update(store, counter, 2)

    with pytest.raises(ConditionFailed) as refused:
        store.dynamo().update(late)

    assert refused.value.item is not None
    again = reschedule_of(store.counters, due_state_of(refused.value.item), 3, RULE, NOW_MS)
    assert again is not None
    store.dynamo().update(again)
    assert _due(store, namespace, NOW_MS + 9 * HOUR_MS) == []
    assert store.totals().read(counter).value == 2


def test_p9_the_plain_update_costs_one_unit_with_the_counter_in_the_index(
    store: Store, counter: str
) -> None:
    """In the index or not: an update that leaves the mark alone does not touch the index."""
    before = _update(store, counter, 1, entries=2)
    _mark(store, before)
    dynamo = store.dynamo()

    for sequence in range(2, 7):
        step = FoldedChange(sequence, sequence, 1, 1, 1)
        dynamo.update(update_of(store.counters, counter, step, "s", NOW_MS))

    assert dynamo.meter.write_units == 5


def test_p9_a_mark_costs_two_units(store: Store, counter: str) -> None:
    mark = mark_of(store.counters, due_state_of(_update(store, counter, 1, 2)), RULE, NOW_MS)
    assert mark is not None
    dynamo = store.dynamo()

    dynamo.update(mark)

    assert dynamo.meter.write_units == 2


@pytest.mark.parametrize(("compacted", "units"), [(3, 2), (0, 3)], ids=["removed", "set anew"])
def test_p9_a_reschedule_costs_two_or_three_units(
    store: Store, counter: str, compacted: int, units: int
) -> None:
    """The total, and its place in the index: given up, or another one taken instead."""
    _mark(store, _update(store, counter, 1, entries=3))
    seen = due_state_of(store.item(store.counters, keys.total_key(counter)) or {})
    note = reschedule_of(store.counters, seen, compacted, RULE, NOW_MS)
    assert note is not None
    dynamo = store.dynamo()

    dynamo.update(note)

    assert dynamo.meter.write_units == units


def test_p9_the_run_book_costs_two_units_a_tick_and_one_a_batch(
    store: Store, namespace: str
) -> None:
    connection = replace(store.connection, meter=Meter())
    book = LastRunStore(connection)
    work = WorkDone(counters=10, merged=1000, write_units=2012.0, failed=1, trouble="x" * 500)

    ticked_at_ms = book.begin(namespace)
    book.add(namespace, work)
    book.end(namespace, ticked_at_ms, 10, 10)

    last = book.last(namespace)
    assert last is not None
    assert (last.due, last.sent, last.work) == (10, 10, work)
    assert connection.meter.write_units == 3
