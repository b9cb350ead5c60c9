"""Which windows an entry belongs to, and how the items of windows are read."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.attributes import Item
from countledger.ledger.calendar import Per, rules_of, window_of
from countledger.ledger.errors import BadSetting, CorruptItem
from countledger.ledger.keys import window_key
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.ledger.windows import (
    WindowSetting,
    business_time_ms,
    cells_of,
    decode_settings,
    encode_settings,
    slots_of,
)
from tests.unit.ledger.clocks import ms
from tests.unit.ledger.window_settings import window_setting


def setting(zone: str = "UTC", finest: Per = Per.MINUTE, **changes: Any) -> WindowSetting:  # noqa: ANN401 - any field
    """Windows since 2026."""
    known = {"id": "s1", "finest": finest, "rules_version": "2026a", "keep_ms": 90 * DAY_MS}
    return window_setting(zone, **known | {"from_ms": ms("2026-01-01")} | changes)


def places(one: WindowSetting, at: str, occurred_at: str | None = None) -> list[str]:
    """The cells of an entry, as `part:cell`."""
    occurred_at_ms = None if occurred_at is None else ms(occurred_at)
    cells = cells_of(one, ms(at), occurred_at_ms)
    return [f"{cell.item}:{cell.name}" for cell in cells]


@pytest.mark.parametrize(
    ("zone", "at", "expected"),
    [
        ("UTC", "2026-11-22T13:05:59.999", "2026-11:22 2026-11-22:13 2026-11-22T13:00:05"),
        ("Europe/Berlin", "2026-11-30T23:30", "2026-12:01 2026-12-01:00 2026-11-30T23:30:30"),
        # The hour that comes twice, and the day's last hour after it.
        ("Europe/Berlin", "2026-10-25T00:30", "2026-10:25 2026-10-25:02 2026-10-25T00:30:30"),
        ("Europe/Berlin", "2026-10-25T01:30", "2026-10:25 2026-10-25:03 2026-10-25T01:30:30"),
        ("Europe/Berlin", "2026-10-25T22:59", "2026-10:25 2026-10-25:24 2026-10-25T22:30:59"),
        # The hour that does not exist.
        ("Europe/Berlin", "2026-03-29T01:00", "2026-03:29 2026-03-29:02 2026-03-29T01:00:00"),
        ("Asia/Kolkata", "2026-11-22T18:29", "2026-11:22 2026-11-22:23 2026-11-22T18:00:29"),
        ("Asia/Kolkata", "2026-11-22T18:30", "2026-11:23 2026-11-23:00 2026-11-22T18:30:30"),
        ("Asia/Kathmandu", "2026-11-22T18:14", "2026-11:22 2026-11-22:23 2026-11-22T18:00:14"),
        ("Asia/Kathmandu", "2026-11-22T18:15", "2026-11:23 2026-11-23:00 2026-11-22T18:00:15"),
        # Lord Howe goes back by half an hour: 1:30 comes twice, in hours of their own.
        ("Australia/Lord_Howe", "2026-04-04T14:59", "2026-04:05 2026-04-05:01 2026-04-04T14:30:59"),
        ("Australia/Lord_Howe", "2026-04-04T15:29", "2026-04:05 2026-04-05:02 2026-04-04T15:00:29"),
        ("Australia/Lord_Howe", "2026-04-04T15:30", "2026-04:05 2026-04-05:03 2026-04-04T15:30:30"),
        # Troll's clocks go back by two hours: a day of 26 hours.
        ("Antarctica/Troll", "2026-10-25T23:59", "2026-10:25 2026-10-25:25 2026-10-25T23:30:59"),
    ],
)
def test_cells_of_an_entry(zone: str, at: str, expected: str) -> None:
    month, day, hour = expected.split()

    assert places(setting(zone), at) == [f"month#{month}", f"day#{day}", f"hour#{hour}"]


@pytest.mark.parametrize(
    ("zone", "occurred_at", "expected"),
    [
        # Midnight does not exist; and a date that was left out.
        ("America/Sao_Paulo", "2018-11-04T03:00", ["month#2018-11:04", "day#2018-11-04:00"]),
        ("Pacific/Apia", "2011-12-30T09:59", ["month#2011-12:29", "day#2011-12-29:23"]),
        ("Pacific/Apia", "2011-12-30T10:00", ["month#2011-12:31", "day#2011-12-31:00"]),
    ],
)
def test_business_time_decides(zone: str, occurred_at: str, expected: list[str]) -> None:
    kept = setting(zone, Per.HOUR, keep_ms=3_660 * DAY_MS)
    found = places(replace(kept, from_ms=0), "2020-01-01", occurred_at)

    assert found == expected


@pytest.mark.parametrize(("finest", "count"), [(Per.DAY, 1), (Per.HOUR, 2), (Per.MINUTE, 3)])
def test_coarser_windows_come_with_finer_ones(finest: Per, count: int) -> None:
    assert len(places(setting(finest=finest), "2026-11-22")) == count


@pytest.mark.parametrize(
    ("occurred_at", "lateness_ms", "expected"),
    [
        (None, None, "2026-11-22T12:00"),
        ("2026-11-22T12:01", None, "2026-11-22T12:01"),
        ("2026-11-22T12:01:00.001", None, "2026-11-22T12:00"),  # ahead of what clocks may differ
        ("1970-01-01", None, "1970-01-01"),
        ("1969-12-31T23:59:59.999", None, "2026-11-22T12:00"),
        ("2026-11-22T11:00", HOUR_MS, "2026-11-22T11:00"),
        ("2026-11-22T10:59:59.999", HOUR_MS, "2026-11-22T12:00"),
    ],
)
def test_business_time_that_is_not_accepted_counts_at_its_recording(
    occurred_at: str | None, lateness_ms: int | None, expected: str
) -> None:
    one = setting(max_lateness_ms=lateness_ms)
    occurred_at_ms = None if occurred_at is None else ms(occurred_at)

    assert business_time_ms(one, ms("2026-11-22T12:00"), occurred_at_ms) == ms(expected)


def test_what_is_later_than_minutes_and_hours_are_kept_counts_in_day_and_month() -> None:
    """The whole day is kept equally long, so the chain of sums holds at every moment."""
    one = setting("Europe/Berlin", keep_ms=DAY_MS)
    last = places(one, "2026-11-23T23:00", "2026-11-22T00:00")
    late = places(one, "2026-11-23T23:00:00.001", "2026-11-22T22:59:59")

    assert last == ["month#2026-11:22", "day#2026-11-22:01", "hour#2026-11-22T00:00:00"]
    assert late == ["month#2026-11:22"]


def test_an_item_expires_after_the_last_write_into_it() -> None:
    one = setting("Asia/Kathmandu")
    month, day, hour = cells_of(one, ms("2026-11-22T18:14"))
    end_ms = window_of(ms("2026-11-22T18:14"), Per.DAY, one.calendar).end_ms

    assert month.expires_at is None
    assert day.expires_at is not None
    # Created at the last moment, sent until the horizon, replicated, delivered by the stream for
    # 30 hours, written by an invocation that pauses.
    late_ms = DAY_MS + 15 * MINUTE_MS + MINUTE_MS + 15 * MINUTE_MS + 30 * HOUR_MS + 36 * MINUTE_MS
    assert day.expires_at == (end_ms + 90 * DAY_MS + late_ms) // SECOND_MS
    # The half hour is of two days, and is kept as long as the later one.
    assert hour.expires_at == day.expires_at + DAY_MS // SECOND_MS
    assert cells_of(one, ms("2026-11-22T18:15"))[2].expires_at == hour.expires_at


def test_each_entry_belongs_to_the_setting_of_its_own_time() -> None:
    first = setting(ended_ms=ms("2026-06-01"))
    second = setting("Asia/Kolkata", id="s2", from_ms=ms("2026-06-01"))

    def holding(at_ms: int) -> list[bool]:
        return [one.holds_at(at_ms) for one in (first, second)]

    assert holding(ms("2026-01-01") - 1) == [False, False]
    assert holding(ms("2026-06-01") - 1) == [True, False]
    assert holding(ms("2026-06-01")) == [False, True]


def stored(one: WindowSetting, *entries: tuple[str, int]) -> list[Item]:
    """The items that entries make, as the materializer writes them."""
    items: dict[str, Item] = {}
    for at, delta in entries:
        for cell in cells_of(one, ms(at)):
            item = items.setdefault(cell.item, window_key("a:b", "x", cell.item))
            item[f"s{cell.name}"] = item.get(f"s{cell.name}", 0) + delta
            item[f"n{cell.name}"] = item.get(f"n{cell.name}", 0) + 1
    return [items[part] for part in sorted(items)]


def test_items_are_read_as_windows() -> None:
    one = setting("Europe/Berlin")
    day, hour, month = (
        stored(one, ("2026-10-25T00:30", 5), ("2026-10-25T01:30", 7), ("2026-10-25T01:31", 1))[0:1]
        + stored(one, ("2026-10-25T01:30", 7), ("2026-10-25T01:31", 1))[1:]
    )

    assert [(s.window.name, s.sum, s.events) for s in slots_of(one, day)] == [
        ("2026-10-25T02+02:00", 5, 1),
        ("2026-10-25T02+01:00", 8, 2),
    ]
    assert [(s.window.name, s.sum) for s in slots_of(one, hour)] == [
        ("2026-10-25T01:30Z", 7),
        ("2026-10-25T01:31Z", 1),
    ]
    assert [(s.window.name, s.sum) for s in slots_of(one, month)] == [("2026-10-25", 8)]


@given(
    at_ms=st.integers(ms("1980-01-01"), ms("2037-01-01")),
    zone=st.sampled_from(
        ("UTC", "Asia/Kathmandu", "Australia/Lord_Howe", "America/Havana", "Antarctica/Troll")
    ),
)
def test_each_cell_is_read_as_the_window_of_its_moment(at_ms: int, zone: str) -> None:
    one = setting(zone)
    for cell, per in zip(cells_of(one, at_ms), (Per.DAY, Per.HOUR, Per.MINUTE), strict=True):
        item = window_key("a:b", "x", cell.item) | {f"s{cell.name}": 1, f"n{cell.name}": 1}
        (slot,) = slots_of(one, item)
        assert slot.window == window_of(at_ms, per, one.calendar)


@pytest.mark.parametrize(
    "change",
    [
        {"part": "w#s1"},
        {"part": "w#s1#month#2026-13"},
        {"part": "w#s1#year#2026"},
        {"s31": 1, "n31": 1},  # November has 30 days
        {"s01": "7"},
        {"n01": None},
        {"s01": None},
    ],
)
def test_items_that_cannot_be_read_are_named(change: Item) -> None:
    item: Item = {"counter": "a:b", "part": "w#s1#month#2026-11", "s01": 7, "n01": 1} | change

    with pytest.raises(CorruptItem, match="a:b"):
        slots_of(setting(), {name: value for name, value in item.items() if value is not None})


def test_settings_are_stored_with_the_rules_of_their_zone() -> None:
    """What the installed `tzdata` says later does not matter."""
    one = setting("Europe/Paris", rules=rules_of("Asia/Kolkata"), max_lateness_ms=HOUR_MS)
    other = setting("Europe/Berlin", Per.DAY, id="s2", ended_ms=ms("2027-01-01"))
    item = encode_settings("a", [one, other])

    assert decode_settings(item) == (one, other)
    assert places(decode_settings(item)[0], "2026-11-22T18:30")[1] == "day#2026-11-23:00"
    assert decode_settings(None) == ()


@pytest.mark.parametrize("change", [{"rules": b"none"}, {"finest": "year"}, {"keep_ms": "1"}])
def test_settings_that_cannot_be_read_are_named(change: Item) -> None:
    item = encode_settings("a", [setting()])
    item["settings"][0] |= change

    with pytest.raises(CorruptItem, match="namespace#a"):
        decode_settings(item)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"finest": Per.MONTH}, "do not exist: give minute, hour, day"),
        ({"keep_ms": 0}, "keep of windows 0 ms is out of range: give 1 h to 3660 d"),
        ({"keep_ms": 4_000 * DAY_MS}, "4000 d is out of range"),
        ({"max_lateness_ms": 1}, "max lateness of windows 1 ms is out of range"),
        ({"ended_ms": ms("2025-01-01")}, "cannot end at 2025-01-01"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSetting, match=message):
        setting(**change)
