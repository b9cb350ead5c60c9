"""P6 and P9: several strict counters in one transaction, and one set exactly, on every engine."""

from decimal import Decimal

import pytest

from countledger.ledger import keys
from countledger.ledger.errors import (
    IdempotencyKeyReused,
)
from countledger.ledger.ids import id_of_key
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.definition import SPREADABLE, Method
from countledger.producers.strict.outcome import Applied, BoundReached, Duplicate
from tests.engines.store import Store
from tests.faults.sellers import seller_of

TAKING_PART = [method for method in Method if method is not Method.SET]


@pytest.fixture
def seller(tables: Store) -> StrictCounters:
    """A process with strict counters."""
    return seller_of(tables)


def _values(seller: StrictCounters, *counters: str) -> list[object]:
    return [seller.show(counter).value for counter in counters]


def test_p6_a_transfer_moves_all_of_an_amount_or_nothing(
    seller: StrictCounters, counter: str
) -> None:
    """Both bounds are asked; the one that refuses is named with its value, and nothing moved."""
    rich, poor = f"{counter}-rich", f"{counter}-poor"
    seller.create(rich, method="marker", lower=0, opening=Decimal("10.50"))
    seller.create(poor, method="atomic", upper=12)

    done = seller.transactions.transfer(
        rich, poor, Decimal("10.25"), key=f"t-1 {counter}", note={"by": "ann"}
    )
    too_much = seller.transactions.transfer(rich, poor, 1, key=f"t-2 {counter}")
    too_full = seller.transactions.transfer(poor, rich, 10, key=f"t-3 {counter}")
    full = seller.transactions.change({rich: 5, poor: 2}, key=f"t-4 {counter}")

    assert done == Applied(f"{rich}, {poor}", None)
    assert too_much == BoundReached(rich, Decimal("0.25"), "lower", 0, -1)
    assert isinstance(too_full, Applied)
    assert isinstance(full, Applied)
    assert _values(seller, rich, poor) == [Decimal("15.25"), Decimal("2.25")]


@pytest.mark.parametrize("method", TAKING_PART)
def test_p6_the_key_of_several_changes_counts_once(
    tables: Store, seller: StrictCounters, counter: str, method: Method
) -> None:
    """Whatever the methods: the same again is a duplicate, something else a reused key."""
    other = f"{counter}-2"
    for name in (counter, other):
        seller.create(name, method=method, lower=0, opening=3)
    both = {counter: -3, other: 3}

    first = seller.transactions.change(both, key=f"t-1 {counter}")
    again = seller_of(tables).transactions.change(
        dict(reversed(both.items())), key=f"t-1 {counter}"
    )

    assert isinstance(first, Applied)
    assert isinstance(again, Duplicate)
    for changes in ({counter: -3}, {counter: -2, other: 3}, {counter: 1, other: 3}):
        with pytest.raises(IdempotencyKeyReused, match="t-1"):
            seller.transactions.change(changes, key=f"t-1 {counter}")
    with pytest.raises(IdempotencyKeyReused, match="t-1"):
        seller.transactions.set_value(counter, 9, key=f"t-1 {counter}")
    assert _values(seller, counter, other) == [0, 6]


@pytest.mark.parametrize("method", [Method.OCC, Method.HISTORY])
def test_p6_what_a_method_remembers_outlasts_a_joint_change(
    seller: StrictCounters, counter: str, method: Method
) -> None:
    """It is a version in between and no change in their memory: a key known before is known."""
    seller.create(counter, method=method, upper=9)
    seller.change(counter, 1, key="order-1")

    seller.transactions.change({counter: 2}, key=f"t-1 {counter}")

    assert seller.change(counter, 1, key="order-1") == Duplicate(counter, 3)
    assert isinstance(seller.change(counter, 6, key="order-2"), Applied)
    assert seller.change(counter, 1) == BoundReached(counter, 9, "upper", 9, 1)


@pytest.mark.parametrize("method", SPREADABLE)
def test_p6_a_joint_change_finds_room_in_any_bin(
    seller: StrictCounters, counter: str, method: Method
) -> None:
    """The leg of a spread counter is split where it must be; refused only by all its bins."""
    seller.create(counter, method=method, lower=0, opening=10, bins=4)
    seller.create(f"{counter}-2", method="atomic", upper=11)

    first = seller.transactions.transfer(counter, f"{counter}-2", 9, key=f"t-1 {counter}")
    refused = seller.transactions.transfer(counter, f"{counter}-2", 2, key=f"t-2 {counter}")
    last = seller.transactions.transfer(counter, f"{counter}-2", 1, key=f"t-3 {counter}")

    assert isinstance(first, Applied)
    assert refused == BoundReached(counter, 1, "lower", 0, -2)
    assert isinstance(last, Applied)
    assert _values(seller, counter, f"{counter}-2") == [0, 10]


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("bins", [1, 3])
def test_p6_a_counter_is_set_exactly_and_counts_from_there(
    seller: StrictCounters, counter: str, method: Method, bins: int
) -> None:
    """Between its bounds and no further; its rooms go with it."""
    if bins > 1 and method not in SPREADABLE:
        pytest.skip("no bins")
    seller.create(counter, method=method, lower=0, upper=9, opening=4, bins=bins)

    told = [
        seller.transactions.set_value(counter, value, key=f"s-{value} {counter}")
        for value in (8, 10, -1)
    ]

    assert told[0] == Applied(counter, 8)
    assert told[1:] == [
        BoundReached(counter, 8, "upper", 9, 2),
        BoundReached(counter, 8, "lower", 0, -9),
    ]
    assert isinstance(seller.change(counter, 1), Applied)
    assert isinstance(seller.change(counter, 1), BoundReached)
    assert isinstance(seller.transactions.set_value(counter, 8, key=f"s-8 {counter}"), Duplicate)
    assert _values(seller, counter) == [9]
    assert (seller.show(counter).lower, seller.show(counter).upper) == (0, 9)


def test_p6_the_marker_tells_what_was_changed_and_until_when(
    tables: Store, seller: StrictCounters, counter: str
) -> None:
    """For a day, what clocks may differ, and the life of a request; then it expires by itself."""
    seller.create(counter, method="atomic")
    seller.transactions.change({counter: 2}, key=f"t-1 {counter}", note={"by": "ann"})

    marker = tables.item(tables.counters, keys.keyed_key(id_of_key(f"t-1 {counter}"))) or {}

    assert (marker["changes"], marker["key"]) == ({counter: 2}, f"t-1 {counter}")
    assert marker["note"] == {"by": "ann"}
    assert marker["expires_at"] - marker["at"] // 1_000 in {87_360, 87_361}


def test_p6_a_counter_made_again_is_changed_as_it_is_now(
    tables: Store, seller: StrictCounters, counter: str
) -> None:
    seller.create(counter, method="atomic")
    seller.transactions.change({counter: 1}, key=f"t-1 {counter}")
    other = seller_of(tables)
    other.delete(counter)
    other.create(counter, method="marker", lower=0, opening=7, bins=3)

    assert isinstance(seller.transactions.change({counter: -6}, key=f"t-2 {counter}"), Applied)
    assert isinstance(seller.transactions.set_value(counter, 3, key=f"t-3 {counter}"), Applied)
    assert _values(seller, counter) == [3]
