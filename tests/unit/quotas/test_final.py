"""What a quota answered stays so: no request of a call that was answered counts later."""

from datetime import UTC, datetime

import pytest

from countledger import errors
from countledger.producers.quotas.quota import Admitted, Denied
from countledger.producers.strict.change import KnownFences
from countledger.testing import MemoryStack

COUNTER = "a:x"


@pytest.fixture
def stack() -> MemoryStack:
    """A stack whose time passes by waits only, with ten a day by tokens."""
    made = MemoryStack(at=datetime(2030, 1, 1, tzinfo=UTC))
    made.ledger.quotas.create("a:", limit=10, per="day", method="request_token")
    return made


def test_a_raised_fence_costs_other_keys_nothing_but_a_retry(stack: MemoryStack) -> None:
    quotas = stack.ledger.quotas
    stack.delay_next()
    quotas.acquire(COUNTER, 3, key="job-1")
    quotas.connection._shared.pop(KnownFences)

    assert isinstance(quotas.acquire(COUNTER, 7, key="job-2"), Admitted)
    assert isinstance(quotas.acquire(COUNTER, 1, key="job-3"), Denied)


def test_a_limit_is_unclear_if_the_quota_was_deleted_after_a_lost_answer(
    stack: MemoryStack,
) -> None:
    quotas = stack.ledger.quotas
    stack.lose_next_answer()
    stack.before_next_request(lambda: quotas.delete("a:"))

    with pytest.raises(errors.Unclear):
        quotas.set_limit("a:", 5)


@pytest.mark.parametrize("counted_before", [True, False])
def test_who_counted_a_key_is_not_said_after_a_lost_answer(
    stack: MemoryStack, *, counted_before: bool
) -> None:
    """The token says that it is counted, and not by which call."""
    quotas = stack.ledger.quotas
    if counted_before:
        quotas.acquire(COUNTER, 3, key="job-1")
    stack.lose_next_answer()

    again = quotas.acquire(COUNTER, 3, key="job-1")

    assert isinstance(again, Admitted)
    assert again.duplicate is None
    assert quotas.show(COUNTER)[0].used == 3
    last = quotas.acquire(COUNTER, 3, key="job-1")
    assert isinstance(last, Admitted)
    assert last.duplicate is True


@pytest.mark.parametrize(
    ("raised", "error"), [(4, errors.IdempotencyKeyReused), (5, errors.Unclear)]
)
def test_a_key_that_may_be_counted_under_an_older_fence_is_not_said_to_be_used_otherwise(
    stack: MemoryStack, raised: int, error: type[Exception]
) -> None:
    """Of the numbers of a fence the last four are asked."""
    quotas = stack.ledger.quotas
    quotas.acquire(COUNTER, 3, key="job-1")
    for number in range(raised):
        stack.fail_next()
        quotas.acquire(COUNTER, 1, key=f"other-{number}")

    with pytest.raises(error):
        quotas.acquire(COUNTER, 4, key="job-1")
