"""Spread counters: bounds hold, nothing accepted is lost, and what is left anywhere is sold."""

from functools import partial
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from countledger.ledger import keys
from countledger.ledger.attempts import Steps
from countledger.ledger.attributes import Item
from countledger.ledger.clock import SystemClock
from countledger.ledger.ids import new_id
from countledger.producers.strict import atomic
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.definition import SPREADABLE, Method
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Contended,
    Duplicate,
    StrictOutcome,
    Unknown,
    Withdrawn,
)
from tests.engines.store import Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import Fault, Kind, before_call, faults, held_back
from tests.faults.strict.sellers import client_of, in_threads, others_change, seller_of, write_of

WRITERS = 8
CHANGES = 5


def _bins(store: Store, counter: str, bins: int) -> list[Item]:
    """The items that hold the value."""
    places = [keys.bin_key(counter, number) for number in range(bins)]
    found = [store.item(store.counters, place) for place in places]
    return [item for item in found if item is not None]


def _check_each_bin(items: list[Item]) -> None:
    """Every bin keeps its own bounds, and its rooms say how far they are."""
    for item in items:
        assert item["lower"] <= item["total"] <= item["upper"]
        assert item["headroom_up"] == item["upper"] - item["total"]
        assert item["headroom_down"] == item["total"] - item["lower"]


def _work(seller: StrictCounters, counter: str, seed: int) -> list[tuple[int, StrictOutcome]]:
    """One writer's changes, by a seed."""
    random = Random(seed)  # noqa: S311 - a test
    deltas = [random.choice([-1, 1]) * random.randint(1, 12) for _ in range(CHANGES)]
    return [(delta, seller.change(counter, delta)) for delta in deltas]


@pytest.mark.parametrize("method", SPREADABLE)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    bins=st.integers(2, 12),
    stock=st.tuples(st.integers(0, 60), st.integers(1, 40)),
    seed=st.integers(0, 10**6),
)
def test_bounds_hold_and_nothing_accepted_is_lost(
    store: Store, method: Method, bins: int, stock: tuple[int, int], seed: int
) -> None:
    counter = f"bins:{new_id(0)}"
    sellers = [seller_of(store, clock=SystemClock()) for _ in range(WRITERS)]
    opening, upper = stock[0], sum(stock)
    sellers[0].create(counter, method=method, lower=0, upper=upper, opening=opening, bins=bins)

    results: list[tuple[int, StrictOutcome]] = []

    def work(number: int) -> StrictOutcome:
        results.extend(_work(sellers[number], counter, seed + number))
        return results[-1][1]

    in_threads([partial(work, number) for number in range(WRITERS)])

    accepted = sum(delta for delta, outcome in results if isinstance(outcome, Applied))
    items = _bins(store, counter, bins)
    left = sellers[0].show(counter).value
    assert {type(outcome) for _, outcome in results} <= {Applied, BoundReached, Contended}
    assert left == opening + accepted == sum(item["total"] for item in items)
    _check_each_bin(items)
    # Whatever is left, in whichever bins: one buyer can have all of it, and no more.
    if left:
        assert isinstance(sellers[1].change(counter, -left), Applied)
    refused = sellers[1].change(counter, -1)
    assert isinstance(refused, BoundReached)
    assert (refused.value, refused.bound) == (0, 0)
    assert sellers[0].show(counter).value == 0


@pytest.mark.parametrize("method", [Method.CRT, Method.MARKER])
def test_a_key_counts_once_whichever_bin_it_meets(
    store: Store, counter: str, method: Method
) -> None:
    sellers = [seller_of(store, clock=SystemClock()) for _ in range(WRITERS)]
    sellers[0].create(counter, method=method, lower=0, opening=40, bins=8)

    outcomes = in_threads([partial(s.change, counter, -1, key="k") for s in sellers])

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


@pytest.mark.parametrize("method", [Method.CRT, Method.MARKER])
def test_a_late_request_to_a_bin_stays_out_after_another_took_the_change(
    store: Store, counter: str, method: Method
) -> None:
    seller, other = seller_of(store), seller_of(store)
    seller.create(counter, method=method, lower=0, opening=16, bins=2)

    with held_back(client_of(seller), write_of(method)) as late:
        # Empty one bin of its eight: whichever it is, the change finds room in the other.
        outcome = seller.change(counter, -8, key="k")
    late.land()

    assert isinstance(outcome, Applied)
    assert other.show(counter).value == 8


def without_using_the_token_up(patch: pytest.MonkeyPatch) -> None:
    """Leave a split of method atomic its way."""

    def believed(*_: object) -> Steps[StrictOutcome]:
        yield from ()
        return Withdrawn("", "")

    patch.setattr(atomic, "use_up", believed)


@judged(without_using_the_token_up)
def test_a_late_split_of_method_atomic_stays_out(store: Store, counter: str, rule: Rule) -> None:
    """Others take the room and give it back: the late transaction finds its token used up."""
    seller, other = seller_of(store), seller_of(store)
    seller.create(counter, method="atomic", lower=0, upper=40, opening=40, bins=8)

    def sell_out() -> None:
        others_change([other], counter, -40)

    with rule.watched():
        # After the request that is held back, and before the next one.
        client = client_of(seller)
        with (
            held_back(client, "TransactWriteItems") as late,
            before_call(client, "TransactWriteItems", sell_out, 2),
        ):
            outcome = seller.change(counter, -33)
        others_change([other], counter, 40)
        late.land()

        assert isinstance(outcome, BoundReached)
        if other.show(counter).value != 40:
            raise WrongNumber(f"{counter} is {other.show(counter).value}")
        assert late.landings == [400]


@pytest.mark.parametrize("method", SPREADABLE)
def test_bounds_of_a_spread_counter_move_while_it_is_in_use(
    store: Store, counter: str, method: Method
) -> None:
    """More stock is put on sale while seven sell: all of it can be sold, and no more."""
    sellers = [seller_of(store, clock=SystemClock()) for _ in range(WRITERS)]
    sellers[0].create(counter, method=method, upper=20, bins=5)

    def sell(seller: StrictCounters) -> StrictOutcome:
        for _ in range(4):
            outcome = seller.change(counter, 1)
        return outcome

    def restock() -> StrictOutcome:
        sellers[0].set_bounds(counter, upper=50)
        return Contended(counter, 0, "")

    in_threads([restock, *(partial(sell, s) for s in sellers[1:])])

    sold = sellers[0].show(counter)
    assert sold.upper == 50
    assert isinstance(sellers[0].change(counter, 50 - sold.value), Applied)
    refused = sellers[0].change(counter, 1)
    assert isinstance(refused, BoundReached)
    assert (refused.value, refused.bound) == (50, 50)
