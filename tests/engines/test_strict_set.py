"""P6: how large the item of a counter of method `set` can become, on every engine."""

from uuid import UUID

import pytest

from countledger.ledger import keys
from countledger.ledger.limits import SET_MAX_BYTES, SET_TOKENS_MAX, TOKEN_BYTES
from countledger.ledger.operations import Add, Update
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Duplicate,
    SetFull,
    Withdrawn,
)
from tests.engines.store import Store
from tests.faults.sellers import seller_of


@pytest.fixture
def seller(tables: Store) -> StrictCounters:
    """A process with strict counters."""
    return seller_of(tables)


def test_p6_keys_given_up_fill_a_set_and_never_more_than_that(
    seller: StrictCounters, counter: str
) -> None:
    """In a full set no new key can come in, so nothing has to be written to keep it out."""
    seller.create(counter, method="set", max_tokens=3)
    assert isinstance(seller.change(counter, 1, key="in"), Applied)

    told = [seller.withdraw(counter, f"order-{number}") for number in range(6)]

    assert all(isinstance(one, Withdrawn) for one in told)
    assert seller.show(counter).remembered == 3
    assert isinstance(seller.withdraw(counter, "in"), Duplicate)
    for number in range(6):
        outcome = seller.change(counter, 1, key=f"order-{number}")
        assert isinstance(outcome, Withdrawn if number < 2 else SetFull)
    assert seller.show(counter).value == 1


def test_p6_the_largest_set_stays_within_its_bound(
    tables: Store, seller: StrictCounters, counter: str
) -> None:
    """64 KB of the longest tokens: it is read, refuses, and does not grow by what is given up."""
    seller.create(counter, method="set", max_tokens=SET_TOKENS_MAX)
    ids = (str(UUID(int=number)) for number in range(SET_TOKENS_MAX - 1))
    key = keys.total_key(counter)
    filled = (Add("tokens", {f"{one}=-1" for one in ids}),)
    seller.connection.unretried.update(Update(tables.counters, key, filled))

    told = [
        seller.change(counter, -1, key="last"),
        *(seller.withdraw(counter, f"order-{number}") for number in range(3)),
        seller.change(counter, 1, key="one more"),
        seller.change(counter, -1, key="last"),
    ]

    assert [type(one) for one in told] == [Applied, *[Withdrawn] * 3, SetFull, Duplicate]
    stored = tables.item(tables.counters, key)
    assert stored is not None
    size = sum(len(token) for token in stored["tokens"])
    assert len(stored["tokens"]) == SET_TOKENS_MAX + 1  # with the seed
    assert SET_MAX_BYTES - TOKEN_BYTES * 50 < size <= SET_MAX_BYTES
    assert seller.show(counter).remembered == SET_TOKENS_MAX


def test_a_set_with_one_place_left_refuses_by_its_bound(
    seller: StrictCounters, counter: str
) -> None:
    """What is refused is refused for the reason that a retry meets as well."""
    seller.create(counter, method="set", max_tokens=2, upper=1)
    seller.change(counter, 1)

    told = seller.change(counter, 1)

    assert isinstance(told, BoundReached)
