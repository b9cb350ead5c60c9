"""A take that arrives when its claim is released makes no claim that nobody has."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.errors import (
    AlreadyClaimed,
    ConditionFailed,
    NotClaimed,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    MINUTE_MS,
    SECOND_MS,
    SIGNED_REQUEST_LIFE_MS,
)
from countledger.producers.claims.claim import Claim
from countledger.producers.claims.claims import Claims
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient, afterwards, applied_then_lost, held_back
from tests.unit.strict.contexts import context_on

SEAT, NEXT = Claim("seat", "7", "ann"), Claim("seat", "8", "ann")
Late = list[Callable[[], Any]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def claims(dynamo: MemoryClient, clock: ManualClock) -> Claims:
    return Claims(context_on(dynamo, clock), "eu", "eu")


def _item(dynamo: MemoryClient, claim: Claim = SEAT) -> Item:
    (found,) = (one for one in dynamo.items("counters") if one["counter"] == claim.key["counter"])
    return found


def _arrive(late: Late) -> None:
    for request in late:
        with suppress(ConditionFailed, TransactionCancelled):
            request()


@pytest.mark.parametrize("taken", [[SEAT], [SEAT, NEXT]], ids=["alone", "two"])
def test_a_late_attempt_makes_no_claim_after_its_release(
    claims: Claims, dynamo: MemoryClient, taken: list[Claim]
) -> None:
    """The first attempt is still on its way when the second one has claimed."""
    late: Late = []
    dynamo.plans.append(held_back(late, "put", "transact"))
    assert claims.take(*taken)
    assert claims.release(*taken)
    dynamo.tokens.clear()  # they are remembered for a shorter time than a request may take

    _arrive(late)

    assert len(late) == 1
    assert [claims.find(one.scope, one.value) for one in taken] == [None] * len(taken)


def test_a_late_attempt_makes_no_claim_after_its_value_was_changed(
    claims: Claims, dynamo: MemoryClient
) -> None:
    late: Late = []
    dynamo.plans.append(held_back(late, "put"))
    claims.take(SEAT)
    claims.change(SEAT, "8")

    _arrive(late)

    assert [claims.owner("seat", value) for value in "78"] == [None, "ann"]


def test_a_late_change_claims_nothing_once_its_new_value_is_released(
    claims: Claims, dynamo: MemoryClient
) -> None:
    claims.take(SEAT)
    late: Late = []
    dynamo.plans.append(held_back(late, "transact"))
    claims.change(SEAT, "8")
    claims.release(NEXT)
    dynamo.tokens.clear()

    _arrive(late)

    assert [claims.owner("seat", value) for value in "78"] == [None, None]


@pytest.mark.parametrize("owner", ["ann", "bob"])
def test_a_call_that_never_got_an_answer_claims_nothing_after_a_later_release(
    claims: Claims, dynamo: MemoryClient, clock: ManualClock, owner: str
) -> None:
    """The next call cannot know of it: the last one that released the value did it."""
    late: Late = []
    dynamo.plans.append(held_back(late, "put", times=8))
    with pytest.raises(Unclear):
        claims.take(SEAT)
    claims.take(replace(SEAT, owner=owner))
    claims.release(replace(SEAT, owner=owner))
    clock.at_ms += SIGNED_REQUEST_LIFE_MS - MINUTE_MS

    _arrive(late)

    assert len(late) == 8
    assert claims.owner("seat", "7") is None


def test_a_late_attempt_of_an_earlier_owner_takes_no_value_that_was_taken_over_its_tombstone(
    claims: Claims, dynamo: MemoryClient
) -> None:
    """It names the tombstone that it has met, and there is another one by now."""
    claims.take(SEAT)
    claims.release(SEAT)
    late: Late = []
    dynamo.plans.append(
        held_back(late, "put", where=lambda put: "'removed'" in repr(put.condition))
    )
    claims.take(SEAT)
    claims.release(SEAT)

    _arrive(late)

    assert late
    assert claims.owner("seat", "7") is None


def test_a_release_leaves_a_tombstone_for_as_long_as_requests_may_arrive(
    claims: Claims, dynamo: MemoryClient
) -> None:
    claims.take(replace(SEAT, claim_id="booking-1"))
    claims.release(SEAT)

    left = _item(dynamo)
    assert left is not None
    assert left.pop("removal")
    assert left == {
        **keys.claim_key("seat", ("7",)),
        "removed": "booking-1",
        "removed_at": NOW_MS,
        "expires_at": (NOW_MS + SIGNED_REQUEST_LIFE_MS + 2 * CLOCK_SKEW_DEFAULT_MS) // SECOND_MS,
    }


@pytest.mark.parametrize(("after_ms", "puts"), [(CLOCK_SKEW_DEFAULT_MS, 2), (MINUTE_MS + 1, 1)])
def test_a_value_is_taken_again_by_one_write_once_no_clock_can_say_that_it_was_before(
    claims: Claims, dynamo: MemoryClient, clock: ManualClock, after_ms: int, puts: int
) -> None:
    claims.take(SEAT)
    claims.release(SEAT)
    clock.at_ms += after_ms
    dynamo.calls.clear()

    assert claims.take(replace(SEAT, owner="bob"))

    assert dynamo.calls == ["put"] * puts
    assert set(_item(dynamo)) == {"counter", "part", "owner", "id", "at"}


@pytest.mark.parametrize(("after_ms", "sent"), [(CLOCK_SKEW_DEFAULT_MS, 2), (MINUTE_MS + 1, 1)])
def test_values_are_taken_together_over_tombstones(
    claims: Claims, dynamo: MemoryClient, clock: ManualClock, after_ms: int, sent: int
) -> None:
    """A claim never keeps the time at which its tombstone would have gone."""
    claims.take(SEAT)
    claims.release(SEAT)
    clock.at_ms += after_ms
    dynamo.calls.clear()

    assert claims.take(SEAT, NEXT)

    assert dynamo.calls == ["transact"] * sent
    for one in (SEAT, NEXT):
        assert set(_item(dynamo, one)) == {"counter", "part", "owner", "id", "at"}


def test_another_owner_is_named_before_a_tombstone_is_taken_over(claims: Claims) -> None:
    claims.take(SEAT)
    claims.release(SEAT)
    claims.take(replace(NEXT, owner="bob"))

    with pytest.raises(AlreadyClaimed, match="bob"):
        claims.take(SEAT, NEXT)

    assert claims.owner("seat", "7") is None


@pytest.mark.parametrize("more", [[], [NEXT]], ids=["alone", "two"])
def test_an_id_that_was_released_claims_nothing_again(claims: Claims, more: list[Claim]) -> None:
    """Of a message that is delivered again; and a late release of that id may be on its way."""
    mine = replace(SEAT, claim_id="booking-1")
    claims.take(mine)
    claims.release(mine)

    with pytest.raises(NotClaimed, match="'booking-1' was released: take the value under a new"):
        claims.take(mine, *more)

    assert [claims.owner("seat", value) for value in "78"] == [None, None]


def test_a_take_whose_claim_is_released_before_its_answer_arrives_is_done(
    claims: Claims, dynamo: MemoryClient
) -> None:
    """Another process of the same owner releases it; the repeat claims nothing."""
    dynamo.plans.append(applied_then_lost("put"))
    dynamo.plans.append(afterwards(lambda: claims.release(SEAT), "put"))

    assert claims.take(SEAT)

    assert claims.owner("seat", "7") is None


def test_a_release_whose_answer_is_lost_knows_its_own_tombstone(
    claims: Claims, dynamo: MemoryClient
) -> None:
    claims.take(SEAT)
    dynamo.plans.append(applied_then_lost("put"))

    assert claims.release(SEAT) is True
    assert claims.release(SEAT) is False


def test_of_two_releases_of_a_claim_in_one_millisecond_one_did_it(
    claims: Claims, dynamo: MemoryClient
) -> None:
    """The first attempt of this call was lost, and another call released the claim meanwhile."""
    claims.take(SEAT)
    others: list[bool] = []

    def lost_beside_another(kind: str, _what: object, request: Callable[[], object]) -> object:
        if kind != "put":
            return request()
        dynamo.plans.clear()
        others.append(claims.release(SEAT))
        raise Unclear("the request was lost")

    dynamo.plans.append(lost_beside_another)

    assert (claims.release(SEAT), others) == (False, [True])


def test_a_take_beside_a_release_by_the_same_owner_was_done_before(
    claims: Claims, dynamo: MemoryClient
) -> None:
    """The claim was there when the condition met it, also if another call has released it since."""
    claims.take(SEAT)

    def refused_first(kind: str, _what: object, request: Callable[[], object]) -> object:
        if kind != "put":
            return request()
        try:
            return request()
        finally:
            dynamo.plans.clear()
            claims.release(SEAT)

    dynamo.plans.append(refused_first)

    assert claims.take(SEAT) is False
