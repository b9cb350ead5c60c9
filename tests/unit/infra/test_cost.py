"""The bill of a month against cases calculated by hand, and the pace that progress shows."""

import json
import sys
from dataclasses import replace
from inspect import getsource
from logging import StreamHandler
from types import SimpleNamespace
from typing import Any

import pytest
from aws_lambda_powertools import Logger, Metrics

from countledger.compaction.report import Retire
from countledger.consumers import alert_handler
from countledger.consumers.handler import _log_handled, _report
from countledger.consumers.materializer import BatchOutcome
from countledger.consumers.progress import ShardProgress
from countledger.consumers.record import ShardName
from countledger.infra.cost import (
    BATCH_LOG_BYTES,
    BY_DELETES,
    BY_TRANSACTIONS,
    ENTRY_LOG_BYTES,
    RELEASER_METRICS,
    STREAM_METRICS,
    Pace,
    Workload,
    alarm_metrics,
    as_measured,
    batches_of,
    bill,
    dollars,
    pace_of,
    price_of,
    savings,
)
from countledger.infra.template import load_template
from countledger.ledger.errors import BadSetting
from countledger.ledger.ids import id_of_key
from countledger.ledger.keys import entry_key
from countledger.ledger.limits import HOUR_MS
from countledger.producers.strict import release_handler

# A million entries in a month of thirty days.
_MILLION_A_MONTH = 1_000_000 / 30


def _dollars(load: Workload) -> dict[str, float]:
    return {item.what: item.dollars for item in bill(load)}


def test_at_usual_rates_a_batch_is_an_entry() -> None:
    """A million a month is one in 2.6 s over four shards: hardly two meet within a second."""
    found = _dollars(Workload(events_per_day=_MILLION_A_MONTH))

    batches = 1 / (1 + 1e6 / 30 / 86_400 / 4)
    assert found["entries"] == found["totals"] == pytest.approx(0.625)
    assert found["progress of the shards"] == pytest.approx(batches * 0.625)
    # The progress is read, and the number of the rules for each evaluation.
    assert found["reads of the functions"] == pytest.approx(2 * batches * 0.125, rel=0.05)
    assert found["compaction"] == found["reads of totals"] == 0
    assert found["storage"] == pytest.approx(0.25 * 0.25)
    # 34.3 ms of a whole processor, which comes with 1,769 MB, and an end of each window.
    invocations = batches * 1e6 + 4 * 30 * 96
    busy_s = (batches * 34 + 0.335) * 1_000
    assert found["materializer"] == pytest.approx(
        invocations * 0.2e-6 + busy_s * 1769 / 1024 * 0.0000133334
    )
    assert found["evaluator"] == pytest.approx(batches * (0.2 + 0.01 * 13.3334), rel=0.05)
    assert found["logs"] == pytest.approx(
        0.5 * (invocations * 1_900 + 1e6 * 36 + batches * 1e6 * 1_500) / 1e9, rel=0.05
    )


def test_a_stack_without_entries_costs_its_alarms_dashboard_and_metrics() -> None:
    alarms = alarm_metrics(load_template())
    idle, busy = Workload(events_per_day=0.0), Workload(events_per_day=1.0)
    scheduled = replace(busy, retire=Retire.DELETE)

    assert {name: dollars for name, dollars in _dollars(idle).items() if dollars} == {
        "alarms": pytest.approx(alarms * 0.1),
        "dashboard": 3.0,
        "custom metrics": pytest.approx(3 * 0.3),
        "releaser of holds": pytest.approx(43_200 * (0.2e-6 + 0.15 * 0.0000133334) + 0.0432),
    }
    assert _dollars(busy)["custom metrics"] == pytest.approx((3 + 28) * 0.3)
    assert _dollars(scheduled)["custom metrics"] == pytest.approx((3 + 28 + 7) * 0.3)
    # With what its entries cost, as docs/costs.md says.
    assert _dollars(replace(idle, probe=True))["probe"] == pytest.approx(1.41, abs=0.01)


