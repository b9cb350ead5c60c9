"""Reservations, limits that change, quotas that are made again, and the forms of a call."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from countledger.infra.memory.tables import COUNTERS, MemoryClock
from countledger.ledger.errors import (
    BadQuota,
    CorruptItem,
    IdempotencyKeyReused,
    NoSuchQuota,
    QuotaDenied,
    TicketExpired,
    TicketResolved,
    Unclear,
)
from countledger.ledger.limits import DAY_MS, HOUR_MS, SECOND_MS, SIGNED_REQUEST_LIFE_MS
from countledger.ledger.operations import Delete
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


def test_a_retried_reserve_counts_once(
    quotas: Quotas,
) -> None:
    first = ticket_of(quotas, 4, "k")
    again = admitted(process_like(quotas).reserve(TEAM, 4, key="k"))

    assert again.duplicate
    assert again.ticket == first.ticket
    assert quotas.show(TEAM)[0].used == 4
    with pytest.raises(IdempotencyKeyReused, match="to reserve 4, and now comes to acquire 4"):
        quotas.acquire(TEAM, 4, key="k")


def test_a_reservation_has_a_marker_whatever_the_method(quotas: Quotas) -> None:
    """A token is forgotten before the ticket ends."""
    quotas.create("api:", limit=10, per="day", method="request_token")
    ticket = ticket_in(admitted(quotas.reserve("api:team-1", 4, key="k")))

    done = quotas.commit(ticket, 3)

    assert (done.actual, quotas.show("api:team-1")[0].used) == (3, 3)


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize(
    ("actual", "counted", "overrun"), [(None, 4, 0), (0, 0, 0), (3, 3, 0), (4, 4, 0), (13, 13, 9)]
)
def test_a_commit_counts_what_was_used(  # noqa: PLR0917 - a table
    quotas: Quotas,
    stack: MemoryStack,
    actual: int | None,
    counted: int,
    overrun: int,
    lost: int,
) -> None:
    held = ticket_of(quotas, 4)
    if lost:
        stack.lose_next_answer()

    done = quotas.commit(held, actual)
    again = quotas.commit(held, actual)

    assert (done.actual, done.overrun, done.duplicate) == (counted, overrun, False)
    assert again == replace(done, duplicate=True)
    (shown,) = quotas.show(TEAM)
    assert (shown.used, shown.overrun) == (counted, overrun)
    assert shown.remaining == max(0, 10 - counted)
    with pytest.raises(TicketResolved, match="is committed"):
        quotas.commit(held, 7)
    with pytest.raises(TicketResolved, match="is committed"):
        quotas.release(held)
    assert quotas.show(TEAM)[0].used == counted


@pytest.mark.parametrize("lost", [0, 1])
def test_a_release_counts_once(quotas: Quotas, stack: MemoryStack, lost: int) -> None:
    held, other = ticket_of(quotas, 4, "k"), ticket_of(quotas, 6)
    if lost:
        stack.lose_next_answer()

    assert quotas.release(held)
    assert not quotas.release(held)
    assert quotas.show(TEAM)[0].used == 6
    with pytest.raises(TicketResolved, match="is released"):
        quotas.commit(held)
    with pytest.raises(TicketResolved, match="is released") as released:
        quotas.reserve(TEAM, 4, key="k")
    assert released.value.actual is None
    assert quotas.commit(other).actual == 6


def test_a_commit_in_the_next_window_belongs_to_the_window_of_its_reserve(
    quotas: Quotas, clock: MemoryClock, stack: MemoryStack
) -> None:
    move_to(clock, MIDNIGHT_MS - 1)
    first, second, third = (ticket_of(quotas, 3) for _ in range(3))
    move_to(clock, MIDNIGHT_MS + HOUR_MS)
    admitted(quotas.acquire(TEAM, 10))

    quotas.commit(first, 1)
    quotas.commit(second, 4)
    quotas.release(third)

    assert used(stack) == {"2026-11-22": 5, "2026-11-23": 10}


def test_a_reserve_that_is_never_resolved_stays_in_its_window(
    quotas: Quotas, clock: MemoryClock, stack: MemoryStack
) -> None:
    """It leaks into no later one; after its time it is refused, not called success."""
    lost = ticket_of(quotas, 7)
    move_to(clock, MIDNIGHT_MS + DAY_MS)
    assert quotas.show(TEAM)[0].remaining == 10
    clock.sleep_ms(1)

    for call in (quotas.commit, quotas.release):
        with pytest.raises(TicketExpired, match="stays counted in window 2026-11-22"):
            call(lost)
    assert used(stack) == {"2026-11-22": 7}


def test_a_marker_that_is_gone_is_no_success(quotas: Quotas, stack: MemoryStack) -> None:
    held = ticket_of(quotas, 4)
    ticket = ticket_in(held)
    forged = replace(ticket, reservation="another")
    for one in (forged, replace(ticket, key_id="gone")):
        with pytest.raises(TicketExpired):
            quotas.commit(one, 1)
    assert used(stack) == {"2026-11-22": 4}
    with pytest.raises(BadQuota, match="has no ticket"):
        quotas.commit(admitted(quotas.acquire(TEAM, 1)))


def test_a_window_that_lost_a_reservation_is_corrupt(quotas: Quotas, stack: MemoryStack) -> None:
    """By hand: a correction neither goes below zero, nor makes the counter again."""
    held = ticket_of(quotas, 4)
    ticket = ticket_in(held)
    quotas.connection.retrying.delete(Delete(COUNTERS, ticket.counted_in[0].key))

    with pytest.raises(CorruptItem, match="changed by hand"):
        quotas.release(held)
    assert used(stack) == {}


# ---- limits that change ----


def test_a_counter_that_knows_a_newer_limit_refuses_the_older_one(
    quotas: Quotas, clock: MemoryClock
) -> None:
    """At once, and in every process: the revision decides, not the age of what was read."""
    other = process_like(quotas)
    admitted(other.acquire(TEAM, 1))
    quotas.set_limit("llm:", 5)
    quotas.show(TEAM)
    admitted(quotas.acquire(TEAM, 1))

    assert denied(other.acquire(TEAM, 4)).limit == 5
    quotas.set_limit("llm:", 20)
    clock.sleep_ms(1)
    quotas.show(TEAM)
    admitted(quotas.acquire(TEAM, 1))
    assert admitted(other.acquire(TEAM, 17)).remaining == 0


def test_a_counter_may_have_a_limit_of_its_own(quotas: Quotas, clock: MemoryClock) -> None:
    quotas.override(TEAM, 20)
    quota = quotas.list()[0]
    assert quotas.overrides(quota) == {TEAM: 20}
    other = process_like(quotas)
    admitted(other.acquire(TEAM, 20))
    denied(other.acquire("llm:team-2", 20))
    assert other.show(TEAM)[0].overridden

    quotas.override(TEAM, None)
    quotas.set_limit("llm:", 25)
    clock.sleep_ms(5 * SECOND_MS)

    assert denied(other.acquire(TEAM, 6)).limit == 25
    assert admitted(other.acquire(TEAM, 5)).remaining == 0
    assert quotas.overrides(quotas.list()[0]) == {}
    assert quotas.list()[0].revision == 4


_CHANGES: dict[str, tuple[Callable[[Quotas, int], None], Callable[[Quotas], object]]] = {
    "of the quota": (
        lambda quotas, limit: quotas.set_limit("llm:", limit),
        lambda quotas: quotas.list()[0].limit,
    ),
    "of a counter": (
        lambda quotas, limit: quotas.override(TEAM, limit),
        lambda quotas: quotas.overrides(quotas.list()[0])[TEAM],
    ),
}
_each_change = pytest.mark.parametrize(("change", "limit"), _CHANGES.values(), ids=_CHANGES)


@_each_change
def test_a_limit_whose_answer_was_lost_is_not_set_over_the_next_one(
    quotas: Quotas,
    stack: MemoryStack,
    change: Callable[[Quotas, int], None],
    limit: Callable[[Quotas], object],
) -> None:
    """It was set, and another call has set another limit since: this call cannot know."""
    stack.lose_next_answer()
    stack.before_next_request(lambda: change(process_like(quotas), 99))

    with pytest.raises(Unclear, match="look"):
        change(quotas, 5)

    assert limit(quotas) == 99
    assert quotas.list()[0].revision == 3


@_each_change
def test_a_limit_that_was_never_set_is_set_after_the_one_of_another_call(
    quotas: Quotas,
    stack: MemoryStack,
    change: Callable[[Quotas, int], None],
    limit: Callable[[Quotas], object],
) -> None:
    """The request was lost: the only change since is the other call's."""
    stack.fail_next()
    stack.before_next_request(lambda: change(process_like(quotas), 99))

    change(quotas, 5)

    assert limit(quotas) == 5
    assert quotas.list()[0].revision == 3


