"""A take that arrives when its claim is released makes no claim that nobody has.

`tests/unit/test_laws.py` has what holds for every capability.
"""

from dataclasses import replace

import pytest

from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.errors import AlreadyClaimed, ItemInTheWay, NotClaimed, Unclear
from countledger.ledger.limits import (
    CLOCK_SKEW_DEFAULT_MS,
    MINUTE_MS,
    SECOND_MS,
    SIGNED_REQUEST_LIFE_MS,
)
from countledger.ledger.operations import Delete
from countledger.producers.claims.claim import Claim, Freeing
from countledger.producers.own_items import ItemChange
from tests.unit.claims.stacks import NEXT, OWN, SEAT, Seats

BOBS = replace(SEAT, owner="bob")
BOOKING = replace(SEAT, claim_id="booking-1")
CHANGED = replace(OWN, item={**OWN.item, "n": 1})
_CLAIM = {"counter", "part", "owner", "id", "at"}
# What a claim keeps of the tombstone that it replaces.
_TOMBSTONE = {"removed", "removal", "removed_at"}
_NOW_MS, _SKEW_MS = 1_900_000_000_000, CLOCK_SKEW_DEFAULT_MS


@pytest.fixture
def seats() -> Seats:
    return Seats()


def test_a_late_attempt_for_two_values_claims_none_after_their_release(seats: Seats) -> None:
    """The first attempt is still on its way when the second one has claimed."""
    seats.stack.delay_next()
    assert seats.claims.take(SEAT, NEXT)
    assert seats.claims.release(SEAT, NEXT)

    assert seats.late() == 1
    assert seats.owners("7", "8") == [None, None]


def test_a_late_attempt_makes_no_claim_after_its_value_was_changed(seats: Seats) -> None:
    seats.stack.delay_next()
    seats.claims.take(SEAT)
    seats.claims.change(SEAT, "8")

    seats.stack.land()

    assert seats.owners("7", "8") == [None, "ann"]


@pytest.mark.parametrize("next_one", [SEAT, BOBS], ids=["ann", "bob"])
def test_a_call_that_never_got_an_answer_claims_nothing_after_a_later_release(
    seats: Seats, next_one: Claim
) -> None:
    """The next call cannot know of it: the last one that released the value did it."""
    for _ in range(8):
        seats.stack.delay_next()
    with pytest.raises(Unclear):
        seats.claims.take(SEAT)
    seats.claims.take(next_one)
    seats.claims.release(next_one)

    assert seats.late(minutes=14) == 8
    assert seats.owners("7") == [None]


def test_a_late_attempt_of_an_earlier_owner_takes_no_value_that_was_taken_over_its_tombstone(
    seats: Seats,
) -> None:
    """It names the tombstone that it has met, and there is another one by now."""
    seats.claims.take(SEAT)
    seats.claims.release(SEAT)
    # The first attempt meets the tombstone, and the second one names it.
    seats.stack.before_next_request(seats.stack.delay_next, skip=1)
    seats.claims.take(SEAT)
    seats.claims.release(SEAT)

    assert len(seats.stack.land()) == 1
    assert seats.owners("7") == [None]


def test_a_release_leaves_a_tombstone_for_as_long_as_requests_may_arrive(seats: Seats) -> None:
    now_ms = seats.stack.clock.now_ms()
    seats.claims.take(BOOKING)
    seats.claims.release(SEAT)

    left = seats.item()
    assert left.pop("removal")
    assert left == {
        **keys.claim_key("seat", ("7",)),
        "removed": "booking-1",
        "removed_at": now_ms,
        "expires_at": (now_ms + SIGNED_REQUEST_LIFE_MS + 2 * CLOCK_SKEW_DEFAULT_MS) // SECOND_MS,
    }


@pytest.mark.parametrize(("after_ms", "sent"), [(CLOCK_SKEW_DEFAULT_MS, 2), (MINUTE_MS + 1, 1)])
@pytest.mark.parametrize("more", [[], [NEXT]], ids=["alone", "two"])
def test_a_value_is_taken_again_by_one_request_once_no_clock_can_say_that_it_was_before(
    seats: Seats, after_ms: int, sent: int, more: list[Claim]
) -> None:
    """A claim never keeps the time at which its tombstone would have gone."""
    seats.claims.take(SEAT)
    seats.claims.release(SEAT)
    seats.stack.advance(seconds=after_ms / SECOND_MS)
    meter = seats.claims.connection.meter
    before = meter.write_units

    assert seats.claims.take(BOBS, *more)

    assert meter.write_units - before == sent * (4 if more else 1)
    assert set(seats.item()) == _CLAIM | _TOMBSTONE
    assert not more or set(seats.item(NEXT)) == _CLAIM


def test_another_owner_is_named_before_a_tombstone_is_taken_over(seats: Seats) -> None:
    seats.claims.take(SEAT)
    seats.claims.release(SEAT)
    seats.claims.take(replace(NEXT, owner="bob"))

    with pytest.raises(AlreadyClaimed, match="bob"):
        seats.claims.take(SEAT, NEXT)

    assert seats.owners("7") == [None]


@pytest.mark.parametrize("more", [[], [NEXT]], ids=["alone", "two"])
def test_an_id_that_was_released_claims_nothing_again(seats: Seats, more: list[Claim]) -> None:
    """Of a message that is delivered again; and a late release of that id may be on its way."""
    seats.claims.take(BOOKING)
    seats.claims.release(BOOKING)

    with pytest.raises(NotClaimed, match="'booking-1' was released: take the value under a new"):
        seats.claims.take(BOOKING, *more)

    assert seats.owners("7", "8") == [None, None]


