"""The calendar: which one a moment belongs to, and when it begins and ends."""

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from countledger.ledger.calendar import (
    Per,
    Window,
    window_of,
    zone_of,
)
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from tests.unit.ledger.clocks import ms

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "America/Havana",
    "Pacific/Apia",
    "Pacific/Chatham",
)


@pytest.mark.parametrize(
    ("zone", "per", "at", "name", "start", "end"),
    [
        ("UTC", "minute", "2026-11-22T13:05:59.999", "2026-11-22T13:05Z", "13:05", "13:06"),
        ("Asia/Kolkata", "minute", "2026-11-22T13:05", "2026-11-22T13:05Z", "13:05", "13:06"),
        ("UTC", "hour", "2026-11-22T13:05", "2026-11-22T13+00:00", "13:00", "14:00"),
        # A full hour of half-hour zones, and of one with a quarter.
        ("Asia/Kolkata", "hour", "2026-11-22T13:05", "2026-11-22T18+05:30", "12:30", "13:30"),
        ("Asia/Kathmandu", "hour", "2026-11-22T13:20", "2026-11-22T19+05:45", "13:15", "14:15"),
    ],
)
def test_minutes_and_hours(  # noqa: PLR0917 - a table
    zone: str, per: str, at: str, name: str, start: str, end: str
) -> None:
    found = window_of(ms(at), Per(per), zone_of(zone))

    day = at.partition("T")[0]
    assert found == Window(name, ms(f"{day}T{start}"), ms(f"{day}T{end}"))


@pytest.mark.parametrize(
    ("zone", "at", "name", "start", "hours"),
    [
        ("Europe/Berlin", "2026-03-29T12:00", "2026-03-29", "2026-03-28T23:00", 23),
        ("Europe/Berlin", "2026-10-25T12:00", "2026-10-25", "2026-10-24T22:00", 25),
        ("Europe/Berlin", "2026-10-26T12:00", "2026-10-26", "2026-10-25T23:00", 24),
        ("America/New_York", "2026-11-01T12:00", "2026-11-01", "2026-11-01T04:00", 25),
        ("Australia/Lord_Howe", "2026-04-04T20:00", "2026-04-05", "2026-04-04T13:00", 24.5),
        # The clocks jump over midnight: the day begins at one o'clock.
        ("America/Sao_Paulo", "2018-11-04T12:00", "2018-11-04", "2018-11-04T03:00", 23),
        # They go back before midnight: the day before has 25 hours.
        ("America/Sao_Paulo", "2018-02-17T12:00", "2018-02-17", "2018-02-17T02:00", 25),
        # A day that a zone left out.
        ("Pacific/Apia", "2011-12-30T09:59", "2011-12-29", "2011-12-29T10:00", 24),
        ("Pacific/Apia", "2011-12-30T10:00", "2011-12-31", "2011-12-30T10:00", 24),
    ],
)
def test_days(zone: str, at: str, name: str, start: str, hours: float) -> None:
    end_ms = ms(start) + round(hours * HOUR_MS)

    assert window_of(ms(at), Per.DAY, zone_of(zone)) == Window(name, ms(start), end_ms)


def test_months_have_their_own_days() -> None:
    february = window_of(ms("2028-02-29T23:30"), Per.MONTH, zone_of("UTC"))
    march = window_of(ms("2026-03-01T00:00+01:00"), Per.MONTH, zone_of("Europe/Berlin"))

    assert february == Window("2028-02", ms("2028-02-01"), ms("2028-03-01"))
    assert march == Window("2026-03", ms("2026-02-28T23:00"), ms("2026-03-31T22:00"))


def test_the_hour_that_comes_twice_is_two_windows() -> None:
    first = window_of(ms("2026-10-25T00:30"), Per.HOUR, zone_of("Europe/Berlin"))
    second = window_of(ms("2026-10-25T01:30"), Per.HOUR, zone_of("Europe/Berlin"))

    assert (first.name, second.name) == ("2026-10-25T02+02:00", "2026-10-25T02+01:00")
    assert first.end_ms == second.start_ms == ms("2026-10-25T01:00")


def test_half_an_hour_at_a_change_of_half_an_hour() -> None:
    """The clocks of Lord Howe go from 2:00 to 2:30, and from 2:00 back to 1:30."""
    short = window_of(ms("2026-10-03T15:40"), Per.HOUR, zone_of("Australia/Lord_Howe"))
    again = window_of(ms("2026-04-04T15:10"), Per.HOUR, zone_of("Australia/Lord_Howe"))

    assert (short.start_ms, short.end_ms) == (ms("2026-10-03T15:30"), ms("2026-10-03T16:00"))
    assert (again.start_ms, again.end_ms) == (ms("2026-04-04T15:00"), ms("2026-04-04T15:30"))


@given(
    at_ms=st.integers(ms("1975-01-01"), ms("2037-01-01")),
    zone=st.sampled_from(ZONES),
    per=st.sampled_from(list(Per)),
)
@example(at_ms=ms("2026-10-25T01:00") - 1, zone="Europe/Berlin", per=Per.HOUR)
def test_windows_follow_each_other(at_ms: int, zone: str, per: Per) -> None:
    """Each moment is in its window; the next one begins where it ends, under another name."""
    found = window_of(at_ms, per, zone_of(zone))
    after = window_of(found.end_ms, per, zone_of(zone))

    assert found.start_ms <= at_ms < found.end_ms == after.start_ms
    for edge_ms in (found.start_ms, found.end_ms - 1):
        assert window_of(edge_ms, per, zone_of(zone)) == found
    assert after.name != found.name
    longest = {Per.MINUTE: MINUTE_MS, Per.HOUR: HOUR_MS, Per.DAY: 25 * HOUR_MS}
    assert found.end_ms - found.start_ms <= longest.get(per, 31 * 25 * HOUR_MS)


def test_no_name_comes_twice_within_a_year() -> None:
    at_ms, names = ms("2026-01-01"), []
    while at_ms < ms("2027-01-01"):
        window = window_of(at_ms, Per.HOUR, zone_of("Australia/Lord_Howe"))
        names.append(window.name)
        at_ms = window.end_ms
    assert len(names) == len(set(names)) > 8_759


@pytest.fixture
def wrong_machine(tmp_path: Path) -> Iterator[None]:
    """A machine whose own rules for Paris are those of India."""
    rules = files("tzdata").joinpath("zoneinfo", "Asia", "Kolkata").read_bytes()
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Paris").write_bytes(rules)
    zoneinfo.reset_tzpath([str(tmp_path)])
    zoneinfo.ZoneInfo.clear_cache()
    zone_of.cache_clear()
    yield
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()
    zone_of.cache_clear()


@pytest.mark.usefixtures("wrong_machine")
def test_rules_are_those_of_the_pinned_package() -> None:
    """Not those of the machine: two processes must agree on the end of a day."""
    summer = datetime(2026, 7, 15, tzinfo=UTC)

    assert zoneinfo.ZoneInfo("Europe/Paris").utcoffset(summer) == timedelta(hours=5, minutes=30)
    assert zone_of("Europe/Paris").utcoffset(summer) == timedelta(hours=2)


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "../etc/passwd", "europe/berlin", "CET-1"])
def test_unknown_zones_are_refused(name: str) -> None:
    with pytest.raises(BadSetting, match="IANA"):
        zone_of(name)
