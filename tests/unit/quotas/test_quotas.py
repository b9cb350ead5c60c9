"""Quotas over tables in memory: windows, keys, tickets, limits that change, lost answers."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from countledger.ledger.errors import (
    BadQuota,
    IdempotencyKeyReused,
    KeyExpired,
    NoSuchQuota,
    Throttled,
    Unclear,
    WrongRegion,
)
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.producers.quotas.quota import Admitted, Denied
from countledger.producers.quotas.quotas import Quotas
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient, applied_then_lost, meanwhile, refuses
from tests.unit.quotas.processes import (
    MIDNIGHT_MS,
    TEAM,
    admitted,
    denied,
    process,
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
    quotas: Quotas, clock: ManualClock, before_ms: int, seconds: int
) -> None:
    clock.at_ms = MIDNIGHT_MS - before_ms
    quotas.acquire(TEAM, 10)

    outcome = denied(quotas.acquire(TEAM, 1))

    assert outcome.retry_after == timedelta(seconds=seconds)
    assert outcome.resets_at == datetime(2026, 11, 23, tzinfo=UTC)
    clock.at_ms += seconds * SECOND_MS
    admitted(quotas.acquire(TEAM, 1))


@pytest.mark.parametrize(
    ("per", "now", "seconds"),
    [
        ("day", "2026-03-28T23:00:00.001+00:00", 23 * 3_600),  # the day has 23 hours
        ("day", "2026-10-24T22:00:00+00:00", 25 * 3_600),  # and this one 25
        ("hour", "2026-03-29T00:59:59.001+00:00", 1),  # 1:59:59, and then it is 3:00
        ("hour", "2026-10-25T00:30:00+00:00", 1_800),  # the first of two hours from 2:00 on
        ("hour", "2026-10-25T01:30:00+00:00", 1_800),  # the second one
        ("month", "2026-10-01T00:00:00+00:00", 30 * 86_400 + 23 * 3_600),
    ],
)
def test_retry_after_is_right_where_the_clocks_change(
    quotas: Quotas, clock: ManualClock, per: str, now: str, seconds: int
) -> None:
    quotas.create("berlin:", limit=10, per=per, time_zone="Europe/Berlin")
    clock.at_ms = int(datetime.fromisoformat(now).timestamp() * SECOND_MS)
    admitted(quotas.acquire("berlin:a", 10))

    outcome = denied(quotas.acquire("berlin:a", 1))

    assert outcome.retry_after == timedelta(seconds=seconds)
    clock.at_ms += seconds * SECOND_MS - SECOND_MS
    denied(quotas.acquire("berlin:a", 1))
    clock.at_ms += SECOND_MS
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
    elsewhere = Quotas(replace(quotas.connection, elsewhere="us-east-1"))
    calls: list[Callable[[], object]] = [
        lambda: elsewhere.acquire(TEAM),
        lambda: elsewhere.create("a:", limit=1, per="day"),
        elsewhere.list,
        lambda: elsewhere.show(TEAM),
        lambda: elsewhere.delete("llm:"),
    ]
    for call in calls:
        with pytest.raises(WrongRegion, match="quotas work in the home region eu-west-1 only"):
            call()


# ---- windows ----


def test_usage_is_not_summed_over_all_periods(
    quotas: Quotas, clock: ManualClock, dynamo: MemoryClient
) -> None:
    for day in (22, 23, 24):
        admitted(quotas.acquire(TEAM, 10))
        assert quotas.show(TEAM).window == f"2026-11-{day}"
        clock.at_ms += DAY_MS
    assert quotas.show(TEAM).used == 0
    assert used(dynamo) == {f"2026-11-{day}": 10 for day in (22, 23, 24)}


def test_a_window_ends_to_the_millisecond(quotas: Quotas, clock: ManualClock) -> None:
    clock.at_ms = MIDNIGHT_MS - 1
    admitted(quotas.acquire(TEAM, 10))
    denied(quotas.acquire(TEAM, 1))
    clock.at_ms = MIDNIGHT_MS
    admitted(quotas.acquire(TEAM, 10))


def test_a_window_that_changes_in_the_middle_of_a_call(
    quotas: Quotas, clock: ManualClock, dynamo: MemoryClient
) -> None:
    """All attempts of a call are for the window in which it began: it is counted once."""
    clock.at_ms = MIDNIGHT_MS - 1
    quotas.show(TEAM)
    dynamo.plans.append(applied_then_lost("transact"))

    outcome = admitted(quotas.acquire(TEAM, 4, key="k"))

    assert clock.at_ms >= MIDNIGHT_MS
    assert outcome.window == "2026-11-22"
    assert used(dynamo) == {"2026-11-22": 4}


def test_a_retry_after_midnight_is_the_same_acquire(
    quotas: Quotas, clock: ManualClock, dynamo: MemoryClient
) -> None:
    clock.at_ms = MIDNIGHT_MS - 1
    quotas.acquire(TEAM, 4, key="k")
    clock.at_ms = MIDNIGHT_MS + HOUR_MS

    again = admitted(process(dynamo, clock).acquire(TEAM, 4, key="k"))

    assert (again.window, again.duplicate, again.remaining) == ("2026-11-22", True, 6)
    assert again.resets_at == datetime(2026, 11, 23, tzinfo=UTC)
    assert used(dynamo) == {"2026-11-22": 4}


def test_ttl_comes_after_every_ticket(quotas: Quotas, dynamo: MemoryClient) -> None:
    ticket = ticket_in(ticket_of(quotas, 4))
    below = [item for item in dynamo.items("counters") if item["part"][:2] in {"m#", "w#"}]
    expiry = {item["part"][:2]: item["expires_at"] for item in below}

    until_s = int(ticket.until.timestamp())
    assert until_s == (MIDNIGHT_MS + DAY_MS) // SECOND_MS
    assert until_s + 15 * 60 < expiry["m#"] <= expiry["w#"] - 24 * 3_600


# ---- keys ----


@pytest.mark.parametrize("method", ["request_token", "marker"])
def test_a_repeated_key_is_counted_once(
    dynamo: MemoryClient, clock: ManualClock, method: str
) -> None:
    quotas = process(dynamo, clock)
    quotas.create("api:", limit=10, per="hour", method=method)
    first = admitted(quotas.acquire("api:a", 3, key="k"))
    again = admitted(process(dynamo, clock).acquire("api:a", 3, key="k"))

    assert (first.duplicate, first.remaining) == (False, 7)
    assert (again.duplicate, again.remaining) == (True, 7)
    with pytest.raises(IdempotencyKeyReused, match="'k'"):
        quotas.acquire("api:a", 4, key="k")
    admitted(quotas.acquire("api:b", 4, key="k"))
    assert quotas.show("api:a").used == 3


def test_a_token_of_the_window_before_is_not_counted_again(
    dynamo: MemoryClient, clock: ManualClock
) -> None:
    quotas = process(dynamo, clock)
    quotas.create("api:", limit=10, per="minute", method="request_token")
    quotas.acquire("api:a", 3, key="k")
    clock.at_ms += MINUTE_MS

    with pytest.raises(IdempotencyKeyReused, match="window before"):
        quotas.acquire("api:a", 3, key="k")
    assert list(used(dynamo).values()) == [3]


@pytest.mark.parametrize("method", ["request_token", "marker"])
def test_a_denied_key_may_be_tried_again(
    dynamo: MemoryClient, clock: ManualClock, method: str
) -> None:
    quotas = process(dynamo, clock)
    quotas.create("api:", limit=10, per="hour", method=method)
    quotas.acquire("api:a", 8)
    denied(quotas.acquire("api:a", 3, key="k"))
    clock.at_ms += HOUR_MS

    assert admitted(quotas.acquire("api:a", 3, key="k")).duplicate is False


def test_a_duplicate_is_admitted_though_the_limit_was_lowered(quotas: Quotas) -> None:
    quotas.acquire(TEAM, 4, key="k")
    quotas.set_limit("llm:", 2)
    other = process_like(quotas)

    assert admitted(other.acquire(TEAM, 4, key="k")).duplicate
    assert denied(other.acquire(TEAM, 4, key="j")).retry_after is None


def test_a_key_of_yesterday_is_refused(quotas: Quotas, clock: ManualClock) -> None:
    old = datetime.fromtimestamp((clock.at_ms - DAY_MS) / 1_000 - 1, UTC)
    with pytest.raises(KeyExpired):
        quotas.acquire(TEAM, 1, key=IdempotencyKey("k", old))
    fresh = IdempotencyKey("k", old + timedelta(hours=1))
    assert [admitted(quotas.acquire(TEAM, 1, key=fresh)).duplicate for _ in "ab"] == [False, True]


# ---- lost answers ----


def _refused_after_a_lost_request(
    dynamo: MemoryClient, clock: ManualClock, method: str
) -> Admitted | Denied:
    """It is held back; another one takes what is left; then it is refused, for now."""
    quotas = process(dynamo, clock)
    quotas.create("api:", limit=10, per="day", method=method)
    quotas.show("api:a")
    dynamo.plans.append(refuses(Unclear("no answer"), "transact"))
    take = partial(process_like(quotas).acquire, "api:a", 10)
    dynamo.plans.append(meanwhile(take, "transact", where=lambda _: True))
    return quotas.acquire("api:a", 4, key="k")


def test_no_denial_while_a_request_may_be_applied_yet(
    dynamo: MemoryClient, clock: ManualClock
) -> None:
    with pytest.raises(Unclear, match="same key"):
        _refused_after_a_lost_request(dynamo, clock, "marker")


def test_a_denial_of_a_request_that_the_fence_keeps_out_is_final(
    dynamo: MemoryClient, clock: ManualClock
) -> None:
    assert isinstance(_refused_after_a_lost_request(dynamo, clock, "request_token"), Denied)


def test_a_call_that_was_suspended_sends_nothing(
    quotas: Quotas, clock: ManualClock, dynamo: MemoryClient
) -> None:
    """Neither under an old limit, nor into a window that may be cleaned up."""
    quotas.show(TEAM)

    def sleep() -> None:
        clock.at_ms += 3 * DAY_MS

    dynamo.plans.append(meanwhile(sleep, "update"))
    with pytest.raises(Throttled):
        quotas.acquire(TEAM, 4)
    assert used(dynamo) == {}


def test_a_call_that_was_suspended_for_seconds_uses_the_limit_of_now(
    quotas: Quotas, clock: ManualClock, dynamo: MemoryClient
) -> None:
    quotas.show(TEAM)
    other = process(dynamo, clock)

    def sleep() -> None:
        clock.at_ms += 30 * SECOND_MS
        other.set_limit("llm:", 3)

    dynamo.plans.append(meanwhile(sleep, "update"))

    assert denied(quotas.acquire(TEAM, 4)).limit == 3
    assert used(dynamo) == {}
