"""A claim is released, or changed, by its own id: never a newer claim of the same owner."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

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
from countledger.producers.own_items import NewItem
from countledger.producers.strict.context import MethodContext
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.operations import Delete

SEAT = Claim("seat", "7", "ann")
LOST = Unclear("the answer was lost")


@dataclass(frozen=True, slots=True)
class Interrupted(MemoryClient):
    """A client behind which something happens after its first deletion or transaction.

    Attributes:
        happens: what; the answer is lost then, if an error is given.
        lost: that error.
    """

    happens: list[Callable[[], object]] = field(default_factory=list)
    lost: list[Exception] = field(default_factory=list)

    def delete(self, write: Delete) -> None:
        """Remove one item; then it happens."""
        MemoryClient.delete(self, write)
        self._happen()

    def transact(self, writes: Any, token: str) -> bool:  # noqa: ANN401 - handed on
        """All or nothing; then it happens."""
        fresh = MemoryClient.transact(self, writes, token)
        self._happen()
        return fresh

    def _happen(self) -> None:
        while self.happens:
            self.happens.pop()()
        if self.lost:
            raise self.lost.pop()


def _claims(dynamo: MemoryClient, clock: ManualClock | None = None) -> Claims:
    random = Random(1)  # noqa: S311 - jitter
    number = iter(range(10**6))
    name = f"{id(clock)}-{id(dynamo)}"
    context = MethodContext(
        dynamo,
        dynamo,
        "counters",
        clock or ManualClock(),
        random,
        lambda _: f"{name}-{next(number)}",
    )
    return Claims(context, "eu", "eu")


@pytest.fixture
def dynamo() -> Interrupted:
    """One table."""
    return Interrupted()


def _others(dynamo: Interrupted) -> Claims:
    """Another process of the same owner, in which nothing happens by itself."""
    plain = MemoryClient(tables=dynamo.tables, tokens=dynamo.tokens)
    return _claims(plain)


def test_every_take_makes_a_claim_of_its_own(dynamo: Interrupted) -> None:
    """Its id is never used again, although owner and value are the same."""
    claims = _claims(dynamo)

    claims.take(SEAT)
    first = claims.find("seat", "7")
    claims.release(SEAT)
    claims.take(SEAT)
    second = claims.find("seat", "7")

    assert first is not None
    assert second is not None
    assert first.claim_id != second.claim_id
    assert (first.owner, second.owner) == ("ann", "ann")
    assert claims.find("seat", "8") is None


def test_a_lost_answer_does_not_release_the_owners_next_claim(dynamo: Interrupted) -> None:
    """The deletion is carried out; before it is sent again, the owner takes the value again."""
    claims, others = _claims(dynamo), _others(dynamo)
    claims.take(SEAT)
    dynamo.happens.append(lambda: others.take(SEAT))
    dynamo.lost.append(LOST)

    claims.release(SEAT)

    assert claims.owner("seat", "7") == "ann"


def test_a_release_by_id_leaves_a_later_claim_alone(dynamo: Interrupted) -> None:
    """However often it is repeated, and in whatever process."""
    claims = _claims(dynamo)
    claims.take(SEAT)
    held = claims.find("seat", "7")
    assert held is not None

    assert claims.release(held)
    claims.take(SEAT)
    again = [claims.release(held), _others(dynamo).release(held)]

    assert again == [False, False]
    assert claims.owner("seat", "7") == "ann"


def test_a_release_by_id_is_done_although_another_owner_has_the_value(dynamo: Interrupted) -> None:
    """The claim with that id is gone, and does not come back."""
    claims = _claims(dynamo)
    claims.take(SEAT)
    held = claims.find("seat", "7")
    assert held is not None
    claims.release(held)
    claims.take(replace(SEAT, owner="bob"))

    assert claims.release(held) is False
    with pytest.raises(AlreadyClaimed, match="bob"):
        claims.release(SEAT)
    assert claims.owner("seat", "7") == "bob"


def test_nobody_releases_a_claim_by_its_id_under_another_name(dynamo: Interrupted) -> None:
    """The owner is compared as well."""
    claims = _claims(dynamo)
    claims.take(SEAT)
    held = claims.find("seat", "7")
    assert held is not None

    with pytest.raises(AlreadyClaimed, match="ann"):
        claims.release(replace(held, owner="bob"))
    assert claims.owner("seat", "7") == "ann"


def test_of_several_refusals_the_one_that_names_another_owner_is_raised(
    dynamo: Interrupted,
) -> None:
    """The caller learns who has the value, though an item of its own is in the way as well."""
    claims = _claims(dynamo)
    own = [NewItem("users", {"counter": "u", "part": "u"}, ("counter", "part"))]
    claims.take(replace(SEAT, owner="bob"), own=own)
    claims.take(Claim("seat", "8", "ann"))

    with pytest.raises(AlreadyClaimed, match="bob"):
        claims.take(SEAT, own=own)
    with pytest.raises(AlreadyClaimed, match="bob"):
        claims.change(Claim("seat", "8", "ann"), "7", own=own)
    with pytest.raises(ItemInTheWay):
        claims.take(Claim("seat", "9", "ann"), own=own)


def test_a_change_by_id_leaves_a_later_claim_alone(dynamo: Interrupted) -> None:
    """The owner went on to another value and came back; then the old request is repeated."""
    claims = _claims(dynamo)
    claims.take(SEAT)
    held = claims.find("seat", "7")
    assert held is not None
    assert claims.change(held, "8")
    assert claims.take(SEAT)

    assert claims.change(held, "8") is False
    with pytest.raises(NotClaimed, match="another claim"):
        claims.change(held, "9")

    assert [claims.owner("seat", value) for value in "789"] == ["ann", "ann", None]


def test_a_claim_that_its_owner_has_keeps_its_id_when_it_is_taken_with_others(
    dynamo: Interrupted,
) -> None:
    """A release that names the claim still finds it."""
    claims = _claims(dynamo)
    claims.take(SEAT)
    held = claims.find("seat", "7")
    assert held is not None

    claims.take(SEAT, Claim("seat", "8", "ann"))
    claims.take(SEAT, own=[NewItem("users", {"counter": "u", "part": "u"}, ("counter", "part"))])

    assert claims.find("seat", "7") == held
    assert claims.release(held)
    assert claims.owner("seat", "7") is None


def test_a_take_by_an_id_of_the_callers_own_is_that_claim_alone(dynamo: Interrupted) -> None:
    """Stored with an item of the app's own in the same transaction, it names the claim later."""
    claims = _claims(dynamo)
    mine = replace(SEAT, claim_id="booking-1")

    assert [claims.take(mine), claims.take(mine)] == [True, False]
    with pytest.raises(AlreadyClaimed, match="another claim_id, not under 'booking-2'"):
        claims.take(replace(SEAT, claim_id="booking-2"))
    with pytest.raises(AlreadyClaimed, match=r"by 'ann'$"):
        claims.take(replace(mine, owner="bob"))
    with pytest.raises(AlreadyClaimed):
        claims.take(replace(SEAT, claim_id="booking-2"), Claim("seat", "8", "ann"))

    assert claims.find("seat", "7") == mine
    assert claims.owner("seat", "8") is None
    assert claims.release(mine)