def test_a_take_beside_a_release_by_the_same_owner_was_done_before(seats: Seats) -> None:
    """The claim was there when the condition met it, also if another call has released it since."""
    seats.claims.take(SEAT)
    seats.stack.before_next_request(lambda: seats.claims.release(SEAT), skip=1)

    assert seats.claims.take(SEAT) is False


def _released_and_taken(seats: Seats) -> None:
    seats.claims.release(SEAT)
    seats.claims.take(BOBS)


@pytest.mark.parametrize(
    ("others", "owner"),
    [(lambda seats: seats.claims.release(SEAT), None), (_released_and_taken, "bob")],
    ids=["released", "taken"],
)
def test_a_take_is_done_whatever_others_do_before_its_answer_arrives(
    seats: Seats, others: object, owner: str | None
) -> None:
    """Another process of the same owner releases it; the repeat claims nothing."""
    seats.stack.lose_next_answer()
    seats.stack.before_next_request(lambda: others(seats))  # type: ignore[operator]

    assert seats.claims.take(SEAT) is True
    assert seats.owners("7") == [owner]


def test_a_take_that_two_others_may_have_followed_is_unclear(seats: Seats) -> None:
    """The item says who had the value last, and not who had it before."""

    def others() -> None:
        seats.claims.release(SEAT)
        for _ in range(2):
            seats.claims.take(BOBS)
            seats.claims.release(BOBS)

    seats.stack.lose_next_answer()
    seats.stack.before_next_request(others)

    with pytest.raises(Unclear, match="call again"):
        seats.claims.take(SEAT)
    assert seats.owners("7") == [None]


def test_a_fence_at_the_claim_that_refuses_a_lost_take_costs_one_unit(seats: Seats) -> None:
    """That claim was the first of its value; then the late request is refused for ever."""
    seats.claims.take(BOBS)
    meter = seats.claims.connection.meter
    before = meter.write_units
    seats.stack.delay_next()

    with pytest.raises(AlreadyClaimed, match="bob"):
        seats.claims.take(SEAT)

    assert meter.write_units - before == 2  # the repeat, and the fence
    seats.claims.release(BOBS)
    seats.stack.land()
    assert seats.owners("7") == [None]


def test_a_release_whose_value_another_has_since_is_done(seats: Seats) -> None:
    seats.claims.take(SEAT)
    seats.stack.before_next_request(seats.stack.lose_next_answer, skip=1)  # after its read
    seats.stack.before_next_request(lambda: seats.claims.take(BOBS))

    assert seats.claims.release(SEAT) is True
    assert seats.owners("7") == ["bob"]


@pytest.mark.parametrize(
    ("found", "applied"),
    [
        (None, False),
        ({"owner": "bob", "id": "bobs", "removed_at": _NOW_MS}, False),
        ({"removed": "an earlier one", "removed_at": _NOW_MS - _SKEW_MS - 1}, False),
        ({"removed": "another", "removed_at": _NOW_MS - _SKEW_MS}, None),
    ],
    ids=["nothing", "only a fence", "a release of before", "a release of since"],
)
def test_a_release_that_is_not_shown_was_not_applied_unless_another_may_have_followed(
    found: Item | None, *, applied: bool | None
) -> None:
    """The owner had the value when the call read it, and no longer has."""
    freeing = Freeing("counters", SEAT, "anns", _NOW_MS, _SKEW_MS, removal="r", seen=True)

    assert freeing.was_applied(found) is applied


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_a_take_that_an_item_of_the_app_refused_is_applied_never(
    seats: Seats, *, held: bool
) -> None:
    """Also after the app has removed its item, and its token is forgotten."""
    seats.table.put(OWN.write())
    if held:
        seats.claims.take(SEAT)
    seats.stack.delay_next()
    with pytest.raises(ItemInTheWay):
        seats.claims.take(SEAT, own=[CHANGED])

    seats.table.delete(Delete(*OWN.place))

    assert seats.late() == 1
    assert seats.own_item() is None
    assert seats.owners("7") == ["ann" if held else None]


def test_a_take_puts_an_item_of_the_app_once(seats: Seats) -> None:
    """Its first request arrives after the app has removed the item that the second one put."""
    seats.stack.delay_next()
    assert seats.claims.take(SEAT, own=[OWN])

    seats.table.delete(Delete(*OWN.place))

    assert seats.late() == 1
    assert seats.own_item() is None


def test_a_release_that_an_item_of_the_app_refused_is_applied_never(seats: Seats) -> None:
    seats.claims.take(SEAT)
    seats.stack.delay_next()
    with pytest.raises(ItemInTheWay):
        seats.claims.release(SEAT, own=[ItemChange("users", OWN.place[1], {"n": 2}, {"n": 1})])

    seats.table.put(CHANGED.write())

    assert seats.late() == 1
    assert seats.owners("7") == ["ann"]
    assert seats.claims.release(SEAT)


def test_a_refused_take_that_is_applied_before_its_fence_was_done(seats: Seats) -> None:
    """The same request is asked again, and its token says so."""
    seats.table.put(OWN.write())

    def arrives() -> None:
        seats.table.delete(Delete(*OWN.place))
        seats.stack.land()

    seats.stack.delay_next()
    seats.stack.before_next_request(arrives, skip=1)  # after the repeat was refused

    assert seats.claims.take(SEAT, own=[CHANGED])
    assert seats.owners("7") == ["ann"]


def test_a_release_by_an_id_that_is_not_there_is_unclear_after_a_lost_request(
    seats: Seats,
) -> None:
    """A claim may be taken under that id, and the first request would release it."""
    seats.stack.delay_next()

    with pytest.raises(Unclear):
        seats.claims.release(BOOKING)
