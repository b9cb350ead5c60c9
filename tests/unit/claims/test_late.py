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
    ItemInTheWay,
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
from countledger.ledger.operations import Delete
from countledger.producers.claims.claim import Claim
from countledger.producers.claims.claims import Claims
from countledger.producers.own_items import ItemChange, NewItem
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import (
    MemoryClient,
    afterwards,
    applied_then_lost,
    at,
    held_back,
    meanwhile,
)

SEAT, NEXT = Claim("seat", "7", "ann"), Claim("seat", "8", "ann")
OWN = NewItem("counters", {"counter": "user", "part": "ann"}, ("counter", "part"))
_CLAIM = {"counter", "part", "owner", "id", "at"}
# What a claim keeps of the tombstone that it replaces.
_TOMBSTONE = {"removed", "removal", "removed_at"}
Late = list[Callable[[], Any]]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def claims(dynamo: MemoryClient, clock: ManualClock) -> Claims:
    return Claims(connection_on(dynamo, clock))


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
    dynamo.plans.append(held_back(late, "update", "transact"))
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
    dynamo.plans.append(held_back(late, "update"))
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
    dynamo.plans.append(held_back(late, "update", times=8))
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
        held_back(late, "update", where=lambda one: "'removed'" in repr(one.condition))
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


@pytest.mark.parametrize(("after_ms", "updates"), [(CLOCK_SKEW_DEFAULT_MS, 2), (MINUTE_MS + 1, 1)])
def test_a_value_is_taken_again_by_one_write_once_no_clock_can_say_that_it_was_before(
    claims: Claims, dynamo: MemoryClient, clock: ManualClock, after_ms: int, updates: int
) -> None:
    claims.take(SEAT)
    claims.release(SEAT)
    clock.at_ms += after_ms
    dynamo.calls.clear()

    assert claims.take(replace(SEAT, owner="bob"))

    assert dynamo.calls == ["update"] * updates
    assert set(_item(dynamo)) == _CLAIM | _TOMBSTONE


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
        assert set(_item(dynamo, one)) == (_CLAIM | _TOMBSTONE if one is SEAT else _CLAIM)


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
    dynamo.plans.append(applied_then_lost("update"))
    dynamo.plans.append(afterwards(lambda: claims.release(SEAT), "update"))

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
        if kind != "update":
            return request()
        try:
            return request()
        finally:
            dynamo.plans.clear()
            claims.release(SEAT)

    dynamo.plans.append(refused_first)

    assert claims.take(SEAT) is False


def _beside(dynamo: MemoryClient, others: Callable[[], object], *kinds: str) -> None:
    """The next such request is applied without an answer, and others go on before the repeat."""

    def planned(_kind: str, _what: object, request: Callable[[], Any]) -> None:
        dynamo.plans.clear()
        request()
        others()
        raise Unclear("the answer was lost")

    dynamo.plans.append(at(planned, *kinds))


def test_a_take_whose_value_another_has_since_is_done(claims: Claims, dynamo: MemoryClient) -> None:
    def others() -> None:
        claims.release(SEAT)
        claims.take(replace(SEAT, owner="bob"))

    _beside(dynamo, others, "update")

    assert claims.take(SEAT) is True
    assert claims.owner("seat", "7") == "bob"


def test_a_take_that_two_others_may_have_followed_is_unclear(
    claims: Claims, dynamo: MemoryClient
) -> None:
    """The item says who had the value last, and not who had it before."""

    def others() -> None:
        claims.release(SEAT)
        for _ in range(2):
            claims.take(replace(SEAT, owner="bob"))
            claims.release(replace(SEAT, owner="bob"))

    _beside(dynamo, others, "update")

    with pytest.raises(Unclear, match="call again"):
        claims.take(SEAT)
    assert claims.owner("seat", "7") is None


def test_a_take_that_was_lost_is_refused_by_a_claim_that_nothing_was_before(
    claims: Claims, dynamo: MemoryClient
) -> None:
    """A fence at the claim costs one unit; then the late request is refused for ever."""
    late: Late = []
    claims.take(replace(SEAT, owner="bob"))
    dynamo.plans.append(held_back(late, "update"))
    dynamo.calls.clear()

    with pytest.raises(AlreadyClaimed, match="bob"):
        claims.take(SEAT)
    assert dynamo.calls == ["update"] * 2  # the repeat, and the fence
    claims.release(replace(SEAT, owner="bob"))
    _arrive(late)

    assert claims.owner("seat", "7") is None