@pytest.mark.parametrize(
    ("counters", "window_s", "updates", "batches"),
    [
        (None, 1, 1.0, 1 / 26),
        (1, 1, 1 / 101, 1 / 101),  # one counter is in one shard
        (4, 1, 1 / 26, 1 / 26),
        (400, 0, 1.0, 1.0),
        (4, 60, 1 / 1_000, 1 / 1_000),
    ],
)
def test_a_batch_is_what_a_shard_gathers_in_the_window(
    counters: int | None, window_s: float, updates: float, batches: float
) -> None:
    """100 entries a second over four shards; at most 1,000 in a batch."""
    assert batches_of(100, counters, window_s) == pytest.approx((updates, batches))


def test_a_longer_batching_window_is_advised_where_it_saves_most() -> None:
    """Where events are coalesced already, and few counters share the entries."""
    load = Workload(events_per_day=8_640_000, counters=8, events_per_entry=10)
    first, *_ = savings(load)

    assert first.setting.startswith("BatchingWindowSeconds=60")
    assert first.dollars == pytest.approx(dollars(load) - dollars(replace(load, batching_s=60)))
    assert all("Batching" not in one.setting for one in savings(replace(load, batching_s=60)))


def test_what_was_measured_stays_what_it_was_and_moves_with_a_setting() -> None:
    """0.2 updates and 0.05 batches for an entry, in place of what the model says."""
    plain = Workload(events_per_day=1e6, counters=64)
    load = as_measured(plain, Pace(1e6, 0.25, 0.2))
    longer = replace(load, batching_s=10.0)

    assert load.batches == pytest.approx((0.2, 0.05))
    model, other = plain.batches, replace(plain, batching_s=10.0).batches
    assert longer.batches == pytest.approx(
        (0.2 * other.updates / model.updates, 0.05 * other.batches / model.batches)
    )


@pytest.mark.parametrize("pace", [Pace(1e6, 0.25, 0.0), Pace(1e6, 0.0, 0.0), Pace(1e6, 0.2, 0.2)])
def test_what_was_measured_of_quarantined_entries_is_no_error(pace: Pace) -> None:
    """No total was updated, or an engine reported no units."""
    load = as_measured(Workload(events_per_day=1e6), pace)

    assert load.batches.batches == pytest.approx(0.001)
    assert dollars(load) > 0


def test_provisioned_capacity_costs_less_where_it_is_used() -> None:
    """An hour of a unit is 3,600 units: at 29 % of average use it costs what units on demand do."""
    on_demand = _dollars(Workload(events_per_day=1e6, reads_per_day=1e6))
    even = _dollars(Workload(events_per_day=1e6, reads_per_day=1e6, average_use=0.2889))
    half = _dollars(Workload(events_per_day=1e6, reads_per_day=1e6, average_use=0.5778))

    for what in ("entries", "totals", "progress of the shards", "reads of totals"):
        assert even[what] == pytest.approx(on_demand[what], rel=0.001)
        assert half[what] == pytest.approx(on_demand[what] / 2, rel=0.001)
    assert even["materializer"] == on_demand["materializer"]


def test_memory_costs_only_above_a_whole_processor() -> None:
    whole, small, twice = (
        _dollars(Workload(events_per_day=1e6, memory_mb=memory))["materializer"]
        for memory in (1_769, 512, 3_538)
    )

    assert small == whole
    assert 1.5 * whole < twice < 2 * whole  # a request costs what it does


def test_every_region_writes_all_of_it_again() -> None:
    load = Workload(events_per_day=1e6, reads_per_day=1e6, retire=Retire.DELETE)
    one, three = _dollars(load), _dollars(replace(load, regions=3))

    for what in ("entries", "totals", "compaction", "storage", "materializer", "evaluator", "logs"):
        assert three[what] == pytest.approx(3 * one[what])
    assert three["reads of totals"] == one["reads of totals"] == pytest.approx(15 * 0.125)


