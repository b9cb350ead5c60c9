"""The bill of a month against cases reckoned by hand, and the pace that progress tells."""

import pytest

from countledger.compaction.report import Retire
from countledger.consumers.progress import ShardProgress
from countledger.infra.cost import (
    BY_DELETES,
    BY_TRANSACTIONS,
    Workload,
    bill,
    dollars,
    pace_of,
    price_of,
    savings,
)
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import HOUR_MS

# A million entries in a month of thirty days.
_MILLION_A_MONTH = 1_000_000 / 30


def _dollars(load: Workload) -> dict[str, float]:
    return {item.what: item.dollars for item in bill(load)}


def test_a_million_events_cost_what_their_units_cost() -> None:
    found = _dollars(Workload(events_per_day=_MILLION_A_MONTH))

    assert found["entries"] == pytest.approx(0.625)
    assert found["totals"] == pytest.approx(0.065 * 0.625)
    assert found["compaction"] == pytest.approx(2.06 * 0.625)
    assert found["reads of totals"] == 0
    assert found["storage"] == pytest.approx(1.5 / 30 * 0.25 * 0.25)
    # 1,000 invocations of 0.06 s of a whole processor, which comes with 1,769 MB.
    assert found["materializer"] == pytest.approx(0.0002 + 60 * 1769 / 1024 * 0.0000133334)


def test_provisioned_capacity_costs_less_where_it_is_used() -> None:
    """An hour of a unit is 3,600 units: at 29 % of average use it costs what units on demand do."""
    on_demand = _dollars(Workload(events_per_day=1e6, reads_per_day=1e6))
    even = _dollars(Workload(events_per_day=1e6, reads_per_day=1e6, average_use=0.2889))
    half = _dollars(Workload(events_per_day=1e6, reads_per_day=1e6, average_use=0.5778))

    for what in ("entries", "totals", "compaction", "reads of totals"):
        assert even[what] == pytest.approx(on_demand[what], rel=0.001)
        assert half[what] == pytest.approx(on_demand[what] / 2, rel=0.001)
    assert even["materializer"] == on_demand["materializer"]


def test_memory_costs_only_above_a_whole_processor() -> None:
    whole, small, twice = (
        _dollars(Workload(events_per_day=1e6, memory_mb=memory))["materializer"]
        for memory in (1_769, 512, 3_538)
    )

    assert small == whole
    assert 1.8 * whole < twice < 2 * whole  # a request costs what it does


def test_every_region_writes_all_of_it_again() -> None:
    one = _dollars(Workload(events_per_day=1e6, reads_per_day=1e6))
    three = _dollars(Workload(events_per_day=1e6, reads_per_day=1e6, regions=3))

    for what in ("entries", "totals", "compaction", "storage", "materializer"):
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
    """1,000 entries of 64 counters touch 64 items of each kind."""
    load = Workload(events_per_day=_MILLION_A_MONTH, window_items=items)

    assert _dollars(load)["windows"] == pytest.approx(items * 0.064 * 0.625)
    assert _dollars(Workload(events_per_day=_MILLION_A_MONTH))["windows"] == 0
    by_day = [one for one in savings(load) if one.setting.startswith("windows enable --by day")]
    assert [one.dollars for one in by_day] == [
        pytest.approx((items - 1) * 0.064 * 0.625) for _ in range(items > 1)
    ]


def test_without_compaction_entries_stay() -> None:
    found = _dollars(Workload(events_per_day=_MILLION_A_MONTH, retire=None))

    assert found["compaction"] == 0
    assert found["storage"] == pytest.approx(0.25 * 0.25)


def test_the_setting_that_saves_most_comes_first() -> None:
    load = Workload(events_per_day=_MILLION_A_MONTH)
    first, *others = savings(load)

    assert "coalesce" in first.setting
    assert first.dollars == pytest.approx(0.9 * dollars(load))
    assert any(
        "--retire delete" in one.setting and one.dollars == pytest.approx(0.625) for one in others
    )
    assert savings(Workload(events_per_day=0.0)) == []
    best = Workload(events_per_day=1e6, events_per_entry=20, retire=None)
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
    ],
    ids=str,
)
def test_p8_what_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadSetting, match="between"):
        Workload(**wrong)  # type: ignore[arg-type]


NOW_MS = 100 * HOUR_MS


def _progress(shard: str, records: int) -> ShardProgress:
    return ShardProgress(shard, "1", NOW_MS, 0, records, 0, records / 10)


def _begun(**hours_ago: float) -> dict[str, int]:
    return {shard: NOW_MS - int(hours * HOUR_MS) for shard, hours in hours_ago.items()}


def test_the_pace_is_told_by_the_shards_that_the_stream_shows_whole() -> None:
    shards = [_progress("cut", 10**9), *(_progress(name, 600) for name in "abcd")]

    pace = pace_of(shards, _begun(cut=24, a=12, b=11.9, c=6, d=5.9), NOW_MS)

    assert pace is not None
    assert pace.entries_per_day == pytest.approx(2_400 * 2)
    assert pace.total_units == pytest.approx(0.1)


def test_a_young_stack_tells_its_pace_by_one_shard() -> None:
    pace = pace_of([_progress("a", 100)], _begun(a=2), NOW_MS)

    assert pace is not None
    assert pace.entries_per_day == pytest.approx(1_200)


@pytest.mark.parametrize("begun", [_begun(), _begun(a=0.5), _begun(a=23.5), _begun(b=5)], ids=str)
def test_too_little_tells_no_pace(begun: dict[str, int]) -> None:
    assert pace_of([_progress("a", 100)], begun, NOW_MS) is None
    assert pace_of([], begun, NOW_MS) is None


@pytest.mark.parametrize("way", list(Retire))
def test_the_bill_is_that_of_the_page_on_performance(way: Retire) -> None:
    units = {Retire.DELETE: BY_DELETES, Retire.TRANSACTION: BY_TRANSACTIONS}[way]
    found = _dollars(Workload(events_per_day=_MILLION_A_MONTH, retire=way))

    assert sum(found.values()) - found["storage"] == pytest.approx(
        price_of("record", 1.0).compacted(units)
    )
