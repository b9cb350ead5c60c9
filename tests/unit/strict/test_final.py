"""A refusal is final: no request of a call that was answered is applied later."""

from datetime import UTC, datetime, timedelta

import pytest

from countledger import errors
from countledger.producers.strict.change import FENCE, KnownFences
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.outcome import (
    Applied,
    Duplicate,
    Held,
    Unknown,
    Withdrawn,
)
from countledger.testing import MemoryStack

COUNTER = "s:hall"
# A token is forgotten by then, and a request that was signed before may still land.
FORGOTTEN_MINUTES = 12
# More requests than any call sends again.
_MANY = 50


@pytest.fixture
def stack() -> MemoryStack:
    """A stack whose time passes by waits only."""
    return MemoryStack(at=datetime(2030, 1, 1, tzinfo=UTC))


def _other(stack: MemoryStack) -> StrictCounters:
    """Another process with the same tables, whose requests meet no planned fault."""
    return stack.ledger.strict


def _value(stack: MemoryStack) -> object:
    return stack.ledger.strict.show(COUNTER).value


def _land_later(stack: MemoryStack) -> None:
    stack.advance(minutes=FORGOTTEN_MINUTES)
    stack.land()


def test_a_fence_that_an_item_no_longer_has_is_forgotten() -> None:
    """An item that was made again begins at 0: the old number would be refused for ever."""
    known, key = KnownFences(), {"counter": "a", "part": "w#1"}
    known.learn(key, "", {FENCE: 2})

    known.learn(key, "", {})

    assert known.of(key, "") == 0


@pytest.mark.parametrize("bins", [1, 2])
def test_a_creation_that_was_refused_creates_nothing_after_a_deletion_that_was_suspended(
    stack: MemoryStack, bins: int
) -> None:
    """The deletion was planned before the creation, and leaves after it."""
    strict = stack.ledger.strict
    strict.create(COUNTER, method="occ" if bins == 1 else "marker", opening=5, bins=bins)

    def refused() -> None:
        stack.advance(minutes=5)
        stack.delay_next()
        with pytest.raises(errors.CounterExists):
            strict.create(COUNTER, method="occ", opening=77)

    stack.before_next_request(refused, skip=1)
    strict.delete(COUNTER)
    stack.land()

    with pytest.raises(errors.NoSuchCounter):
        strict.show(COUNTER)


@pytest.mark.parametrize("created", [True, False])
def test_a_creation_whose_fence_finds_the_counter_deleted_is_tried_again(
    stack: MemoryStack, *, created: bool
) -> None:
    """The name is free by then; its late request lands at last, and changes nothing."""
    strict = stack.ledger.strict
    strict.create(COUNTER, method="occ", opening=5)

    def deleted() -> None:
        strict.delete(COUNTER)
        if not created:
            strict.create(COUNTER, method="occ", opening=6)

    stack.delay_next()
    stack.before_next_request(deleted, skip=1)
    if created:
        assert strict.create(COUNTER, method="occ", opening=77).value == 77
        strict.change(COUNTER, 1)
    else:
        with pytest.raises(errors.CounterExists):
            strict.create(COUNTER, method="occ", opening=77)
    stack.land()

    assert _value(stack) == (78 if created else 6)


@pytest.mark.parametrize("bins", [1, 2])
def test_bounds_that_others_moved_since_do_not_come_back(stack: MemoryStack, bins: int) -> None:
    """100, then 10 is late, another sets 60, this call sets 10, another sets 100."""
    strict = stack.ledger.strict
    strict.create(COUNTER, method="marker", lower=0, upper=100, opening=5, bins=bins)
    stack.delay_next()
    stack.before_next_request(lambda: strict.set_bounds(COUNTER, upper=60))
    assert strict.set_bounds(COUNTER, upper=10).upper == 10
    strict.set_bounds(COUNTER, upper=100)

    stack.land()

    assert strict.show(COUNTER).upper == 100