@pytest.mark.parametrize("regions", [2, 3])
def test_a_change_over_regions_is_written_in_each_of_them(regions: int) -> None:
    load = Workload(
        events_per_day=1e6,
        strict_changes_per_day=_MILLION_A_MONTH,
        strict_regions=regions,
        average_use=0.5,
    )

    assert _dollars(load)["strict over regions"] == pytest.approx(regions * 0.625)
    assert "strict over regions" not in _dollars(Workload(events_per_day=1e6))


@pytest.mark.parametrize(
    ("requests", "gateway"), [(1e6, 1.0), (300e6, 300.0), (400e6, 300.0 + 100 * 0.9)]
)
def test_requests_to_the_http_api_cost_the_gateway_and_an_invocation_each(
    requests: float, gateway: float
) -> None:
    """An invocation is assumed to take 30 ms at 1,024 MB: $0.60 for a million."""
    load = Workload(events_per_day=1e6, http_requests_per_day=requests / 30)
    invocations = requests * (0.2 / 1e6 + 0.03 * 0.0000133334)

    assert _dollars(load)["HTTP API"] == pytest.approx(gateway + invocations)
    assert "HTTP API" not in _dollars(Workload(events_per_day=1e6))


@pytest.mark.parametrize("items", [1, 2, 3])
def test_windows_cost_a_unit_for_each_item_and_coarser_ones_save(items: int) -> None:
    """As many items of each kind as totals."""
    load = Workload(events_per_day=1e6, counters=64, window_items=items)
    found = _dollars(load)

    assert found["windows"] == pytest.approx(items * found["totals"])
    assert _dollars(replace(load, window_items=0))["windows"] == 0
    by_day = [one for one in savings(load) if one.setting.startswith("windows enable --by day")]
    assert len(by_day) == (items > 1)
    assert all(one.dollars > (items - 1) * found["totals"] for one in by_day)


def test_compaction_costs_only_where_a_schedule_is() -> None:
    load = Workload(events_per_day=_MILLION_A_MONTH)
    found = _dollars(replace(load, retire=Retire.TRANSACTION))

    assert _dollars(load)["compaction"] == 0
    assert found["compaction"] == pytest.approx(2.06 * 0.625)
    assert found["storage"] == pytest.approx(1.5 / 30 * 0.25 * 0.25)


def test_the_setting_that_saves_most_comes_first() -> None:
    load = Workload(events_per_day=1e6, retire=Retire.TRANSACTION)
    first, *others = savings(load)

    assert "coalesce" in first.setting
    assert first.dollars == pytest.approx(
        dollars(load) - dollars(replace(load, events_per_entry=10.0))
    )
    assert any(
        "--retire delete" in one.setting and one.dollars == pytest.approx(30 * 0.625)
        for one in others
    )
    assert savings(Workload(events_per_day=0.0)) == []
    best = Workload(events_per_day=1e6, events_per_entry=20, batching_s=60.0)
    assert savings(best) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"events_per_day": -1.0},
        {"events_per_day": float("nan")},
        {"events_per_day": float("inf")},
        {"events_per_day": 1.0, "events_per_entry": 0.5},
        {"events_per_day": 1.0, "regions": 0},
        {"events_per_day": 1.0, "reads_per_day": -1.0},
        {"events_per_day": 1.0, "http_requests_per_day": -1.0},
        {"events_per_day": 1.0, "strict_regions": 1},
        {"events_per_day": 1.0, "batching_s": 301.0},
    ],
    ids=str,
)
def test_p8_what_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadSetting, match="between"):
        Workload(**wrong)  # type: ignore[arg-type]


NOW_MS = 100 * HOUR_MS


