"""The change log: a counter's entries, newest first, whatever their keys and their spread."""

from itertools import pairwise

import pytest

from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import CorruptItem
from countledger.ledger.exact import newest_first
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.operations import Put
from countledger.producers.event import Event
from tests.engines import in_memory
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.injection import calls

COUNT = 30


@pytest.fixture(params=["one", "many"])
def spread(request: pytest.FixtureRequest, store: Store) -> int:
    """A read makes requests for each prefix: on an engine 256 of them take long."""
    if request.param == "one":
        return 1
    return 256 if store.engine.name == in_memory.NAME else 16


@pytest.fixture
def filled(store: Store, namespace: str, counter: str, spread: int) -> str:
    """Thirty entries a second apart: without a key, with a bare one, and with a timed one."""
    store.namespaces().create(namespace, spread=spread)
    clock = HandClock()
    recorder = store.recorder(clock=clock)
    for number in range(COUNT):
        clock.move_ms(1000)
        timed = IdempotencyKey(f"timed {number}", to_datetime(clock.now_ms()))
        key = (None, f"bare {number}", timed)[number % 3]
        recorder.record(Event(counter, number + 1, key))
    return counter


def test_entries_come_newest_first(store: Store, filled: str, spread: int) -> None:
    entries = list(newest_first(store.dynamo(), store.ledger, filled, spread))

    assert [entry.delta for entry in entries] == list(range(COUNT, 0, -1))
    assert all(newer.at_ms > older.at_ms for newer, older in pairwise(entries))


def test_only_entries_from_before_a_time_come(store: Store, filled: str, spread: int) -> None:
    every = list(newest_first(store.dynamo(), store.ledger, filled, spread))
    before_ms = every[10].at_ms
    older = newest_first(store.dynamo(), store.ledger, filled, spread, before_ms=before_ms)

    assert list(older) == every[11:]


def test_entries_of_one_moment_all_come(store: Store, counter: str) -> None:
    """A standing clock: no entry hides another."""
    recorder = store.recorder()
    for delta in range(1, 11):
        recorder.record(Event(counter, delta, f"bare {delta}" if delta % 2 else None))

    entries = newest_first(store.dynamo(), store.ledger, counter, 1)

    assert sorted(int(entry.delta) for entry in entries) == list(range(1, 11))


def test_only_as_much_is_read_as_is_asked_for(store: Store, counter: str) -> None:
    list(store.recorder().record_many(Event(counter, 1) for _ in range(50)))
    dynamo = store.dynamo()

    with calls(dynamo.client) as made:
        assert len(list(newest_first(dynamo, store.ledger, counter, 1, 1))) == 1

    assert made == ["Query", "Query"]  # those with a time, and those of bare keys


def test_a_corrupt_entry_is_an_error(store: Store, counter: str) -> None:
    store.recorder().record(Event(counter, 1))
    (item,) = store.entry_items(counter)
    store.dynamo().put(Put(store.ledger, {**item, "origin": None}))

    with pytest.raises(CorruptItem, match="has no 'origin'"):
        list(newest_first(store.dynamo(), store.ledger, counter, 1))