def test_a_release_whose_value_another_has_since_is_done(
    claims: Claims, dynamo: MemoryClient
) -> None:
    claims.take(SEAT)
    _beside(dynamo, lambda: claims.take(replace(SEAT, owner="bob")), "put")

    assert claims.release(SEAT) is True
    assert claims.owner("seat", "7") == "bob"


def test_of_two_takes_under_one_id_the_one_that_was_refused_says_so(
    claims: Claims, dynamo: MemoryClient, clock: ManualClock
) -> None:
    """In one millisecond: the claim keeps the id of the call that took it."""
    mine, others = (
        replace(SEAT, claim_id="booking-1"),
        Claims(connection_on(dynamo, clock)),
    )

    def lost_beside_another(_kind: str, _what: object, _request: Callable[[], Any]) -> None:
        dynamo.plans.clear()
        assert others.take(mine)
        raise Unclear("the request was lost")

    dynamo.plans.append(at(lost_beside_another, "update"))

    assert claims.take(mine) is False


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_a_take_that_an_item_of_the_app_refused_is_applied_never(
    claims: Claims,
    dynamo: MemoryClient,
    *,
    held: bool,
) -> None:
    """Also after the app has removed its item, and its token is forgotten."""
    late: Late = []
    dynamo.put(OWN.write())
    if held:
        claims.take(replace(SEAT, owner="ann"))
    dynamo.plans.append(held_back(late, "transact"))
    with pytest.raises(ItemInTheWay):
        claims.take(SEAT, own=[replace(OWN, item={**OWN.item, "n": 1})])

    dynamo.delete(Delete(*OWN.place))
    dynamo.tokens.clear()
    _arrive(late)

    assert dynamo.get(*OWN.place, consistent=True) is None
    assert claims.owner("seat", "7") == ("ann" if held else None)


def test_a_take_puts_an_item_of_the_app_once(claims: Claims, dynamo: MemoryClient) -> None:
    """Its first request arrives after the app has removed the item that the second one put."""
    late: Late = []
    dynamo.plans.append(held_back(late, "transact"))
    assert claims.take(SEAT, own=[OWN])

    dynamo.delete(Delete(*OWN.place))
    dynamo.tokens.clear()
    _arrive(late)

    assert len(late) == 1
    assert dynamo.get(*OWN.place, consistent=True) is None


def test_a_release_that_an_item_of_the_app_refused_is_applied_never(
    claims: Claims, dynamo: MemoryClient
) -> None:
    late: Late = []
    claims.take(SEAT)
    dynamo.plans.append(held_back(late, "transact"))
    with pytest.raises(ItemInTheWay):
        claims.release(SEAT, own=[ItemChange("counters", OWN.place[1], {"n": 2}, {"n": 1})])

    dynamo.put(replace(OWN, item={**OWN.item, "n": 1}).write())
    dynamo.tokens.clear()
    _arrive(late)

    assert claims.owner("seat", "7") == "ann"
    assert claims.release(SEAT)


def test_a_refused_take_that_is_applied_before_its_fence_was_done(
    claims: Claims, dynamo: MemoryClient
) -> None:
    """The same request is asked again, and its token says so."""
    late: Late = []
    dynamo.put(OWN.write())
    dynamo.plans.append(held_back(late, "transact"))

    def arrives() -> None:
        dynamo.plans.clear()
        dynamo.delete(Delete(*OWN.place))
        _arrive(late)

    dynamo.plans.append(meanwhile(arrives, "get"))

    assert claims.take(SEAT, own=[replace(OWN, item={**OWN.item, "n": 1})])
    assert claims.owner("seat", "7") == "ann"


def test_a_release_by_an_id_that_is_not_there_is_unclear_after_a_lost_request(
    claims: Claims, dynamo: MemoryClient
) -> None:
    """A claim may be taken under that id, and the first request would release it."""
    dynamo.plans.append(held_back([], "put"))

    with pytest.raises(Unclear):
        claims.release(replace(SEAT, claim_id="booking-1"))
