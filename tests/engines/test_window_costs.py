"""P9: what windows cost, in write units, for events on time and for late ones."""

from dataclasses import replace
from typing import Any

import pytest

from countledger.consumers.materializer import Materializer
from countledger.consumers.record import ShardName
from countledger.consumers.windows import WindowsReader
from countledger.ledger import keys
from countledger.ledger.calendar import Per
from countledger.ledger.clock import to_datetime
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.operations import Put
from countledger.ledger.windows import WindowSetting, cells_of, encode_settings
from tests.engines.store import Store
from tests.engines.test_costs import opened
from tests.unit.connections import connection_on
from tests.unit.consumers.test_window_writing import late_mix, setting, timed
from tests.unit.consumers.world import MemoryStream
from tests.unit.ledger.clocks import NOW_MS, ManualClock

RECORDS, COUNTERS = 1_000, 64


def _batch(namespace: str, lateness: list[int]) -> list[dict[str, Any]]:
    return [
        timed(
            10**24 + n,
            1 + n % 9,
            counter=f"{namespace}:{n % COUNTERS}",
            occurred_ms=NOW_MS - late_ms if late_ms else None,
        )
        for n, late_ms in enumerate(lateness)
    ]


def _materializer(store: Store, shard: ShardName, *settings: WindowSetting) -> Materializer:
    made = opened(store, store.materializer(clock=ManualClock()), shard)
    return replace(made, windows=lambda _counter: settings)


@pytest.mark.parametrize(
    ("finest", "items"), [(None, 0), (Per.DAY, 1), (Per.HOUR, 2), (Per.MINUTE, 3)]
)
def test_p9_events_on_time_cost_one_unit_for_each_window_item_of_a_counter(
    store: Store, namespace: str, finest: Per | None, items: int
) -> None:
    """With the entry itself 1.065, 1.129, 1.193 and 1.257 for each event; off they cost nothing."""
    shard = ShardName("window costs", namespace)
    settings = [] if finest is None else [setting(finest)]
    made = _materializer(store, shard, *settings)

    outcome = made.apply(_batch(namespace, [0] * RECORDS), shard)

    spent = made.connection.retrying.meter.write_units
    assert spent == COUNTERS * (1 + items) + 1
    assert outcome.windows == COUNTERS * items
    assert 1 + spent / RECORDS <= (1.14, 1.14, 1.20, 1.27)[items]


def test_p9_late_events_cost_one_unit_for_each_further_item_that_they_touch(
    store: Store, namespace: str
) -> None:
    """(records + counters + touched items + 1) / records: 1.35 for the mix of a real system."""
    shard, one = ShardName("window costs", namespace), setting(Per.HOUR)
    lateness = late_mix(RECORDS)
    made = _materializer(store, shard, one)

    made.apply(_batch(namespace, lateness), shard)

    touched = {
        (n % COUNTERS, cell.item)
        for n, late_ms in enumerate(lateness)
        for cell in cells_of(one, NOW_MS, NOW_MS - late_ms)
    }
    assert made.connection.retrying.meter.write_units == COUNTERS + len(touched) + 1
    assert 1.3 < 1 + made.connection.retrying.meter.write_units / RECORDS < 1.4


def _stored_setting(store: Store, namespace: str, one: WindowSetting) -> None:
    item = {**encode_settings(namespace, [one]), **keys.windows_key(namespace)}
    store.dynamo().put(Put(store.counters, item))


def _reader(store: Store) -> WindowsReader:
    """A reader that knows the setting, and how far the stream has been handled."""
    return WindowsReader(
        connection_on(
            store.dynamo(),
            clients={"dynamodbstreams": MemoryStream()},
            counters_table=store.counters,
            ledger_stream_arn=store.stream_arn,
        )
    )


@pytest.mark.parametrize(("per", "days", "at_most"), [("hour", 30, 5.0), ("day", 366, 2.0)])
def test_p9_windows_are_read_by_one_query_of_few_units(
    store: Store, namespace: str, per: str, days: int, at_most: float
) -> None:
    """Every window has events, of sums of six digits; 30 days of hours, a year of days."""
    shard, one = (
        ShardName("window costs", namespace),
        replace(setting(Per(per)), keep_ms=90 * DAY_MS),
    )
    _stored_setting(store, namespace, one)
    made, counter = _materializer(store, shard, one), f"{namespace}:views/front-page"
    step_ms = {"hour": HOUR_MS, "day": DAY_MS}[per]
    records = [
        timed(10**24 + n, 10**5 + n, counter=counter, occurred_ms=NOW_MS - n * step_ms)
        for n in range(days * DAY_MS // step_ms)
    ]
    made.apply(records, shard)
    reader = _reader(store)
    since = to_datetime(NOW_MS - (days - 1) * DAY_MS)
    reader.read(counter, per, since)
    before = reader.connection.retrying.meter.read_units

    found = reader.read(counter, per, since)

    assert sum(one.events for one in found) >= (days - 1) * DAY_MS // step_ms
    assert reader.connection.retrying.meter.read_units - before <= at_most


def test_p9_an_item_with_all_its_cells_costs_one_unit(store: Store, namespace: str) -> None:
    """A month of 31 days with sums of twelve digits, and an item of 30 minutes."""
    shard, one = ShardName("window costs", namespace), setting(Per.MINUTE)
    made = _materializer(store, shard, one)
    counter = f"{namespace}:{'x' * 40}"
    lateness = [n * 60_000 for n in range(30)] + [n * 86_400_000 for n in range(31)]
    for n, late_ms in enumerate(lateness):
        record = timed(10**24 + n, 10**11 + n, counter=counter, occurred_ms=NOW_MS - late_ms)
        made.apply([record], shard)
    before = made.connection.retrying.meter.write_units

    made.apply([timed(10**24 + 1_000, 10**11, counter=counter)], shard)

    assert made.connection.retrying.meter.write_units - before == 1 + 3 + 1
