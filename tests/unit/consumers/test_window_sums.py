"""What is known of windows that are added up: their sums, whether complete, whether final."""

from collections.abc import Sequence
from datetime import timedelta
from math import inf

import pytest

from countledger.consumers.windows import (
    WindowSums,
    check_kept,
    check_range,
    covered,
    final_from_ms,
)
from countledger.ledger.calendar import Per, Window, rules_of, windows_in
from countledger.ledger.errors import BadTime
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, WINDOWS_MAX
from countledger.ledger.windows import Slot, WindowSetting
from tests.unit.ledger.clocks import ms
from tests.unit.ledger.window_settings import window_setting

NOON = ms("2030-03-17T12:00")
ALWAYS = window_setting()


def hours(count: int, setting: WindowSetting = ALWAYS) -> list[Window]:
    """The hours from noon on."""
    return [*windows_in(NOON, NOON + count * HOUR_MS, Per.HOUR, setting.calendar)]


def completed(sums: WindowSums, settings: Sequence[WindowSetting] = (ALWAYS,)) -> list[bool]:
    """Whether each window is complete, once the stream was handled past all of them."""
    return [one.complete for one in sums.read(settings, NOON + DAY_MS)]


def test_what_is_before_or_after_the_windows_is_in_none() -> None:
    before, first, last, after = windows_in(
        NOON - HOUR_MS, NOON + 3 * HOUR_MS, Per.HOUR, ALWAYS.calendar
    )
    sums = WindowSums([first, last], Per.HOUR)

    sums.add([Slot(before, 1, 1), Slot(first, 4, 1), Slot(last, 16, 2), Slot(after, 64, 1)])

    assert (sums.sums, sums.events) == ([4, 16], [1, 2])
    assert completed(sums) == [True, True]


def test_a_window_with_other_bounds_under_earlier_rules_is_never_complete() -> None:
    """Whichever way the offset moved, and whatever was counted; as long as both may have counted.

    Almaty went from +06 to +05 on 2024-03-01. Here the rules of before are those of Omsk.
    """
    omsk, almaty = rules_of("Asia/Omsk"), rules_of("Asia/Almaty")
    changed_ms = ms("2024-03-04T12:00")
    for before, after in ((omsk, almaty), (almaty, omsk)):
        old = window_setting("Asia/Almaty", rules=before, ended_ms=changed_ms, id="old")
        new = window_setting("Asia/Almaty", rules=after, from_ms=changed_ms)
        for per, start, expected in (
            (Per.DAY, "2024-02-27T20:00", "✓✗✗✗✗✗✓"),
            (Per.MONTH, "2024-01-10T00:00", "✓✗✗"),
            # Both rules have whole hours, which differ only by name.
            (Per.HOUR, "2024-02-29T16:00", "✓" * 99),
        ):
            windows = [*windows_in(ms(start), ms("2024-03-05T20:00"), per, new.calendar)]
            found = WindowSums(windows, per).read([old, new], ms("2024-05-01"))

            marks = "".join("✓" if one.complete else "✗" for one in found)
            assert marks[: len(expected)] == expected, (per, before == omsk)


def test_what_was_counted_under_earlier_rules_stays_in_the_day_of_its_date() -> None:
    """Also in the first window that is read; what is of the one before it is in none."""
    setting = window_setting("Asia/Almaty")
    days = [*windows_in(ms("2024-02-29T12:00"), ms("2024-03-01T12:00"), Per.DAY, setting.calendar)]
    old = window_setting("Asia/Almaty", rules=rules_of("Asia/Omsk"))
    slots = [
        Slot(day, 10**number, 1)
        for number, day in enumerate(
            windows_in(ms("2024-02-28T12:00"), ms("2024-03-02T12:00"), Per.DAY, old.calendar)
        )
    ]
    sums = WindowSums(days, Per.DAY)
    sums.add(slots)

    assert [(day.name, found) for day, found in zip(days, sums.sums, strict=True)] == [
        ("2024-02-29", 10),
        ("2024-03-01", 100),
    ]


def test_windows_of_before_a_repair_are_not_complete_until_they_are_rebuilt() -> None:
    """What was recorded before may be missing, also in the window of the repair; later is not."""
    repaired_ms = NOON + HOUR_MS + 30 * MINUTE_MS
    known = [WindowSums(hours(4), Per.HOUR, at_ms) for at_ms in (repaired_ms, None)]

    assert [completed(one) for one in known] == [[False, False, True, True], [True] * 4]
    # The windows were switched on after the repair.
    later = window_setting(from_ms=repaired_ms + 2 * MINUTE_MS)
    assert completed(known[0], [later]) == [False, False, True, True]
    assert completed(WindowSums(hours(2), Per.HOUR, NOON - DAY_MS), [later]) == [False, False]
    early = window_setting(from_ms=NOON - MINUTE_MS)
    assert completed(WindowSums(hours(2), Per.HOUR, NOON - DAY_MS), [early]) == [True, True]


def test_a_month_is_added_up_from_its_days_and_is_complete() -> None:
    months = [*windows_in(NOON, NOON + 1, Per.MONTH, ALWAYS.calendar)]
    days = [*windows_in(NOON, NOON + 3 * DAY_MS, Per.DAY, ALWAYS.calendar)]
    sums = WindowSums(months, Per.MONTH)

    sums.add(Slot(day, 4, 1) for day in days)
    (month,) = sums.read([ALWAYS], months[0].end_ms)

    assert (month.value, month.events, month.complete) == (4 * len(days), len(days), True)


