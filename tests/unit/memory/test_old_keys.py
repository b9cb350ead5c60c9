"""A key whose entry may be deleted soon, after a lost answer."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from countledger import errors
from countledger.testing import MemoryStack

_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
_COUNTER = "likes:post-1"


@pytest.fixture
def stack() -> MemoryStack:
    made = MemoryStack(at=_AT)
    made.ledger.record(_COUNTER, 5, key="order-1")
    return made


@pytest.mark.parametrize("delta", [5, 6])
def test_an_old_entry_refuses_nothing_that_may_still_be_recorded(
    stack: MemoryStack, delta: int
) -> None:
    """The old entry is merged and deleted; then the first request lands, and is recorded."""
    stack.advance(days=3)
    stack.delay_next()

    with pytest.raises(errors.Unacknowledged):
        stack.ledger.record(_COUNTER, delta, key="order-1")

    stack.ledger.compactor().compact(_COUNTER)
    assert stack.land() == [None]
    assert stack.ledger.exact(_COUNTER).value == 5 + delta


def test_an_entry_within_the_horizon_makes_it_a_duplicate(stack: MemoryStack) -> None:
    stack.advance(hours=23)
    stack.delay_next()

    assert str(stack.ledger.record(_COUNTER, 5, key="order-1").status) == "duplicate"

    (refused,) = stack.land()
    assert isinstance(refused, errors.ConditionFailed)
    assert stack.ledger.exact(_COUNTER).value == 5