def _progress(shard: str, records: int) -> ShardProgress:
    return ShardProgress(shard, "1", NOW_MS, 0, records, records * 2 // 25, records / 10)


def _begun(**hours_ago: float) -> dict[str, int]:
    return {shard: NOW_MS - int(hours * HOUR_MS) for shard, hours in hours_ago.items()}


def test_the_pace_is_told_by_the_shards_that_the_stream_shows_whole() -> None:
    shards = [_progress("cut", 10**9), *(_progress(name, 600) for name in "abcd")]

    pace = pace_of(shards, _begun(cut=24, a=12, b=11.9, c=6, d=5.9), NOW_MS)

    assert pace is not None
    assert pace.entries_per_day == pytest.approx(2_400 * 2)
    assert pace.total_units == pytest.approx(0.1)
    assert pace.updates == pytest.approx(0.08)


def test_a_young_stack_tells_its_pace_by_one_shard() -> None:
    pace = pace_of([_progress("a", 100)], _begun(a=2), NOW_MS)

    assert pace is not None
    assert pace.entries_per_day == pytest.approx(1_200)


@pytest.mark.parametrize("begun", [_begun(), _begun(a=0.5), _begun(a=23.5), _begun(b=5)], ids=str)
def test_too_little_tells_no_pace(begun: dict[str, int]) -> None:
    assert pace_of([_progress("a", 100)], begun, NOW_MS) is None
    assert pace_of([], begun, NOW_MS) is None


@pytest.mark.parametrize("way", list(Retire))
def test_of_full_batches_the_bill_is_that_of_the_page_on_performance(way: Retire) -> None:
    """64 counters for each shard, and 1,000 records in each batch."""
    load = Workload(events_per_day=4_000 * 86_400, batching_s=300, retire=way)
    load = replace(load, counters=64 * load.shards)
    found = _dollars(load)
    paid = ("entries", "totals", "progress of the shards", "compaction", "materializer")

    units = {Retire.DELETE: BY_DELETES, Retire.TRANSACTION: BY_TRANSACTIONS}[way]
    million = sum(found[what] for what in paid) / load.entries_a_month * 1e6
    assert million == pytest.approx(price_of("record", 1.0).compacted(units), rel=0.001)


def test_the_functions_log_and_measure_what_the_bill_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Their own lines; the rest are three lines of Lambda's and 26 bytes for each line."""
    sizes = [_logged(entries, capsys) for entries in (1, 101)]
    lines, lambda_ = sizes[0].count("\n"), 370

    assert len(sizes[0]) + lambda_ + 26 * (lines + 3) == pytest.approx(BATCH_LOG_BYTES, rel=0.1)
    assert (len(sizes[1]) - len(sizes[0])) / 100 == pytest.approx(ENTRY_LOG_BYTES, rel=0.05)
    told = [json.loads(line) for line in sizes[0].splitlines()]
    (metrics,) = [one["_aws"]["CloudWatchMetrics"][0]["Metrics"] for one in told if "_aws" in one]
    evaluator = getsource(alert_handler).count(".add_metric(")
    assert len(metrics) + evaluator + 2 * 6 == STREAM_METRICS
    assert getsource(release_handler).count(".add_metric(") == RELEASER_METRICS


def _logged(entries: int, capsys: pytest.CaptureFixture[str]) -> str:
    """What the materializer logs of a batch with so many entries, each of another counter."""
    logger = Logger("shop-materializer", logger_handler=StreamHandler(sys.stdout))
    metrics = Metrics(namespace="countledger", service="shop-materializer")
    parts: Any = SimpleNamespace(logger=logger, metrics=metrics)
    shard = ShardName("2026-11-28T19:00:00.000", "shardId-00000001764356400000-1a2b3c4d")
    context: Any = SimpleNamespace(aws_request_id="0b0e7b5e-5b0f-4f0e-8f0e-0b0e7b5e5b0f")
    outcome = BatchOutcome(entries)
    outcome.counters, outcome.lag_ms = entries, 1_234
    names = [entry_key(id_of_key(str(number)), 1) for number in range(entries)]
    capsys.readouterr()

    _log_handled(logger, names, shard, context)
    _report(parts, outcome, shard, context, replaced=0)

    return capsys.readouterr().out
