"""Spread counters: bounds hold, nothing accepted is lost, and what is left anywhere is sold."""

from functools import partial

import pytest

from countledger.ledger.clock import SystemClock
from countledger.producers.strict.definition import Method
from countledger.producers.strict.outcome import (
    Applied,
    Duplicate,
    Unknown,
)
from tests.engines.numbering import at_once
from tests.engines.store import Store
from tests.faults.injection import Fault, Kind, faults, held_back
from tests.faults.strict.sellers import client_of, seller_of, write_of

WRITERS = 8


@pytest.mark.parametrize("method", [Method.REQUEST_TOKEN, Method.MARKER])
def test_a_key_counts_once_whichever_bin_it_meets(
    store: Store, counter: str, method: Method
) -> None:
    sellers = [seller_of(store, clock=SystemClock()) for _ in range(WRITERS)]
    sellers[0].create(counter, method=method, lower=0, opening=40, bins=8)

    outcomes = at_once([partial(s.change, counter, -1, key="k") for s in sellers])

    assert [type(outcome) for outcome in outcomes].count(Applied) == 1
    assert {type(outcome) for outcome in outcomes} <= {Applied, Duplicate}
    assert sellers[0].show(counter).value == 39


def test_an_unclear_bin_of_method_atomic_is_the_last_one(store: Store, counter: str) -> None:
    """Nobody can resolve it, so no other bin is tried."""
    seller = seller_of(store)
    seller.create(counter, method="atomic", lower=0, opening=40, bins=8)

    with faults(
        client_of(seller), at="UpdateItem", plan=[Fault(Kind.TIMEOUT, applied=True)]
    ) as attempts:
        outcome = seller.change(counter, -1)

    assert isinstance(outcome, Unknown)
    assert len(attempts) == 1
    assert seller.show(counter).value == 39


@pytest.mark.parametrize("method", [Method.REQUEST_TOKEN, Method.MARKER])
def test_a_late_request_to_a_bin_stays_out_after_another_took_the_change(
    store: Store, counter: str, method: Method
) -> None:
    seller, other = seller_of(store), seller_of(store)
    seller.create(counter, method=method, lower=0, opening=16, bins=2)

    with held_back(client_of(seller), at=write_of(method)) as late:
        # Empty one bin of its eight: whichever it is, the change finds room in the other.
        outcome = seller.change(counter, -8, key="k")
    late.land()

    assert isinstance(outcome, Applied)
    assert other.show(counter).value == 8