@pytest.mark.parametrize("bins", [1, 2])
def test_bounds_that_were_moved_are_not_reported_as_refused(stack: MemoryStack, bins: int) -> None:
    """The read of the counter that follows fails: the answer is what the write has left."""
    strict = stack.ledger.strict
    strict.create(COUNTER, method="marker", lower=0, upper=100, opening=5, bins=bins)
    stack.before_next_request(lambda: stack.throttle(_MANY), skip=2)

    moved = strict.set_bounds(COUNTER, upper=10)

    assert (moved.value, moved.upper) == (5, 10)


def test_bounds_are_unknown_if_the_call_may_be_among_several_moves_since(
    stack: MemoryStack,
) -> None:
    strict = stack.ledger.strict
    strict.create(COUNTER, method="occ", lower=0, upper=100)

    def others() -> None:
        strict.set_bounds(COUNTER, upper=60)
        strict.set_bounds(COUNTER, upper=70)

    stack.delay_next()
    stack.before_next_request(others)
    with pytest.raises(errors.Unclear, match="show the counter"):
        strict.set_bounds(COUNTER, upper=10)

    stack.land()
    assert strict.show(COUNTER).upper == 70


@pytest.mark.parametrize("plan", ["lose_next_answer", "delay_next"])
def test_a_creation_succeeds_although_another_call_deletes_the_counter_at_once(
    stack: MemoryStack, plan: str
) -> None:
    strict = stack.ledger.strict
    strict.create("s:other", method="atomic")

    getattr(stack, plan)()
    if plan == "delay_next":
        stack.before_next_request(stack.land)
    stack.before_next_request(lambda: strict.delete(COUNTER))
    made = strict.create(COUNTER, method="occ", opening=5)

    assert (made.value, made.method) == (5, "occ")
    with pytest.raises(errors.NoSuchCounter):
        strict.show(COUNTER)


def test_a_hold_that_has_ended_is_not_placed_again_by_a_late_request(stack: MemoryStack) -> None:
    strict = stack.ledger.strict
    strict.create(COUNTER, method="marker", lower=0, opening=5, window_ms=60_000)
    stack.delay_next()
    hold = strict.hold(COUNTER, 3, expires_in=timedelta(seconds=30), key="order-1")
    assert isinstance(hold, Held)
    strict.cancel(hold.id)
    _land_later(stack)

    assert strict.show(COUNTER).held == 0


def test_a_late_change_of_method_atomic_says_until_when_it_may_be_applied(
    stack: MemoryStack,
) -> None:
    strict = stack.ledger.strict
    strict.create(COUNTER, method="atomic")
    stack.delay_next()

    outcome = strict.change(COUNTER, 5)
    stack.land()

    assert isinstance(outcome, Unknown)
    assert "until 2030-01-01T00:16:00+00:00 it may still be applied" in outcome.advice


def test_a_marker_that_expires_soon_settles_no_call_with_a_late_request(
    stack: MemoryStack,
) -> None:
    """Once it is deleted, the late request counts."""
    strict = stack.ledger.strict
    strict.create(COUNTER, method="marker", window_ms=60_000)
    strict.change(COUNTER, 5, key="order-1")
    stack.advance(minutes=10)
    stack.delay_next()

    assert isinstance(strict.change(COUNTER, 5, key="order-1"), Unknown)
    stack.advance(minutes=8)
    stack.land()

    assert _value(stack) == 10


def test_a_marker_of_several_counters_that_expires_soon_settles_no_call_with_a_late_request(
    stack: MemoryStack,
) -> None:
    strict = stack.ledger.strict
    strict.create(COUNTER, method="marker")
    strict.transactions.change({COUNTER: 5}, key="order-1")
    stack.advance(hours=24, minutes=10)
    stack.delay_next()

    assert isinstance(strict.transactions.change({COUNTER: 5}, key="order-1"), Unknown)
    stack.advance(minutes=8)
    stack.land()

    assert _value(stack) == 10


