"""What windows must add up to: each difference is named, and nothing else is."""

from typing import Any

import pytest

from countledger.consumers.window_verify import (
    Worth,
    broken_links,
    cells_in,
    counted,
    differences,
    is_expired,
)
from countledger.ledger.attributes import Item
from countledger.ledger.calendar import Per
from countledger.ledger.entry import Entry
from countledger.ledger.keys import window_key
from countledger.ledger.limits import DAY_MS, HOUR_MS, SECOND_MS
from countledger.ledger.windows import WindowSetting
from tests.unit.ledger.clocks import ms
from tests.unit.ledger.window_settings import window_setting

COUNTER = "likes:a"
AT = ms("2030-03-17T13:05")
SETTING = window_setting()


def entry(delta: int, at_ms: int = AT, **values: Any) -> Entry:  # noqa: ANN401 - any field
    return Entry(counter=COUNTER, id="e", delta=delta, at_ms=at_ms, origin="r", **values)


def items_of(entries: list[Entry], setting: WindowSetting = SETTING) -> dict[str, Item]:
    """The items of windows that hold these entries, by name."""
    items: dict[str, Item] = {}
    for name, cells in counted(setting, entries).cells.items():
        item: Item = dict(window_key(COUNTER, "one", name))
        for cell, (total, events) in cells.items():
            item |= {f"s{cell}": total, f"n{cell}": events}
        item["sum"] = sum(total for total, _ in cells.values())
        item["events"] = sum(events for _, events in cells.values())
        items[name] = item
    return items


ENTRIES = [entry(4), entry(16, AT + HOUR_MS), entry(64, AT + DAY_MS, events=2)]
WHOLE: Worth = (84, 4)


def broken(items: dict[str, Item], windowed: Worth = WHOLE, now_ms: int = AT) -> list[str]:
    return [*broken_links(SETTING, [*items.values()], windowed, now_ms)]


def differing(items: dict[str, Item], windowed: Worth = WHOLE, now_ms: int = AT) -> list[str]:
    return [*differences(counted(SETTING, ENTRIES), [*items.values()], windowed, now_ms)]


def test_windows_of_their_entries_add_up_and_differ_in_nothing() -> None:
    items = items_of(ENTRIES)

    assert len(items) == 1 + 2 + 3
    assert broken(items) == differing(items) == []
    assert broken({}, (0, 0)) == []


def test_entries_of_another_period_are_not_counted() -> None:
    """Those of the last moment before the setting, and of the first one after it."""
    setting = window_setting(from_ms=AT, ended_ms=AT + 2)
    at_ms = [AT - 1, AT, AT + 1, AT + 2]

    found = counted(setting, [entry(4**n, one) for n, one in enumerate(at_ms)])

    assert found.whole == (4 + 16, 2)


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("month#2030-03", {"sum": 85}, "month#2030-03 says 85 of 4 event(s)"),
        ("month#2030-03", {"events": 5}, "month#2030-03 says 84 of 5 event(s)"),
        ("day#2030-03-17", {"s13": 5, "sum": 21}, "hour 2030-03-17T13+00:00: its minutes add up"),
        ("day#2030-03-17", {"n13": 2, "events": 3}, "day 2030-03-17: its hours add up to 20 of 3"),
        ("hour#2030-03-17T13:00", {"s05": 5, "sum": 5}, "its minutes add up to 5 of 1 event(s)"),
    ],
)
def test_what_does_not_add_up_is_named(name: str, change: Item, expected: str) -> None:
    items = items_of(ENTRIES)
    items[name] |= change

    assert any(expected in one for one in broken(items))
    assert any(name in one for one in differing(items)) is (
        change.keys() & {"s13", "n13", "s05"} != set()
    )


def test_days_must_be_what_the_total_says() -> None:
    items = items_of(ENTRIES)

    (broken_,) = broken(items, (85, 4))
    (differs,) = differing(items, (85, 4))

    assert (
        broken_
        == "days add up to 84 of 4 event(s), and the total counted 85 of 4 event(s) in windows"
    )
    assert differs == "the total counted 85 of 4 event(s) in windows, of entries 84 of 4 event(s)"


