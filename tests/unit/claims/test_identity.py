"""A claim is released, or changed, by its own id: never a newer claim of the same owner."""

from dataclasses import replace
from typing import Any

import pytest

from countledger.ledger.errors import (
    AlreadyClaimed,
    BadClaim,
    ItemInTheWay,
    NotClaimed,
    Unclear,
)
from countledger.ledger.limits import SECOND_MS, TOKEN_LIFE_MS
from countledger.producers.claims.claim import Claim
from countledger.producers.claims.claims import Claims
from tests.unit.claims.stacks import NEXT, OWN, SEAT, Seats


@pytest.fixture
def seats() -> Seats:
    return Seats()


@pytest.fixture
def claims(seats: Seats) -> Claims:
    return seats.claims


@pytest.fixture
def held(claims: Claims) -> Claim:
    """The seat, as it is taken."""
    claims.take(SEAT)
    found = claims.find("seat", "7")
    assert found is not None
    return found


def test_every_take_makes_a_claim_of_its_own(claims: Claims, held: Claim) -> None:
    claims.release(SEAT)
    claims.take(SEAT)
    second = claims.find("seat", "7")

    assert second is not None
    assert held.claim_id != second.claim_id
    assert (held.owner, second.owner) == ("ann", "ann")
    assert claims.find("seat", "8") is None


def test_a_lost_answer_does_not_release_the_owners_next_claim(seats: Seats) -> None:
    """It is carried out; before it is sent again, the owner takes the value again."""
    seats.claims.take(SEAT)
    seats.stack.before_next_request(seats.stack.lose_next_answer, skip=1)  # after its read
    seats.stack.before_next_request(lambda: seats.claims.take(SEAT))

    seats.claims.release(SEAT)

    assert seats.stack.planned_faults == 0
    assert seats.owners("7") == ["ann"]


def test_a_release_by_id_leaves_a_later_claim_of_the_owner(claims: Claims, held: Claim) -> None:
    assert claims.release(held)
    claims.take(SEAT)

    assert [claims.release(held), Claims(claims.connection).release(held)] == [False, False]
    assert claims.owner("seat", "7") == "ann"


def test_a_release_by_id_is_done_although_another_owner_has_the_value(
    claims: Claims, held: Claim
) -> None:
    claims.release(held)
    claims.take(replace(SEAT, owner="bob"))

    assert claims.release(held) is False
    with pytest.raises(AlreadyClaimed, match="bob"):
        claims.release(SEAT)
    assert claims.owner("seat", "7") == "bob"


def test_an_id_releases_no_claim_under_another_owner(claims: Claims, held: Claim) -> None:
    with pytest.raises(AlreadyClaimed, match="ann"):
        claims.release(replace(held, owner="bob"))
    assert claims.owner("seat", "7") == "ann"


def test_of_several_refusals_the_one_that_names_another_owner_is_raised(claims: Claims) -> None:
    claims.take(replace(SEAT, owner="bob"), own=[OWN])
    claims.take(NEXT)

    with pytest.raises(AlreadyClaimed, match="bob"):
        claims.take(SEAT, own=[OWN])
    with pytest.raises(AlreadyClaimed, match="bob"):
        claims.change(NEXT, "7", own=[OWN])
    with pytest.raises(ItemInTheWay):
        claims.take(Claim("seat", "9", "ann"), own=[OWN])


def test_a_change_by_id_leaves_a_later_claim_of_the_owner(claims: Claims, held: Claim) -> None:
    """The owner went on to another value and came back; then the old request is repeated."""
    assert claims.change(held, "8")
    assert claims.take(SEAT)

    assert claims.change(held, "8") is False
    with pytest.raises(NotClaimed, match="another claim"):
        claims.change(held, "9")
    assert [claims.owner("seat", value) for value in "789"] == ["ann", "ann", None]


def test_a_claim_that_its_owner_has_keeps_its_id_when_it_is_taken_with_others(
    claims: Claims, held: Claim
) -> None:
    claims.take(SEAT, NEXT)
    claims.take(SEAT, own=[OWN])

    assert claims.find("seat", "7") == held
    assert claims.release(held)
    assert claims.owner("seat", "7") is None


def test_a_take_by_an_id_of_the_callers_own_is_that_claim_alone(claims: Claims) -> None:
    mine, other = (replace(SEAT, claim_id=f"booking-{n}") for n in (1, 2))

    assert [claims.take(mine), claims.take(mine)] == [True, False]
    with pytest.raises(AlreadyClaimed, match="another claim_id, not under 'booking-2'"):
        claims.take(other)
    with pytest.raises(AlreadyClaimed, match=r"by 'ann'$"):
        claims.take(replace(mine, owner="bob"))
    with pytest.raises(AlreadyClaimed):
        claims.take(other, NEXT)

    assert claims.find("seat", "7") == mine
    assert claims.owner("seat", "8") is None
    assert claims.release(mine)


@pytest.mark.parametrize("claim_id", ["", "a\n", "x" * 129, 7])
def test_an_id_that_cannot_be_is_refused(claim_id: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(BadClaim, match="claim_id"):
        Claim("seat", "7", "ann", claim_id)


@pytest.mark.parametrize(("asleep_ms", "sent"), [(-SECOND_MS, 2), (SECOND_MS, 1)])
def test_nothing_is_sent_again_once_another_clock_may_have_forgotten_the_token(
    seats: Seats, monkeypatch: pytest.MonkeyPatch, asleep_ms: int, sent: int
) -> None:
    """The service may have completed the first request by a clock that is ahead by the skew."""
    claims = seats.claims
    asleep_ms += TOKEN_LIFE_MS - claims.connection.clock_skew_ms
    clock = seats.stack.clock
    sleep_ms = clock.sleep_ms
    monkeypatch.setattr(clock, "sleep_ms", lambda _: sleep_ms(asleep_ms))
    seats.stack.lose_next_answer()
    before = claims.connection.meter.write_units
    if sent > 1:
        assert claims.take(SEAT, NEXT)
    else:
        with pytest.raises(Unclear, match="call again with the same arguments"):
            claims.take(SEAT, NEXT)

    # What is sent again is read: its token is known.
    assert claims.connection.meter.write_units - before == 4
    assert bool(claims.connection.meter.read_units) is (sent > 1)