@pytest.mark.parametrize(("other", "expected"), [(-3, Duplicate), (-2, None)])
def test_a_refusal_that_meets_the_marker_of_another_call_is_about_that_call(
    stack: MemoryStack, other: int, expected: type | None
) -> None:
    """The other one has taken the headroom under the same key, after the lost request."""
    strict = stack.ledger.strict
    strict.create(COUNTER, method="marker", lower=0, opening=3)
    stack.fail_next()
    stack.before_next_request(lambda: strict.change(COUNTER, -1))
    # The void marker is the request after the refusal.
    stack.before_next_request(lambda: _topped_up(stack, other), skip=1)

    if expected is None:
        with pytest.raises(errors.IdempotencyKeyReused):
            strict.change(COUNTER, -3, key="order-1")
    else:
        assert isinstance(strict.change(COUNTER, -3, key="order-1"), expected)

    assert _value(stack) == 12 + other


@pytest.mark.parametrize("together", [True, False], ids=["several counters", "one counter"])
@pytest.mark.parametrize(("expired", "expected"), [(True, Unknown), (False, Duplicate)])
def test_a_refusal_is_unknown_if_the_marker_of_another_call_expires_before_it_is_read(
    stack: MemoryStack, *, together: bool, expired: bool, expected: type
) -> None:
    """The void marker met it, but its content was lost; the process was suspended before it read.

    The marker may have been of this call: then its late request was applied.
    """
    strict = stack.ledger.strict
    strict.create(COUNTER, method="marker", lower=0, opening=3)

    def take() -> object:
        if together:
            return strict.transactions.change({COUNTER: -3}, key="order-1")
        return strict.change(COUNTER, -3, key="order-1")

    def other() -> None:
        strict.change(COUNTER, 10)
        assert isinstance(take(), Applied)

    stack.fail_next()
    stack.before_next_request(lambda: strict.change(COUNTER, -1))
    stack.before_next_request(other, skip=1)  # before the void marker
    # Before the marker is read; a transaction reads the incarnation first.
    skip = 1 if together else 2
    stack.before_next_request(lambda: stack.advance(hours=25 if expired else 1), skip=skip)

    assert isinstance(take(), expected)
    assert _value(stack) == 9


def _topped_up(stack: MemoryStack, delta: int) -> None:
    stack.ledger.strict.change(COUNTER, 10)
    stack.ledger.strict.change(COUNTER, delta, key="order-1")


@pytest.mark.parametrize(("other", "expected"), [(3, Duplicate), (2, None)])
def test_a_refused_hold_that_meets_the_hold_of_another_call_is_about_that_call(
    stack: MemoryStack, other: int, expected: type | None
) -> None:
    strict = stack.ledger.strict
    strict.create(COUNTER, method="marker", lower=0, opening=3)
    hour = timedelta(hours=1)

    def placed() -> None:
        strict.change(COUNTER, 10)
        strict.hold(COUNTER, other, expires_in=hour, key="order-1")

    stack.fail_next()
    stack.before_next_request(lambda: strict.change(COUNTER, -1))
    stack.before_next_request(placed, skip=1)

    if expected is None:
        with pytest.raises(errors.IdempotencyKeyReused):
            strict.hold(COUNTER, 3, expires_in=hour, key="order-1")
    else:
        assert isinstance(strict.hold(COUNTER, 3, expires_in=hour, key="order-1"), expected)

    assert strict.show(COUNTER).held == other


def test_a_refusal_that_meets_the_token_of_another_change_is_no_success(
    stack: MemoryStack,
) -> None:
    """The other one has used the key of a lost request."""
    strict = stack.ledger.strict
    strict.create(COUNTER, method="set", upper=3, opening=2)
    stack.fail_next()
    stack.before_next_request(lambda: strict.change(COUNTER, 1))
    stack.before_next_request(lambda: strict.change(COUNTER, -1, key="order-1"), skip=1)

    with pytest.raises(errors.IdempotencyKeyReused):
        strict.change(COUNTER, 1, key="order-1")

    assert _value(stack) == 2


