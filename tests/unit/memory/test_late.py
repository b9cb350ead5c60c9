"""Writes that are late, and calls of others between two requests, in a stack in memory."""

from datetime import UTC, datetime

import pytest

from countledger import errors
from countledger.testing import MemoryStack

_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
_COUNTER = "likes:post-1"


@pytest.fixture
def stack() -> MemoryStack:
    """A stack whose time passes by waits only, with a counter that one call has counted."""
    made = MemoryStack(at=_AT)
    made.ledger.record(_COUNTER, 1)
    return made


def _exact(stack: MemoryStack) -> object:
    return stack.ledger.exact(_COUNTER).value


def test_a_delayed_write_is_applied_when_it_lands_and_counts_once(stack: MemoryStack) -> None:
    """The client sends the same entry again; the late request meets it."""
    stack.delay_next()
    stack.ledger.record(_COUNTER, 5)
    assert (_exact(stack), stack.planned_faults) == (6, 1)

    (refused,) = stack.land()

    assert isinstance(refused, errors.ConditionFailed)
    assert (_exact(stack), stack.planned_faults) == (6, 0)


def test_a_write_whose_caller_gave_up_is_applied_when_it_lands(stack: MemoryStack) -> None:
    """Method `atomic` sends nothing again; the total of the stack includes what landed."""
    strict = stack.ledger.strict
    strict.create("stock:shoe", lower=0, opening=5, method="atomic")
    stack.delay_next()
    strict.change("stock:shoe", -2)
    assert strict.show("stock:shoe").value == 5

    assert stack.land() == [None]

    assert strict.show("stock:shoe").value == 3


@pytest.mark.parametrize(("minutes", "applied"), [(15, True), (15.001, False)])
def test_a_write_lands_within_the_life_of_its_request(
    stack: MemoryStack, minutes: float, *, applied: bool
) -> None:
    strict = stack.ledger.strict
    strict.create("stock:shoe", lower=0, opening=5, method="atomic")
    stack.delay_next()
    strict.change("stock:shoe", -2)
    stack.advance(minutes=minutes)

    (refused,) = stack.land()

    assert isinstance(refused, errors.RequestRejected) is not applied
    assert strict.show("stock:shoe").value == (3 if applied else 5)


def test_late_writes_land_once_each_and_in_their_order(stack: MemoryStack) -> None:
    strict = stack.ledger.strict
    strict.create("stock:shoe", lower=0, opening=5, method="atomic")
    for delta in (-4, -3):
        stack.delay_next()
        strict.change("stock:shoe", delta)

    first, second = stack.land()

    assert first is None
    assert isinstance(second, errors.ConditionFailed)  # 1 is left, of which 3 cannot be taken
    assert stack.land() == []
    assert strict.show("stock:shoe").value == 1


def test_another_call_runs_before_a_request_leaves(stack: MemoryStack) -> None:
    """The first request of this change reads; another change comes before its write."""
    strict = stack.ledger.strict
    strict.create("stock:shoe", lower=0, opening=5, method="occ")
    seen: list[object] = []
    stack.before_next_request(lambda: seen.append(strict.change("stock:shoe", -1)), skip=1)

    strict.change("stock:shoe", -2)

    assert len(seen) == 1
    assert strict.show("stock:shoe").value == 2


def test_the_requests_of_a_call_between_meet_only_its_own_faults(stack: MemoryStack) -> None:
    """What was planned after it is met by the call of the app."""
    strict = stack.ledger.strict
    strict.create("stock:shoe", lower=0, opening=9, method="atomic")
    stack.before_next_request(lambda: strict.change("stock:shoe", -1))
    stack.fail_next(errors.AccessDenied("no permission"))

    with pytest.raises(errors.AccessDenied):
        strict.change("stock:shoe", -2)

    assert (strict.show("stock:shoe").value, stack.planned_faults) == (8, 0)


def test_a_call_between_raises_what_it_raises(stack: MemoryStack) -> None:
    """Also an error after which a request would be tried again."""

    def between() -> None:
        raise errors.Throttled("of the other call")

    stack.before_next_request(between)

    with pytest.raises(errors.Throttled, match="of the other call"):
        stack.ledger.total(_COUNTER)


def test_a_negative_number_of_requests_is_refused(stack: MemoryStack) -> None:
    with pytest.raises(errors.BadSetting, match="skip -1 requests"):
        stack.before_next_request(lambda: None, skip=-1)


def test_what_no_request_met_and_what_has_to_land_is_counted(stack: MemoryStack) -> None:
    stack.before_next_request(lambda: None, skip=3)
    stack.delay_next()

    assert stack.planned_faults == 2
