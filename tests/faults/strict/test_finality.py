"""What was said to be not applied never becomes applied, however late a request lands."""

import pytest

from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.definition import Method
from countledger.producers.strict.outcome import (
    Applied,
    Duplicate,
    StrictOutcome,
    Withdrawn,
)
from tests.engines.store import Store
from tests.faults.canary import WrongNumber
from tests.faults.injection import before_call, held_back
from tests.faults.strict.sellers import client_of, others_change, seller_of, write_of

OPTIMISTIC = (Method.OCC, Method.HISTORY)
REMEMBERING = (Method.REQUEST_TOKEN, Method.MARKER, Method.SET)
# The request by which a method keeps a late one out.


def _expect_value(seller: StrictCounters, counter: str, value: int) -> None:
    found = seller.show(counter).value
    if found != value:
        raise WrongNumber(f"{counter} is {found} and not {value}")


@pytest.mark.parametrize("method", OPTIMISTIC)
def test_a_request_that_lands_before_its_fence_is_found(
    store: Store, counter: str, method: Method
) -> None:
    """It lands after the re-read: the fence fails, and what stood in its way is our own tag."""
    victim = seller_of(store)
    victim.create(counter, method=method)

    with (
        held_back(client_of(victim), at=write_of(method)) as late,
        before_call(client_of(victim), "UpdateItem", late.land, 2),
    ):
        outcome = victim.change(counter, 1)

    assert isinstance(outcome, Applied)
    assert (outcome.value, late.landings) == (1, [200])
    _expect_value(victim, counter, 1)


@pytest.mark.parametrize("method", REMEMBERING)
def test_a_request_that_lands_before_its_way_is_closed_is_found(
    store: Store, counter: str, method: Method
) -> None:
    """Room comes back and the late request lands, just before the refusal would be final."""
    victim, other = seller_of(store), seller_of(store)
    victim.create(counter, method=method, upper=1)
    others_change([other], counter, 1)

    with held_back(client_of(victim), at=write_of(method)) as late:

        def room_and_landing() -> None:
            others_change([other], counter, -1)
            late.land()

        # The one that was lost, the one that found no room, and the fence.
        fence = (write_of(method), 3) if method is not Method.REQUEST_TOKEN else ("UpdateItem", 1)
        with before_call(client_of(victim), fence[0], room_and_landing, fence[1]):
            outcome = victim.change(counter, 1, key="order-1")

    assert late.landings == [200]
    assert isinstance(outcome, Applied)
    _expect_value(victim, counter, 1)


@pytest.mark.parametrize("method", REMEMBERING)
def test_what_was_given_up_stays_out(store: Store, counter: str, method: Method) -> None:
    victim, other = seller_of(store), seller_of(store)
    victim.create(counter, method=method)
    lost: list[StrictOutcome] = []

    def withdraw() -> None:
        lost.append(other.withdraw(counter, "order-1"))

    with (
        held_back(client_of(victim), at=write_of(method)) as late,
        before_call(client_of(victim), write_of(method), withdraw, 2),
    ):
        told = victim.change(counter, 1, key="order-1")
    late.land()

    assert isinstance(lost[0], Withdrawn)
    assert isinstance(told, Withdrawn)
    assert isinstance(other.withdraw(counter, "order-1"), Withdrawn)
    _expect_value(victim, counter, 0)


@pytest.mark.parametrize("method", REMEMBERING)
def test_giving_up_what_is_in_says_so(store: Store, counter: str, method: Method) -> None:
    """The change stays in: whoever gives its key up learns that it counted."""
    victim = seller_of(store)
    victim.create(counter, method=method)
    victim.change(counter, 1, key="order-1")

    assert isinstance(victim.withdraw(counter, "order-1"), Duplicate)
    _expect_value(victim, counter, 1)
