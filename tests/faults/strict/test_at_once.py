"""Several strict counters at once under faults: all or none, once, and what is said is so."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from countledger.consumers.totals import SnapshotReader
from countledger.ledger.operations import AllOf, Compare, Condition
from countledger.producers.strict import multi_update
from countledger.producers.strict.counters import StrictCounters
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Contended,
)
from tests.engines.store import Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import (
    Fault,
    Kind,
    before_call,
    faults,
)
from tests.faults.strict.sellers import client_of, others_change, seller_of

TRANSACT = "TransactWriteItems"


def without_the_version(patch: pytest.MonkeyPatch) -> None:
    """Set a counter by what was read, whatever came since."""

    def of(incarnation: str, *_: Condition) -> Condition:
        return AllOf(Compare("incarnation", "=", incarnation))

    patch.setattr(multi_update, "of", of)


def _pair(store: Store, counter: str) -> tuple[StrictCounters, str, str]:
    seller = seller_of(store)
    source, target = f"{counter}-a", f"{counter}-b"
    seller.create(source, method="atomic", lower=0, opening=5)
    seller.create(target, method="occ", upper=5)
    return seller, source, target


def _expect(seller: StrictCounters, values: dict[str, int]) -> None:
    found = {counter: seller.show(counter).value for counter in values}
    if found != values:
        raise WrongNumber(f"{found} and not {values}")


def test_no_snapshot_shows_half_a_transfer(store: Store, counter: str) -> None:
    """While one thread moves things to and fro another one looks: the sum is always the same."""
    seller, source, target = _pair(store, counter)
    reader = SnapshotReader(store.connection)

    def move() -> None:
        for number in range(20):
            there = (source, target) if number % 2 == 0 else (target, source)
            seller.transactions.transfer(*there, 1, key=f"{counter}-{number}")

    sums: set[object] = set()
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(move)
        while not moving.done() or not sums:
            found = reader.read([source, target]).totals
            sums.add(sum(one.value for one in found.values()))
        moving.result()

    assert sums == {5}


@judged(without_the_version)
@pytest.mark.parametrize("bins", [1, 3])
def test_a_bound_that_moves_meanwhile_is_respected(
    store: Store, counter: str, bins: int, rule: Rule
) -> None:
    """It comes between the read and the write: what was to be set lies outside of it now."""
    seller, other = seller_of(store), seller_of(store)
    seller.create(counter, method="atomic", upper=9, opening=5, bins=bins)

    def lowered() -> None:
        other.set_bounds(counter, upper=6)

    with rule.watched():
        with before_call(client_of(seller), TRANSACT, lowered):
            outcome = seller.transactions.set_value(counter, 8, key=f"s {counter}")
        _expect(seller, {counter: 5})
        assert outcome == BoundReached(counter, 5, "upper", 6, 3)


def test_a_value_is_set_over_no_change_that_was_not_seen(store: Store, counter: str) -> None:
    """One that comes between the read and the write is read first; with bins as well."""
    for bins in (1, 3):
        name = f"{counter}-{bins}"
        seller, other = seller_of(store), seller_of(store)
        seller.create(name, method="atomic", upper=9, opening=5, bins=bins)

        def others(name: str = name, other: StrictCounters = other) -> None:
            others_change([other], name, 1)

        with before_call(client_of(seller), TRANSACT, others):
            outcome = seller.transactions.set_value(name, 2, key=f"s-{name}")

        assert outcome == Applied(name, 2)
        assert isinstance(seller.change(name, 8), BoundReached)
        assert isinstance(seller.change(name, 7), Applied)
        _expect(seller, {name: 9})


def test_a_value_that_others_change_each_time_is_contended(store: Store, counter: str) -> None:
    """Also after a request without an answer: the refusal is made final, and says why."""
    seller, other = seller_of(store), seller_of(store)
    seller.create(counter, method="atomic")
    client_of(seller).meta.events.register(
        f"before-call.*.{TRANSACT}", lambda **_: others_change([other], counter, 1)
    )

    with faults(client_of(seller), at=TRANSACT, plan=[Fault(Kind.TIMEOUT)]):
        outcome = seller.transactions.set_value(counter, 2, key=f"s {counter}")

    assert isinstance(outcome, Contended)
    assert outcome.counter == counter
    assert "others changed the counter each time" in outcome.reason