def test_a_limit_whose_answer_was_lost_is_not_set_in_a_quota_that_was_made_again(
    quotas: Quotas, stack: MemoryStack
) -> None:
    """The next quota has the revision that a change of another call would have left."""

    def made_again() -> None:
        other = process_like(quotas)
        other.delete("llm:")
        other.create("llm:", limit=99, per="day")
        other.set_limit("llm:", 98)

    stack.lose_next_answer()
    stack.before_next_request(made_again)

    with pytest.raises(Unclear):
        quotas.set_limit("llm:", 5)

    assert quotas.list()[0].limit == 98


# ---- identities ----


def test_a_quota_that_is_made_again_meets_nothing_old(
    quotas: Quotas,
) -> None:
    quotas.acquire(TEAM, 4, key="k")
    held = ticket_of(quotas, 3, "r")
    quotas.override(TEAM, 4)
    quotas.delete("llm:")
    with pytest.raises(NoSuchQuota):
        quotas.delete("llm:")
    again = process_like(quotas)
    with pytest.raises(NoSuchQuota):
        again.acquire(TEAM, 1)
    quotas.create("llm:", limit=10, per="day")
    again = process_like(quotas)

    assert again.show(TEAM)[0].used == 0
    assert admitted(again.acquire(TEAM, 4, key="k")).duplicate
    assert again.show(TEAM)[0].used == 0
    assert admitted(again.acquire(TEAM, 10)).duplicate is False
    quotas.release(held)
    assert again.show(TEAM)[0].used == 10


