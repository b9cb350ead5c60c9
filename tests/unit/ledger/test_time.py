"""Time, waits and units."""

from datetime import UTC, date, datetime, timedelta, timezone
from random import Random
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.clock import Backoff, SystemClock, show_duration, to_datetime, to_ms
from countledger.ledger.dynamo import Meter
from countledger.ledger.errors import BadTime
from tests.unit.ledger.clocks import ManualClock


@given(
    attempts=st.integers(1, 20),
    base_ms=st.floats(1, 1_000),
    cap_ms=st.floats(1, 10_000),
    seed=st.integers(),
)
def test_waits_are_bounded_and_drawn_from_zero(
    attempts: int, base_ms: float, cap_ms: float, seed: int
) -> None:
    waits = list(Backoff(attempts, base_ms, cap_ms).waits_ms(Random(seed)))  # noqa: S311 - jitter

    assert len(waits) == attempts - 1
    for attempt, wait_ms in enumerate(waits):
        assert 0 <= wait_ms <= min(cap_ms, base_ms * 2**attempt)


def test_each_try_but_the_first_comes_behind_its_wait() -> None:
    clock, backoff = ManualClock(), Backoff(attempts=4)
    waits = list(backoff.waits_ms(Random(7)))  # noqa: S311 - jitter

    slept = [list(clock.slept_ms) for _ in backoff.tries(clock, Random(7))]  # noqa: S311 - jitter

    assert slept == [waits[:n] for n in range(4)]
    next(backoff.tries(clock, Random(7)))  # noqa: S311 - jitter
    assert clock.slept_ms == waits


def test_jitter_is_full() -> None:
    """Evenly from zero to the ceiling: callers that failed together do not come back together."""
    firsts = [next(Backoff().waits_ms(Random(seed))) for seed in range(2_000)]  # noqa: S311 - jitter

    assert min(firsts) < 1
    assert max(firsts) > 49
    assert 23 < sum(firsts) / len(firsts) < 27


def test_the_longest_wait_is_a_matter_of_seconds() -> None:
    """All together: a caller hears within seconds that nothing answers."""

    class Longest(Random):
        def uniform(self, a: float, b: float) -> float:
            assert a == 0
            return b

    assert sum(Backoff().waits_ms(Longest())) < 10_000


@given(st.integers(-62_000_000_000_000, 253_000_000_000_000))
def test_milliseconds_and_moments_are_the_same(at_ms: int) -> None:
    assert to_ms(to_datetime(at_ms)) == at_ms
    assert to_datetime(at_ms).tzinfo is UTC


@pytest.mark.parametrize(
    ("moment", "reason"),
    [
        (datetime(2030, 1, 31), "has no offset"),  # noqa: DTZ001 - that is the point
        (date(2030, 1, 31), "is a date, not a datetime"),
        (5, "is a int"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-5))), "outside the years"),
    ],
)
def test_what_is_no_moment_is_refused(moment: object, reason: str) -> None:
    with pytest.raises(BadTime, match=reason):
        to_ms(moment)


@pytest.mark.parametrize("at_ms", [10**15, -(10**15), 10**400])
def test_no_calendar_holds_every_number(at_ms: int) -> None:
    with pytest.raises(BadTime, match="outside the years 1 to 9999") as refused:
        to_datetime(at_ms)

    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (1_500, "1500 ms"),
        (60_001, "60001 ms"),
        (90_000, "90 s"),
        (601_000, "601 s"),
        (5_400_000, "90 min"),
        (43_500_000, "12 h 5 min"),
        (86_400_000, "24 h"),
        (604_800_000, "7 d"),
        (816_944_400_000, "9455 d 9 h"),
        (-3_600_000, "-1 h"),
        # A long odd duration is rounded and says so: an age in milliseconds says nothing.
        (100_001, "about 1 min 40 s"),
        (540_001, "about 9 min"),
        (3_599_999, "about 60 min"),
        (11_523_456, "about 3 h 12 min"),
        (86_400_001, "about 1 d"),
        (816_945_567_891, "about 9455 d 9 h"),
        (-816_945_567_891, "about -9455 d 9 h"),
    ],
)
def test_a_duration_is_shown_in_two_units_at_most(duration_ms: int, text: str) -> None:
    assert show_duration(duration_ms) == text


@given(st.integers(-(10**15), 10**15))
def test_what_is_shown_of_a_duration_is_near_it(duration_ms: int) -> None:
    """Without `about` it is that duration; with it, it is off by half of the smaller unit."""
    units_ms = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000, "ms": 1}
    text = show_duration(duration_ms)
    words = text.removeprefix("about ").removeprefix("-").split()

    said_ms = sum(
        int(count) * units_ms[unit] for count, unit in zip(words[::2], words[1::2], strict=True)
    )

    off_ms = abs(said_ms - abs(duration_ms))
    assert off_ms == 0 if not text.startswith("about") else 0 < off_ms <= abs(duration_ms) / 40


def test_the_machines_clock_counts_milliseconds() -> None:
    """Since the epoch."""
    before = datetime.now(UTC)
    clock = SystemClock()
    clock.sleep_ms(1)

    assert before <= to_datetime(clock.now_ms()) + timedelta(milliseconds=1)
    assert to_datetime(clock.now_ms()) <= datetime.now(UTC)


def test_a_meter_counts_for_its_parent_too() -> None:
    process = Meter()
    calls = [Meter(parent=process) for _ in range(4)]

    def work(meter: Meter) -> None:
        for _ in range(500):
            meter.written([{"CapacityUnits": 1.0}, {"CapacityUnits": 0.5}])
            meter.read([{"CapacityUnits": 0.5}, {}])

    threads = [Thread(target=work, args=(meter,)) for meter in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {(m.write_units, m.read_units) for m in calls} == {(750.0, 250.0)}
    assert (process.write_units, process.read_units) == (3_000.0, 1_000.0)
