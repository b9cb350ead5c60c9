"""Rankings of days on every engine: the sums of windows in order, and what that costs."""

from dataclasses import replace
from typing import Any

import pytest

from countledger.consumers.materializer import Materializer
from countledger.consumers.rankings import Rankings
from countledger.consumers.record import ShardName
from countledger.ledger.calendar import Per, window_of
from countledger.ledger.limits import DAY_MS
from countledger.ledger.operations import Put
from countledger.ledger.windows import WindowSetting, encode_settings
from tests.engines.store import Store
from tests.unit.consumers.test_window_writing import setting, timed
from tests.unit.ledger.clocks import NOW_MS, ManualClock


def _ranked(finest: Per = Per.DAY) -> WindowSetting:
    return replace(setting(finest), ranked=2)


def _materializer(store: Store, *settings: WindowSetting) -> Materializer:
    return replace(store.materializer(clock=ManualClock()), windows=lambda _counter: settings)


def _records(namespace: str, deltas: dict[str, int], first: int = 1) -> list[dict[str, Any]]:
    return [
        timed(10**24 + first + n, delta, counter=f"{namespace}:{name}")
        for n, (name, delta) in enumerate(deltas.items())
    ]


@pytest.mark.parametrize("finest", [Per.DAY, Per.HOUR])
def test_the_top_of_a_day_is_that_of_its_windows(store: Store, namespace: str, finest: Per) -> None:
    """Also after late events, which move their own day and no other."""
    one, shard = _ranked(finest), ShardName("day ranks", namespace)
    store.dynamo().put(Put(store.counters, encode_settings(namespace, [one])))
    made = _materializer(store, one)
    rankings = Rankings(store.process(ManualClock()))
    made.apply(_records(namespace, {"a": 5, "b": 9, "c": -2, "d": 5}), shard)
    late = timed(10**24 + 50, 100, counter=f"{namespace}:c", occurred_ms=NOW_MS - DAY_MS)
    made.apply([late, *_records(namespace, {"a": 7}, 60)], shard)
    yesterday = window_of(NOW_MS - DAY_MS, Per.DAY, one.calendar).name

    def top(day: str, limit: int = 10) -> list[tuple[int, str, object]]:
        found = rankings.top(namespace, limit, day=day)
        return [(each.rank, each.counter[len(namespace) + 1 :], each.value) for each in found]

    assert top("today") == [(1, "a", 12), (2, "b", 9), (3, "d", 5), (4, "c", -2)]
    assert top("today", 2) == [(1, "a", 12), (2, "b", 9)]
    assert top(yesterday) == [(1, "c", 100)]


@pytest.mark.parametrize(("finest", "more"), [(Per.DAY, [2, 3]), (Per.HOUR, [1, 2])])
def test_p9_a_ranked_day_costs_its_item_and_two_units_of_the_index(
    store: Store, namespace: str, finest: Per, more: list[float]
) -> None:
    """Beside what windows cost; where hours are counted the item is written in any case."""
    plain, ranked = setting(finest), _ranked(finest)
    spent: list[list[float]] = []
    for name, one in (("plain", plain), ("ranked", ranked)):
        made, shard = _materializer(store, one), ShardName("day ranks", namespace + name)
        costs: list[float] = []
        for first_sequence in (1, 10):
            before = made.connection.retrying.meter.write_units
            made.apply(_records(namespace + name, {"a": 5}, first_sequence), shard)
            costs.append(made.connection.retrying.meter.write_units - before)
        spent.append(costs)

    assert [after - before for before, after in zip(*spent, strict=True)] == more


def test_p9_the_top_of_a_day_costs_half_a_unit_for_each_partition(
    store: Store, namespace: str
) -> None:
    """And half of one for the setting."""
    one, shard = _ranked(), ShardName("day ranks", namespace)
    store.dynamo().put(Put(store.counters, encode_settings(namespace, [one])))
    _materializer(store, one).apply(_records(namespace, {"a": 5, "b": 9}), shard)
    dynamo = store.dynamo()

    Rankings(store.process(ManualClock(), dynamo=dynamo)).top(namespace, 10, day="today")

    assert dynamo.meter.read_units == 0.5 + 2 * 0.5