def test_a_cell_that_entries_lack_differs_and_one_that_is_missing() -> None:
    items = items_of(ENTRIES)
    items["day#2030-03-17"] |= {"s20": 1, "n20": 1}
    del items["hour#2030-03-17T13:00"]

    assert differing(items) == [
        "day#2030-03-17, cell 20: 1 of 1 event(s), and its entries 0 of 0 event(s)",
        "hour#2030-03-17T13:00, cell 05: 0 of 0 event(s), and its entries 4 of 1 event(s)",
    ]


def test_minutes_and_hours_are_compared_while_they_are_kept() -> None:
    """Some may be gone before TTL removes all of them; days and months stay."""
    items = {name: one for name, one in items_of(ENTRIES).items() if name.startswith("month")}
    kept_until_ms = ms("2030-03-18") + SETTING.keep_ms
    last_ms = kept_until_ms - SETTING.skew_ms

    assert any(one.startswith("day 2030-03-17") for one in broken(items, now_ms=last_ms - 1))
    assert not any(one.startswith("day 2030-03-17") for one in broken(items, now_ms=last_ms))
    assert broken(items, now_ms=last_ms + 2 * DAY_MS) == []


def test_an_item_that_may_be_gone_differs_in_nothing() -> None:
    counts = counted(SETTING, ENTRIES)
    expires_at = counts.expires_at["day#2030-03-17"]
    assert expires_at is not None
    assert counts.expires_at["month#2030-03"] is None
    months = {name: one for name, one in items_of(ENTRIES).items() if name.startswith("month")}
    expires_ms = expires_at * SECOND_MS

    before, after = (differing(months, now_ms=at_ms) for at_ms in (expires_ms - 1, expires_ms))

    assert sum(one.startswith("day#2030-03-17") for one in before) == 2
    assert not any(one.startswith("day#2030-03-17") for one in after)
    # A month never expires.
    assert differing({}, now_ms=10 * expires_ms) == [
        "month#2030-03, cell 17: 0 of 0 event(s), and its entries 20 of 2 event(s)",
        "month#2030-03, cell 18: 0 of 0 event(s), and its entries 64 of 2 event(s)",
    ]


def test_a_ranked_day_is_in_the_index_with_its_sum() -> None:
    setting = window_setting(ranked=1)
    items = items_of(ENTRIES, setting)
    items["day#2030-03-17"] |= {"ranked": "x", "total": 20}
    items["day#2030-03-18"] |= {"ranked": "x", "total": 65}

    assert [*broken_links(setting, [*items.values()], WHOLE, AT)] == [
        "day#2030-03-18 is ranked by 65, and its sum is 64"
    ]
    # Where days are not ranked, nothing is read of what an earlier setting left.
    assert broken(items) == []


def test_windows_that_a_setting_has_not_are_not_compared() -> None:
    """Where days or hours are the finest ones, nothing finer adds up to them."""
    for finest, count in ((Per.HOUR, 1 + 2), (Per.DAY, 1)):
        setting = window_setting(finest=finest)
        items = items_of(ENTRIES, setting)

        assert len(items) == count
        assert [*broken_links(setting, [*items.values()], WHOLE, AT)] == []
    # A ranked day has an item of its own, with one cell for the whole day.
    setting = window_setting(finest=Per.DAY, ranked=1)
    items = items_of(ENTRIES, setting)
    items["day#2030-03-17"] |= {"s00": 21, "sum": 21}
    assert [*broken_links(setting, [*items.values()], WHOLE, AT)] == [
        "day 2030-03-17: its hours add up to 21 of 2 event(s), and it is 20 of 2 event(s)"
    ]


def test_only_sums_and_events_are_cells() -> None:
    item: Item = {"part": "w#one#day#2030-03-17", "sum": 4, "events": 1, "s13": 4, "n13": 1}

    assert cells_in({**item, "s1": 9, "s123": 9, "sxx": 9, "x15": 9, "n14": 2}) == {
        "13": (4, 1),
        "14": (0, 2),
    }


@pytest.mark.parametrize(
    ("expires_at", "expired"), [(AT // 1_000, True), (AT // 1_000 + 1, False), (None, False)]
)
def test_an_item_counts_as_gone_from_its_time_to_live_on(
    expires_at: int | None, *, expired: bool
) -> None:
    assert is_expired({"expires_at": expires_at}, AT) is expired