def test_a_limit_of_its_own_outlives_a_deleted_quota_while_a_process_may_know_that(
    quotas: Quotas, stack: MemoryStack, clock: MemoryClock
) -> None:
    """Else that process would admit as much as the quota's own limit allows."""
    other = process_like(quotas)
    quotas.override(TEAM, 4)
    other.show("llm:team-2")
    quotas.delete("llm:")

    assert denied(other.acquire(TEAM, 5)).limit == 4
    (left,) = [item for item in stack.items(COUNTERS) if item["part"] == TEAM]
    assert left["expires_at"] * SECOND_MS > clock.now_ms() + SIGNED_REQUEST_LIFE_MS


def test_a_process_that_knows_a_deleted_quota_counts_in_its_old_windows(
    quotas: Quotas, clock: MemoryClock
) -> None:
    other = process_like(quotas)
    other.show(TEAM)
    quotas.delete("llm:")
    quotas.create("llm:", limit=10, per="day")
    admitted(other.acquire(TEAM, 10))

    assert process_like(quotas).show(TEAM)[0].used == 0
    clock.sleep_ms(5 * SECOND_MS)
    admitted(other.acquire(TEAM, 10))
    denied(process_like(quotas).acquire(TEAM, 1))


def test_a_guarded_function_is_called_within_the_limit(quotas: Quotas) -> None:
    calls: list[int] = []

    @quotas.guard(TEAM, 4)
    def work(number: int) -> int:
        calls.append(number)
        return number

    assert [work(1), work(2)] == [1, 2]
    with pytest.raises(QuotaDenied, match="8 of 10 are used") as refused:
        work(3)
    assert refused.value.denied.retry_after == timedelta(hours=12)
    assert calls == [1, 2]


def test_a_guarded_function_commits_what_it_used(quotas: Quotas) -> None:
    @quotas.guard(TEAM, 4, actual=abs)
    def work(cost: int) -> int:
        if cost > 100:
            raise ZeroDivisionError
        return cost

    @quotas.guard(TEAM, 4, actual=abs)
    async def waited(cost: int) -> int:
        await asyncio.sleep(0)
        if cost > 100:
            raise ZeroDivisionError
        return cost

    assert (work(1), asyncio.run(waited(2))) == (1, 2)
    with pytest.raises(ZeroDivisionError):
        work(101)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(waited(101))
    assert quotas.show(TEAM)[0].used == 3
    work(4)
    with pytest.raises(QuotaDenied):
        asyncio.run(waited(1))