@pytest.mark.parametrize("claim_id", ["", "a\n", "x" * 129, 7])
def test_an_id_that_cannot_be_is_refused(claim_id: Any) -> None:  # noqa: ANN401 - anything
    """At birth."""
    with pytest.raises(BadClaim, match="claim_id"):
        Claim("seat", "7", "ann", claim_id)


@pytest.mark.parametrize(("asleep_ms", "sent"), [(-SECOND_MS, True), (SECOND_MS, False)])
def test_nothing_is_sent_again_once_another_clock_may_have_forgotten_the_token(
    asleep_ms: int,
    sent: bool,  # noqa: FBT001 - of the case
) -> None:
    """The service may have completed the first request by a clock that is ahead by the skew."""
    clock = ManualClock()
    dynamo = MemoryClient(transact_faults=[Fault(LOST, applied=True)])
    claims = _claims(dynamo, clock)
    margin_ms = TOKEN_LIFE_MS - claims.context.clock_skew_ms
    begun_ms = clock.at_ms

    def sleep(_now_ms: int) -> None:
        clock.at_ms = begun_ms + margin_ms + asleep_ms

    clock.on_sleep = sleep
    taken = [SEAT, Claim("seat", "8", "ann")]
    if sent:
        assert claims.take(*taken)
    else:
        with pytest.raises(Unclear, match="call again with the same arguments"):
            claims.take(*taken)

    assert dynamo.calls.count("transact") == (2 if sent else 1)