def test_a_window_is_complete_from_its_last_moment_on() -> None:
    sums = WindowSums(hours(1), Per.HOUR)

    assert [sums.read([ALWAYS], NOON + HOUR_MS + late)[0].complete for late in (-1, 0)] == [
        False,
        True,
    ]


def test_a_window_that_is_not_complete_is_not_final() -> None:
    """Every entry of it that can come has come, but windows were off when some were recorded."""
    late = window_setting(max_lateness_ms=MINUTE_MS, from_ms=NOON - MINUTE_MS + 1)
    sums = WindowSums(hours(2), Per.HOUR)

    found = sums.read([late], NOON + 30 * DAY_MS)

    assert [(one.complete, one.final) for one in found] == [(False, False), (True, True)]


def test_a_window_is_final_once_no_entry_of_it_can_arrive() -> None:
    setting = window_setting(max_lateness_ms=HOUR_MS)
    (window,) = hours(1)
    from_ms = window.end_ms + HOUR_MS + setting.late_entry_ms
    sums = WindowSums([window], Per.HOUR)

    assert final_from_ms(window, [setting]) == from_ms
    assert not sums.read([setting], int(from_ms) - 1)[0].final
    assert sums.read([setting], int(from_ms))[0].final


def test_only_settings_whose_entries_can_be_of_a_window_keep_it_open() -> None:
    (window,) = hours(1)
    # It accepts entries of any age, and ahead by a minute: up to the window's start.
    ended = window_setting(ended_ms=NOON - MINUTE_MS)
    open_till = window_setting(ended_ms=NOON - MINUTE_MS + 1)
    now = window_setting(max_lateness_ms=HOUR_MS, from_ms=NOON)
    longer = window_setting(max_lateness_ms=2 * HOUR_MS)

    assert final_from_ms(window, [ended, now]) == final_from_ms(window, [now]) < inf
    assert final_from_ms(window, [open_till, now]) == inf
    assert final_from_ms(window, [longer, now]) == final_from_ms(window, [now]) + HOUR_MS
    # If none can, the newest one decides.
    assert final_from_ms(window, [ended]) == inf


@pytest.mark.parametrize(
    ("settings", "is_covered"),
    [
        # What is recorded a minute before may be dated in the window.
        ([window_setting(from_ms=NOON - MINUTE_MS)], True),
        ([window_setting(from_ms=NOON - MINUTE_MS + 1)], False),
        ([window_setting(ended_ms=NOON + HOUR_MS)], True),
        ([window_setting(ended_ms=NOON + HOUR_MS - 1)], False),
        ([window_setting(ended_ms=NOON + 9), window_setting(from_ms=NOON + 9)], True),
        ([window_setting(ended_ms=NOON + 9), window_setting(from_ms=NOON + 10)], False),
        ([window_setting(ended_ms=NOON), window_setting(from_ms=NOON)], True),
        ([], False),
    ],
)
def test_a_window_is_covered_by_settings_without_a_gap(
    settings: list[WindowSetting], *, is_covered: bool
) -> None:
    (window,) = hours(1)

    assert covered(window, settings) is is_covered


def test_a_time_of_many_windows_is_refused_with_what_to_read_instead() -> None:
    check_range(Per.MINUTE, 0, WINDOWS_MAX * MINUTE_MS)
    check_range(Per.HOUR, NOON, NOON + 1)
    with pytest.raises(BadTime, match="windows by hour"):
        check_range(Per.MINUTE, 0, (WINDOWS_MAX + 1) * MINUTE_MS)
    with pytest.raises(BadTime, match="windows by month"):
        check_range(Per.MONTH, 0, (WINDOWS_MAX + 1) * 30 * DAY_MS)
    for start_ms, end_ms in ((NOON, NOON), (NOON, NOON - 1), (-1, NOON)):
        with pytest.raises(BadTime, match="a later one"):
            check_range(Per.HOUR, start_ms, end_ms)


def test_hours_are_read_while_each_setting_that_can_have_counted_them_keeps_them() -> None:
    (window,) = hours(1)
    day_end_ms = ms("2030-03-18")
    long, short = window_setting(keep_ms=2 * DAY_MS), window_setting(keep_ms=DAY_MS)

    check_kept(Per.HOUR, window, [long, short], day_end_ms + DAY_MS - 1)
    with pytest.raises(BadTime, match=r"kept for 24 h after their day, and those of 2030-03-17"):
        check_kept(Per.HOUR, window, [long, short], day_end_ms + DAY_MS)
    # One that ended before the window began has counted nothing of it.
    ended = window_setting(keep_ms=DAY_MS, ended_ms=NOON - MINUTE_MS)
    check_kept(Per.HOUR, window, [ended, long], day_end_ms + DAY_MS)


def test_times_have_the_offset_of_their_zone() -> None:
    setting = window_setting("Asia/Kathmandu")
    (window, *_) = hours(1, setting)

    (found,) = WindowSums([window], Per.HOUR).read([setting], NOON)

    assert found.start.utcoffset() == timedelta(hours=5, minutes=45)
