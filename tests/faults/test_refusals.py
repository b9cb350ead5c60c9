"""Attempts that are clearly refused are made again, so often and no oftener."""

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import pytest

from countledger.consumers.totals import SnapshotReader
from countledger.ledger.errors import IdempotencyKeyReused
from countledger.ledger.operations import AllOf, Compare, Condition
from countledger.producers.strict import multi_update
from countledger.producers.strict.definition import SPREADABLE, Method
from countledger.producers.strict.outcome import (
    Applied,
    BoundReached,
    Contended,
    Duplicate,
    Unknown,
    Withdrawn,
)
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import Fault, Kind, before_call, faults, first_reason_kept_back
from tests.faults.play import ON_THE_ENGINE
from tests.faults.sellers import client_of, others_change, seller_of, write_of

ATTEMPTS = {Method.OCC: 14, Method.HISTORY: 14}


@pytest.mark.parametrize("method", list(Method))
def test_endless_conflicts_end_as_contended(store: Store, counter: str, method: Method) -> None:
    """Nothing is in, and the waits between the attempts grew, by chance, up to a second."""
    clock = HandClock()
    seller = seller_of(store, clock=clock)
    seller.create(counter, method=method)

    with faults(client_of(seller), at=write_of(method), plan=repeat(Fault(Kind.CONFLICT))):
        outcome = seller.change(counter, 1)

    assert isinstance(outcome, Contended)
    assert outcome.attempts == ATTEMPTS.get(method, 8)
    assert len(clock.slept_ms) == outcome.attempts - 1
    assert max(clock.slept_ms) <= 1_000
    assert len(set(clock.slept_ms)) == len(clock.slept_ms)
    assert seller.show(counter).value == 0


@ON_THE_ENGINE
@pytest.mark.parametrize("method", list(Method))
def test_the_sdk_does_not_retry_behind_our_back(store: Store, counter: str, method: Method) -> None:
    """The product's own client makes one attempt; each method decides about the next."""
    strict = store.app().strict
    strict.create(counter, method=method)
    client = strict.connection.unretried.client
    calls: list[str] = []
    client.meta.events.register(
        "before-call", lambda model, **_: calls.append(model.name), unique_id="calls"
    )

    with faults(client, at=write_of(method), plan=[Fault(Kind.SERVER_ERROR)]) as attempts:
        strict.change(counter, 1)

    assert len(attempts) == calls.count(write_of(method))


def test_a_bound_reached_after_a_doubtful_attempt_stays_unknown(store: Store, counter: str) -> None:
    seller = seller_of(store)
    seller.create(counter, method="atomic", upper=1)

    with faults(client_of(seller), at="UpdateItem", plan=[Fault(Kind.TIMEOUT, applied=True)]):
        outcome = seller.change(counter, 1, prefer="over")

    assert isinstance(outcome, Unknown)
    assert seller.show(counter).value == 1


@pytest.mark.parametrize("bins", [1, 3])
@pytest.mark.parametrize(
    ("before", "told"), [(None, BoundReached), (1, Duplicate), ("given up", Withdrawn)]
)
def test_no_bound_is_said_to_be_reached_while_a_marker_is_there(
    store: Store, counter: str, before: object, told: type, bins: int
) -> None:
    first, retry = seller_of(store), seller_of(store)
    first.create(counter, method="marker", upper=1, bins=bins)
    if before == 1:
        first.change(counter, 1, key="order-1")
    else:
        first.change(counter, 1)
    if before == "given up":
        first.withdraw(counter, "order-1")

    with first_reason_kept_back(client_of(retry), times=10) as kept:
        outcome = retry.change(counter, 1, key="order-1")

    # The engine names them all; what it said of the marker was kept back.
    assert set(kept) == {"None" if before is None else "ConditionalCheckFailed"}
    assert isinstance(outcome, told)
    assert first.show(counter).value == 1


def test_another_amount_under_a_key_is_seen_behind_a_bound(store: Store, counter: str) -> None:
    first, retry = seller_of(store), seller_of(store)
    first.create(counter, method="marker", upper=1)
    first.change(counter, 1, key="order-1")

    with (
        first_reason_kept_back(client_of(retry)),
        pytest.raises(IdempotencyKeyReused, match="order-1"),
    ):
        retry.change(counter, 2, key="order-1")


def test_a_marker_that_cannot_be_looked_for_leaves_it_open(store: Store, counter: str) -> None:
    """Neither refused nor in: the same key will tell."""
    first, retry = seller_of(store), seller_of(store)
    first.create(counter, method="marker", upper=1, opening=1)
    assert isinstance(retry.change(counter, 1), BoundReached)

    with faults(
        retry.connection.retrying.client, at="GetItem", plan=repeat(Fault(Kind.SERVER_ERROR))
    ):
        outcome = retry.change(counter, 1, key="order-1")

    assert isinstance(outcome, Unknown)


def test_a_retry_of_a_split_under_method_request_token_is_never_refused(
    store: Store, counter: str
) -> None:
    """It cannot be told from another change under the key; but that it is not in, is not said."""
    seller, other = seller_of(store), seller_of(store)
    seller.create(counter, method="request_token", lower=0, opening=40, bins=8)
    assert isinstance(seller.change(counter, -33, key="order-1"), Applied)
    assert isinstance(other.change(counter, -7), Applied)

    again = other.change(counter, -33, key="order-1")

    assert isinstance(again, Unknown)
    assert "split" in again.advice
    assert seller.show(counter).value == 0


@pytest.mark.parametrize("method", SPREADABLE)
def test_a_refused_change_of_a_spread_counter_is_not_in(
    store: Store, counter: str, method: Method
) -> None:
    """All bins together were asked, as of one moment."""
    seller, other = seller_of(store), seller_of(store)
    seller.create(counter, method=method, lower=0, opening=8, bins=8)

    refused = seller.change(counter, -9)
    others_change([other], counter, -8)

    assert refused == BoundReached(counter, 8, "lower", 0, -9)
    assert seller.show(counter).value == 0


def test_no_snapshot_shows_half_a_transfer(store: Store, counter: str) -> None:
    """While one thread moves things to and fro another one looks: the sum is always the same."""
    seller, source, target = seller_of(store), f"{counter}-a", f"{counter}-b"
    seller.create(source, method="atomic", lower=0, opening=5)
    seller.create(target, method="occ", upper=5)
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


def without_the_version(patch: pytest.MonkeyPatch) -> None:
    """Set a counter by what was read, whatever came since."""

    def of(incarnation: str, *_: Condition) -> Condition:
        return AllOf(Compare("incarnation", "=", incarnation))

    patch.setattr(multi_update, "of", of)


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
        with before_call(client_of(seller), "TransactWriteItems", lowered):
            outcome = seller.transactions.set_value(counter, 8, key=f"s {counter}")
        if seller.show(counter).value != 5:
            raise WrongNumber(counter)
        assert outcome == BoundReached(counter, 5, "upper", 6, 3)


def test_a_value_that_others_change_each_time_is_contended(store: Store, counter: str) -> None:
    """Also after a request without an answer: the refusal is made final, and says why."""
    seller, other = seller_of(store), seller_of(store)
    seller.create(counter, method="atomic")
    client_of(seller).meta.events.register(
        "before-call.*.TransactWriteItems", lambda **_: others_change([other], counter, 1)
    )

    with faults(client_of(seller), at="TransactWriteItems", plan=[Fault(Kind.TIMEOUT)]):
        outcome = seller.transactions.set_value(counter, 2, key=f"s {counter}")

    assert isinstance(outcome, Contended)
    assert outcome.counter == counter
    assert "others changed the counter each time" in outcome.reason
