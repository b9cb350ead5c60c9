"""Quotas over tables in memory: windows, keys, tickets, limits that change, lost answers."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from countledger.infra.memory.tables import COUNTERS, MemoryClock
from countledger.ledger.errors import (
    BadQuota,
    IdempotencyKeyReused,
    NoSuchQuota,
    Throttled,
    WrongRegion,
)
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.producers.quotas.quotas import Quotas
from countledger.testing import MemoryStack
from tests.unit.quotas.processes import (
    MIDNIGHT_MS,
    TEAM,
    admitted,
    denied,
    move_to,
    process_like,
    ticket_in,
    ticket_of,
    used,
)


def test_the_last_unit_is_admitted_and_no_more(quotas: Quotas) -> None:
    assert admitted(quotas.acquire(TEAM, 9)).remaining == 1
    assert denied(quotas.acquire(TEAM, 2)).used == 9
    assert admitted(quotas.acquire(TEAM, 1)).remaining == 0
    assert denied(quotas.acquire(TEAM, Decimal("0.000000001"))).limit == 10


def test_each_counter_has_the_limit_of_the_longest_prefix(quotas: Quotas) -> None:
    quotas.create("llm:free-", limit=1, per="day")
    other = process_like(quotas)

    admitted(other.acquire(TEAM, 10))
    admitted(other.acquire("llm:team-2", 10))
    admitted(other.acquire("llm:free-1", 1))
    denied(other.acquire("llm:free-1", 1))
    with pytest.raises(NoSuchQuota, match="'mail:'"):
        other.acquire("mail:a", 1)
    with pytest.raises(NoSuchQuota, match="has no namespace"):
        other.acquire("llm", 1)


def test_what_is_above_the_limit_is_never_admitted_and_says_so(quotas: Quotas) -> None:
    outcome = denied(quotas.acquire(TEAM, 11))

    assert outcome.retry_after is None
    assert "never admitted" in outcome.reason
    assert "limit of 10" in outcome.reason


@pytest.mark.parametrize(
    ("before_ms", "seconds"), [(1, 1), (999, 1), (1_000, 1), (1_001, 2), (12 * HOUR_MS, 43_200)]
)
def test_retry_after_is_right_to_the_second(
    quotas: Quotas, clock: MemoryClock, before_ms: int, seconds: int
) -> None:
    move_to(clock, MIDNIGHT_MS - before_ms)
    quotas.acquire(TEAM, 10)

    outcome = denied(quotas.acquire(TEAM, 1))

    assert outcome.retry_after == timedelta(seconds=seconds)
    assert outcome.resets_at == datetime(2026, 11, 23, tzinfo=UTC)
    clock.sleep_ms(seconds * SECOND_MS)
    admitted(quotas.acquire(TEAM, 1))


@pytest.mark.parametrize(
    ("per", "now", "seconds"),
    [
        ("day", "2027-03-27T23:00:00.001+00:00", 23 * 3_600),  # the day has 23 hours
        ("day", "2027-10-30T22:00:00+00:00", 25 * 3_600),  # and this one 25
        ("hour", "2027-03-28T00:59:59.001+00:00", 1),  # 1:59:59, and then it is 3:00
        ("hour", "2027-10-31T00:30:00+00:00", 1_800),  # the first of two hours from 2:00 on
        ("hour", "2027-10-31T01:30:00+00:00", 1_800),  # the second one
        ("month", "2027-10-01T00:00:00+00:00", 30 * 86_400 + 23 * 3_600),
    ],
)
def test_retry_after_is_right_where_the_clocks_change(
    quotas: Quotas, clock: MemoryClock, per: str, now: str, seconds: int
) -> None:
    quotas.create("berlin:", limit=10, per=per, time_zone="Europe/Berlin")
    move_to(clock, int(datetime.fromisoformat(now).timestamp() * SECOND_MS))
    admitted(quotas.acquire("berlin:a", 10))

    outcome = denied(quotas.acquire("berlin:a", 1))

    assert outcome.retry_after == timedelta(seconds=seconds)
    clock.sleep_ms(seconds * SECOND_MS - SECOND_MS)
    denied(quotas.acquire("berlin:a", 1))
    clock.sleep_ms(SECOND_MS)
    admitted(quotas.acquire("berlin:a", 1))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"prefix": "llm"}, "colon"),
        ({"prefix": ":"}, "namespace"),
        ({"prefix": "a:b#"}, "#"),
        ({"limit": 1.5}, "float"),
        ({"limit": -1}, "0 or more"),
        ({"limit": True}, "bool"),
        ({"limit": Decimal("NaN")}, "finite"),
        ({"limit": 10**20}, "digits"),
        ({"per": "week"}, "minute, hour, day, month"),
        ({"time_zone": "Berlin"}, "IANA"),
        ({"method": "atomic"}, "request_token, marker"),
    ],
)
def test_what_is_no_quota_is_refused(quotas: Quotas, change: dict[str, Any], match: str) -> None:
    good = {"prefix": "x:", "limit": 1, "per": "day", **change}
    with pytest.raises(ValueError, match=match):
        quotas.create(**good)
    assert [one.prefix for one in quotas.list()] == ["llm:"]


def test_what_is_no_amount_is_refused(quotas: Quotas) -> None:
    """Also one with so many digits that Python does not write it out."""
    for amount in (0, -1, 0.5, Decimal("Infinity"), "1", 10**5000, -(10**5000)):
        with pytest.raises(BadQuota, match="amount"):
            quotas.acquire(TEAM, amount)  # type: ignore[arg-type]
    with pytest.raises(BadQuota, match="prefer"):
        quotas.acquire(TEAM, 1, prefer="both")  # type: ignore[arg-type]


def test_quotas_live_in_the_home_region(quotas: Quotas) -> None:
    elsewhere = Quotas(replace(quotas.connection, elsewhere="eu-west-1"))
    calls: list[Callable[[], object]] = [
        lambda: elsewhere.acquire(TEAM),
        lambda: elsewhere.create("a:", limit=1, per="day"),
        elsewhere.list,
        lambda: elsewhere.show(TEAM),
        lambda: elsewhere.delete("llm:"),
    ]
    for call in calls:
        with pytest.raises(WrongRegion, match="quotas work in the home region us-east-1 only"):
            call()


# ---- windows ----


def test_usage_is_not_summed_over_all_periods(
    quotas: Quotas, clock: MemoryClock, stack: MemoryStack
) -> None:
    for day in (22, 23, 24):
        admitted(quotas.acquire(TEAM, 10))
        assert quotas.show(TEAM)[0].window == f"2026-11-{day}"
        clock.sleep_ms(DAY_MS)
    assert quotas.show(TEAM)[0].used == 0
    assert used(stack) == {f"2026-11-{day}": 10 for day in (22, 23, 24)}


def test_a_window_ends_to_the_millisecond(quotas: Quotas, clock: MemoryClock) -> None:
    move_to(clock, MIDNIGHT_MS - 1)
    admitted(quotas.acquire(TEAM, 10))
    denied(quotas.acquire(TEAM, 1))
    move_to(clock, MIDNIGHT_MS)
    admitted(quotas.acquire(TEAM, 10))


def test_a_window_that_changes_in_the_middle_of_a_call(
    quotas: Quotas, clock: MemoryClock, stack: MemoryStack
) -> None:
    """All attempts of a call are for the window in which it began: it is counted once."""
    move_to(clock, MIDNIGHT_MS - 1)
    quotas.show(TEAM)
    stack.lose_next_answer()
    stack.before_next_request(lambda: clock.sleep_ms(1))

    outcome = admitted(quotas.acquire(TEAM, 4, key="k"))

    assert clock.now_ms() >= MIDNIGHT_MS
    assert outcome.window == "2026-11-22"
    assert used(stack) == {"2026-11-22": 4}


def test_a_retry_after_midnight_is_the_same_acquire(
    quotas: Quotas, clock: MemoryClock, stack: MemoryStack
) -> None:
    move_to(clock, MIDNIGHT_MS - 1)
    quotas.acquire(TEAM, 4, key="k")
    move_to(clock, MIDNIGHT_MS + HOUR_MS)

    again = admitted(process_like(quotas).acquire(TEAM, 4, key="k"))

    assert (again.window, again.duplicate, again.remaining) == ("2026-11-22", True, 6)
    assert again.resets_at == datetime(2026, 11, 23, tzinfo=UTC)
    assert used(stack) == {"2026-11-22": 4}


def test_ttl_comes_after_every_ticket(quotas: Quotas, stack: MemoryStack) -> None:
    ticket = ticket_in(ticket_of(quotas, 4))
    below = [item for item in stack.items(COUNTERS) if item["part"][:2] in {"m#", "w#"}]
    expiry = {item["part"][:2]: item["expires_at"] for item in below}

    until_s = int(ticket.until.timestamp())
    assert until_s == (MIDNIGHT_MS + DAY_MS) // SECOND_MS
    assert until_s + 15 * 60 < expiry["m#"] <= expiry["w#"] - 24 * 3_600


# ---- keys ----


def test_a_token_of_the_window_before_is_not_counted_again(
    stack: MemoryStack, clock: MemoryClock
) -> None:
    quotas = stack.ledger.quotas
    quotas.create("api:", limit=10, per="minute", method="request_token")
    quotas.acquire("api:a", 3, key="k")
    clock.sleep_ms(MINUTE_MS)

    with pytest.raises(IdempotencyKeyReused, match="window before"):
        quotas.acquire("api:a", 3, key="k")
    assert list(used(stack).values()) == [3]


def test_a_duplicate_is_admitted_though_the_limit_was_lowered(quotas: Quotas) -> None:
    quotas.acquire(TEAM, 4, key="k")
    quotas.set_limit("llm:", 2)
    other = process_like(quotas)

    assert admitted(other.acquire(TEAM, 4, key="k")).duplicate
    assert denied(other.acquire(TEAM, 4, key="j")).retry_after is None


# ---- lost answers ----


def test_a_call_that_was_suspended_sends_nothing(
    quotas: Quotas, clock: MemoryClock, stack: MemoryStack
) -> None:
    """Neither under an old limit, nor into a window that may be cleaned up."""
    quotas.show(TEAM)

    def sleep() -> None:
        clock.sleep_ms(3 * DAY_MS)

    stack.before_next_request(sleep)
    with pytest.raises(Throttled):
        quotas.acquire(TEAM, 4)
    assert used(stack) == {}


def test_a_call_that_was_suspended_for_seconds_uses_the_limit_of_now(
    quotas: Quotas, clock: MemoryClock, stack: MemoryStack
) -> None:
    quotas.show(TEAM)
    other = process_like(quotas)

    def sleep() -> None:
        clock.sleep_ms(30 * SECOND_MS)
        other.set_limit("llm:", 3)

    stack.before_next_request(sleep)

    assert denied(quotas.acquire(TEAM, 4)).limit == 3
    assert used(stack) == {}
