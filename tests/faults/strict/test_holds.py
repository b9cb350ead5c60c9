"""Holds under faults, call by call: each counts once, and what is said is what is stored."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from countledger.ledger.ids import id_of_key
from countledger.ledger.limits import MINUTE_MS
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.hold import hold_id
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Cancelled,
    Confirmed,
    EndOutcome,
    Held,
    HoldOutcome,
)
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.injection import held_back
from tests.faults.strict.sellers import client_of, metered, seller_of

TRANSACT = "TransactWriteItems"
TEN = timedelta(minutes=10)
Call = Callable[[StrictCounters, str], HoldOutcome | EndOutcome]


def _place(seller: StrictCounters, counter: str) -> HoldOutcome:
    return seller.hold(counter, 3, key="b", expires_in=TEN)


def _confirm(seller: StrictCounters, counter: str) -> EndOutcome:
    return seller.confirm(hold_id(counter, id_of_key("b")), 2)


def _cancel(seller: StrictCounters, counter: str) -> EndOutcome:
    return seller.cancel(hold_id(counter, id_of_key("b")))


def _state(seller: StrictCounters, counter: str) -> tuple[object, object]:
    shown = seller.show(counter)
    return shown.value, shown.held


CALLS: dict[str, tuple[Call, type, tuple[int, int]]] = {
    "hold": (_place, Held, (10, 3)),
    "confirm": (_confirm, Confirmed, (8, 0)),
    "cancel": (_cancel, Cancelled, (10, 0)),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_request_that_lands_twice_counts_once(store: Store, counter: str, call: str) -> None:
    seller, other = seller_of(store), seller_of(store)
    seller.create(counter, method="marker", lower=0, opening=10)
    act, expected, after = CALLS[call]
    if call != "hold":
        _place(other, counter)

    with held_back(client_of(seller), TRANSACT) as late:
        outcome = act(seller, counter)
    late.land()
    late.land()

    assert type(outcome) is expected
    assert _state(other, counter) == after


def test_expiry_runs_when_it_is_needed(store: Store, counter: str) -> None:
    """By the index of the engine: the refused sale finds the expired hold."""
    clock = HandClock()
    seller = seller_of(store, clock=clock)
    seller.create(counter, method="marker", lower=0, opening=10)
    seller.hold(counter, 8, key="b", expires_in=TEN)
    assert isinstance(seller.change(counter, -3, key="o-1"), BoundReached)
    assert [one.amount for one in seller.holds(counter)] == [8]
    clock.sleep_ms(12 * MINUTE_MS)

    assert isinstance(seller.change(counter, -3, key="o-2"), Applied)
    assert _state(seller, counter) == (7, 0)
    assert list(seller.holds(counter)) == []


def test_p9_what_holds_cost(store: Store, counter: str) -> None:
    """Units of the table and of the index, as the engine reports them."""
    seller = seller_of(store)
    seller.create(counter, method="marker", lower=0, opening=10)
    seller.show(counter)

    def spent(act: Callable[[], object]) -> tuple[float, float]:
        before = metered(seller.context.dynamo)
        act()
        after = metered(seller.context.dynamo)
        return after[0] - before[0], after[1] - before[1]

    costs = [
        spent(lambda: _place(seller, counter)),
        spent(lambda: _confirm(seller, counter)),
    ]
    seller.hold(counter, 1, key="c", expires_in=TEN)
    costs.append(spent(lambda: seller.cancel(hold_id(counter, id_of_key("c")))))

    # One write unit of each is the index's, which lists open holds.
    assert costs == [(5, 0), (5, 1), (5, 1)]
