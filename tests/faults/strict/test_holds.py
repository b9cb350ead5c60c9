"""Holds that expire, by the index of the engine; their calls under faults are in the matrix."""

from datetime import timedelta

from countledger.ledger.limits import MINUTE_MS
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
)
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.strict.sellers import seller_of


def test_expiry_runs_when_it_is_needed(store: Store, counter: str) -> None:
    """The refused sale finds the expired hold."""
    clock = HandClock()
    seller = seller_of(store, clock=clock)
    seller.create(counter, method="marker", lower=0, opening=10)
    seller.hold(counter, 8, key="b", expires_in=timedelta(minutes=10))
    assert isinstance(seller.change(counter, -3, key="o-1"), BoundReached)
    assert [one.amount for one in seller.holds(counter)] == [8]
    clock.sleep_ms(12 * MINUTE_MS)

    assert isinstance(seller.change(counter, -3, key="o-2"), Applied)
    shown = seller.show(counter)
    assert (shown.value, shown.held) == (7, 0)
    assert list(seller.holds(counter)) == []
