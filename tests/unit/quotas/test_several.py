"""An amount under several limits: of one counter, of several, all or none."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from countledger.infra.memory.tables import COUNTERS, MemoryClock
from countledger.ledger.errors import (
    BadQuota,
    IdempotencyKeyReused,
    NoSuchQuota,
    QuotaExists,
    TicketResolved,
    Unclear,
)
from countledger.ledger.limits import ADMISSION_LIMITS_MAX, DAY_MS, HOUR_MS
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
    used,
)

ORG, USER = "org:acme", "user:u7"
ALL = [ORG, TEAM, USER]


@pytest.fixture
def quotas(quotas: Quotas) -> Quotas:
    """Ten a day for each team; of an organisation 20 a day and 25 a month; of a user 5 an hour."""
    quotas.create("org:", limit=20, per="day")
    quotas.create("org:", limit=25, per="month")
    quotas.create("user:", limit=5, per="hour")
    return quotas


def _used(quotas: Quotas) -> dict[tuple[str, str], object]:
    return {(one.counter, one.per): one.used for name in ALL for one in quotas.show(name)}


def _all(amount: int) -> dict[tuple[str, str], object]:
    kinds = [(ORG, "day"), (ORG, "month"), (TEAM, "day"), (USER, "hour")]
    return dict.fromkeys(kinds, amount)


@pytest.mark.parametrize("key", [None, "k"])
def test_an_amount_is_counted_under_every_limit_or_under_none(
    quotas: Quotas, key: str | None
) -> None:
    outcome = admitted(quotas.acquire(ALL, 4, key=key))

    assert [(one.counter, one.per, one.remaining) for one in outcome.limits] == [
        (TEAM, "day", 6),
        (ORG, "day", 16),
        (ORG, "month", 21),
        (USER, "hour", 1),
    ]
    assert (outcome.counter, outcome.remaining, outcome.window) == (USER, 1, "2026-11-22T12+00:00")
    refused = denied(quotas.acquire(ALL, 2))
    assert (refused.counter, refused.prefix, refused.per) == (USER, "user:", "hour")
    assert (refused.limit, refused.used) == (5, 4)
    assert _used(quotas) == _all(4)


def test_of_several_limits_that_refuse_the_one_that_ends_last_is_named(
    quotas: Quotas, clock: MemoryClock
) -> None:
    """Else its caller would come back when the first window ends, and be denied again."""
    admitted(quotas.acquire(ORG, 20))

    refused = denied(quotas.acquire(ORG, 6))

    assert (refused.per, refused.used, refused.limit) == ("month", 20, 25)
    move_to(clock, MIDNIGHT_MS)
    assert denied(quotas.acquire(ORG, 6)).per == "month"
    assert denied(quotas.acquire([ORG, TEAM], 11)).retry_after is None


def test_a_counter_has_the_longest_prefix_of_each_kind_of_window(quotas: Quotas) -> None:
    quotas.create("org:ac", limit=3, per="day")

    other = process_like(quotas)

    assert [(one.prefix, one.per) for one in other.show(ORG)] == [
        ("org:ac", "day"),
        ("org:", "month"),
    ]
    assert denied(other.acquire(ORG, 4)).prefix == "org:ac"
    assert admitted(other.acquire("org:b", 4)).limits[0].prefix == "org:"


def test_a_key_is_counted_once_whatever_the_order_of_its_counters(
    quotas: Quotas, clock: MemoryClock
) -> None:
    move_to(clock, MIDNIGHT_MS - 1)
    first = admitted(quotas.acquire(ALL, 4, key="k"))
    move_to(clock, MIDNIGHT_MS + HOUR_MS)

    again = admitted(process_like(quotas).acquire(ALL[::-1], 4, key="k"))

    assert again == replace(first, duplicate=True)
    assert {one.used for one in quotas.show(ORG)} == {0, 4}
    with pytest.raises(IdempotencyKeyReused, match="used for"):
        quotas.acquire([ORG, TEAM], 4, key="k")


def test_a_quota_that_comes_between_two_tries_of_a_key_counts_nothing(quotas: Quotas) -> None:
    admitted(quotas.acquire(TEAM, 4, key="k"))
    quotas.create("llm:", limit=3, per="minute")
    other = process_like(quotas)

    assert denied(other.acquire(TEAM, 4)).per == "minute"
    assert admitted(other.acquire(TEAM, 4, key="k")).duplicate
    assert [one.used for one in other.show(TEAM)] == [0, 4]


@pytest.mark.parametrize(
    ("resolve", "left", "actual"),
    [
        (lambda quotas, held: quotas.commit(held, 1).actual == 1, 1, 1),
        (lambda quotas, held: quotas.commit(held, 7).overrun == 3, 7, 7),
        (lambda quotas, held: quotas.commit(held).actual == 4, 4, 4),
        (lambda quotas, held: quotas.release(held), 0, None),
    ],
)
@pytest.mark.parametrize("lost", [0, 1])
def test_a_reservation_is_resolved_under_every_limit(  # noqa: PLR0917 - a table
    quotas: Quotas,
    stack: MemoryStack,
    resolve: Callable[[Quotas, object], bool],
    left: int,
    actual: int | None,
    lost: int,
) -> None:
    held = admitted(quotas.reserve(ALL, 4, key="k"))
    assert ticket_in(admitted(process_like(quotas).reserve(ALL, 4, key="k"))) == held.ticket
    if lost:
        stack.lose_next_answer()

    assert resolve(quotas, ticket_in(held))

    assert _used(quotas) == _all(left)
    with pytest.raises(TicketResolved) as resolved:
        quotas.reserve(ALL, 4, key="k")
    assert resolved.value.actual == actual


def test_a_ticket_ends_a_day_after_the_window_that_ends_first(
    quotas: Quotas, stack: MemoryStack, clock: MemoryClock
) -> None:
    """Its counter would be removed before that of a longer window."""
    ticket = ticket_in(admitted(quotas.reserve(ALL, 4, key="k")))

    assert ticket.until.timestamp() * 1_000 == clock.now_ms() + HOUR_MS + DAY_MS
    (marker,) = [one for one in stack.items(COUNTERS) if one["part"].startswith("m#")]
    assert marker["expires_at"] > ticket.until.timestamp() + 8 * DAY_MS / 1_000


@pytest.mark.parametrize("prefer", ["under", "over"])
def test_without_a_key_a_lost_answer_is_counted_once_or_as_the_caller_prefers(
    quotas: Quotas, stack: MemoryStack, prefer: str
) -> None:
    stack.lose_next_answer()
    if prefer == "under":
        with pytest.raises(Unclear):
            quotas.acquire(ALL, 2)
    else:
        admitted(quotas.acquire(ALL, 2, prefer="over"))
    assert _used(quotas) == _all(2)


def test_tokens_of_several_limits_are_one_request(stack: MemoryStack) -> None:
    quotas = stack.ledger.quotas
    for per in ("day", "month"):
        quotas.create("api:", limit=10, per=per, method="request_token")
    stack.delay_next()

    first = admitted(quotas.acquire(["api:a", "api:b"], 3, key="k"))
    again = admitted(quotas.acquire(["api:b", "api:a"], 3, key="k"))
    stack.land()

    assert (first.duplicate, again.duplicate) == (False, True)
    assert used(stack) == {"2026-11-22": 6, "2026-11": 6}


def test_a_newer_limit_of_one_of_them_refuses_the_older_ones(quotas: Quotas) -> None:
    other = process_like(quotas)
    admitted(other.acquire(ALL, 1))
    quotas.set_limit("org:", 2, per="month")
    quotas.show(ORG)
    admitted(quotas.acquire(ORG, 1))

    refused = denied(other.acquire(ALL, 1))

    assert (refused.per, refused.limit) == ("month", 2)


def test_a_quota_is_named_by_its_kind_of_window_where_there_are_several(quotas: Quotas) -> None:
    calls: list[Callable[[], object]] = [
        lambda: quotas.set_limit("org:", 1),
        lambda: quotas.override(ORG, 1),
        lambda: quotas.delete("org:"),
    ]
    for call in calls:
        with pytest.raises(BadQuota, match=r"per, one of: day, month"):
            call()
    with pytest.raises(QuotaExists, match="org: per day"):
        quotas.create("org:", limit=1, per="day")

    quotas.override(ORG, 3, per="month")
    quotas.set_limit("org:", 2, per="day")
    assert [(one.limit, one.overridden) for one in quotas.show(ORG)] == [(2, False), (3, True)]
    quotas.delete("org:", per="day")
    assert [one.per for one in quotas.show(ORG)] == ["month"]
    for per in ("day", "hour"):
        with pytest.raises(NoSuchQuota, match=f"per {per}"):
            quotas.set_limit("org:", 1, per=per)
        with pytest.raises(NoSuchQuota, match=f"per {per}"):
            quotas.override(ORG, 1, per=per)
    quotas.set_limit("org:", 9)
    assert quotas.show("org:b")[0].limit == 9


def test_what_is_no_list_of_counters_is_refused(quotas: Quotas) -> None:
    for given, match in (([], "list of names"), ([TEAM, TEAM], "named twice"), (7, "list of")):
        with pytest.raises(BadQuota, match=match):
            quotas.acquire(given, 1)  # type: ignore[arg-type]
    many = [f"org:{number}" for number in range(ADMISSION_LIMITS_MAX // 2 + 1)]
    with pytest.raises(BadQuota, match="22 limits"):
        quotas.acquire(many, 1)
    assert len(admitted(quotas.acquire(many[1:], 1)).limits) == ADMISSION_LIMITS_MAX


def test_the_usage_of_every_counter_of_a_quota_is_read_in_one_call(quotas: Quotas) -> None:
    for number in range(40):
        admitted(quotas.acquire(f"org:{number:02}", 1 + number % 3))
    quotas.override("org:07", 9, per="day")

    found = quotas.usage("org:", per="day")

    assert [(one.counter, one.used) for one in found] == [
        (f"org:{number:02}", 1 + number % 3) for number in range(40)
    ]
    assert [(one.counter, one.limit) for one in found if one.overridden] == [("org:07", 9)]
    assert found[7] == quotas.show("org:07")[0]
    assert quotas.usage("llm:") == []
    with pytest.raises(BadQuota, match="per, one of"):
        quotas.usage("org:")
    with pytest.raises(NoSuchQuota):
        quotas.usage("org:", per="hour")