def test_a_void_marker_that_expires_soon_withdraws_no_late_request(stack: MemoryStack) -> None:
    """Once it is deleted, the late request counts."""
    strict = stack.ledger.strict
    strict.create(COUNTER, method="marker", window_ms=60_000)
    assert isinstance(strict.withdraw(COUNTER, "order-1"), Withdrawn)
    assert isinstance(strict.withdraw(COUNTER, "order-1"), Withdrawn)
    stack.advance(minutes=10)

    assert isinstance(strict.withdraw(COUNTER, "order-1"), Unknown)


def test_a_void_marker_of_several_counters_that_expires_soon_withdraws_no_late_request(
    stack: MemoryStack,
) -> None:
    strict = stack.ledger.strict
    strict.create(COUNTER, method="marker")
    assert isinstance(strict.transactions.withdraw("order-1"), Withdrawn)
    assert isinstance(strict.transactions.withdraw("order-1"), Withdrawn)
    stack.advance(hours=24, minutes=10)

    assert isinstance(strict.transactions.withdraw("order-1"), Unknown)


@pytest.mark.parametrize("bins", [1, 2])
def test_an_applied_change_is_not_said_to_be_in_a_counter_that_was_recreated(
    stack: MemoryStack, bins: int
) -> None:
    """Its answer was lost; the new counter has another value."""
    strict = stack.ledger.strict
    strict.create(COUNTER, method="request_token", bins=bins)

    def recreated() -> None:
        strict.delete(COUNTER)
        strict.create(COUNTER, method="request_token", opening=70, bins=bins)

    stack.lose_next_answer()
    stack.before_next_request(recreated, skip=2)

    assert isinstance(strict.change(COUNTER, 5, key="order-1"), Unknown)
    assert _value(stack) == 70


def test_a_value_is_not_that_of_a_counter_that_was_recreated(stack: MemoryStack) -> None:
    strict = stack.ledger.strict
    strict.create(COUNTER, method="marker")

    def recreated() -> None:
        strict.delete(COUNTER)
        strict.create(COUNTER, method="marker", opening=70)

    stack.before_next_request(recreated, skip=1)

    assert strict.change(COUNTER, 5, key="order-1") == Applied(COUNTER, None)


@pytest.mark.parametrize(
    "skip", [0, 1, 2], ids=["before a try", "between tries", "before the read"]
)
@pytest.mark.parametrize("other", ["the same", "another amount", "withdrawn"])
def test_a_key_that_another_call_uses_before_the_bins_are_read_is_not_refused(
    stack: MemoryStack, skip: int, other: str
) -> None:
    """That call takes the headroom; the bins were tried, and refused, before it or after it."""
    strict = stack.ledger.strict
    strict.create(COUNTER, method="request_token", bins=2, lower=0, opening=2)

    def used() -> None:
        if other == "withdrawn":
            assert isinstance(strict.withdraw(COUNTER, "order-1"), Withdrawn)
            strict.change(COUNTER, -1)
        else:
            delta = -2 if other == "the same" else -1
            assert isinstance(strict.change(COUNTER, delta, key="order-1"), Applied)

    stack.before_next_request(used, skip=skip)

    outcome = strict.change(COUNTER, -2, key="order-1")

    assert isinstance(outcome, Unknown)
    assert _value(stack) == (0 if other == "the same" else 1)


def test_a_key_that_another_call_uses_in_one_bin_before_all_are_read_is_a_duplicate(
    stack: MemoryStack,
) -> None:
    strict = stack.ledger.strict
    strict.create(COUNTER, method="request_token", bins=2, lower=0, opening=2)

    def used() -> None:
        strict.change(COUNTER, 2)
        assert isinstance(strict.change(COUNTER, -2, key="order-1"), Applied)
        strict.change(COUNTER, -1)

    stack.before_next_request(used, skip=2)

    assert isinstance(strict.change(COUNTER, -2, key="order-1"), Duplicate)
    assert _value(stack) == 1
