"""What reading the code against the design has found, each as the shortest course of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from countledger.ledger.errors import (
    IdempotencyKeyReused,
    Reason,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.limits import DAY_MS, HOUR_MS, TOKEN_LIFE_MS
from countledger.ledger.namespace import Kind
from countledger.producers.claims.claim import Claim
from countledger.producers.own_items import ItemChange
from countledger.producers.strict.outcome import Applied, BoundReached, Duplicate, Unknown
from tests.simulation.calm import calm_world, script
from tests.simulation.faults import Fault
from tests.simulation.number_account import POSTS
from tests.simulation.product import Product
from tests.simulation.shape import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.ledger.operations import Write
    from tests.simulation.world import World

HALL, SHELF = "s:hall", "s:shelf"
CHANGES = {HALL: 5, SHELF: -5}
# Longer than a key of several changes is remembered.
_FORGOTTEN_MS = DAY_MS + HOUR_MS


def _seller(world: World, **opening: int) -> Product:
    """With both counters made."""
    Product(world.process("home", "set-up")).namespaces.create("s", kind=Kind.STRICT)
    seller = Product(world.process("home", "seller"))
    for counter, first in ((HALL, 0), (SHELF, 20)):
        opens = opening.get(counter.removeprefix("s:"), first)
        seller.strict.create(counter, method="atomic", lower=0, upper=100, opening=opens)
    return seller


def _values(seller: Product) -> Mapping[str, object]:
    return {counter: seller.strict.show(counter).value for counter in CHANGES}


def _forget_keys(world: World) -> None:
    """As time to live does."""
    table = world.copies["home"][COUNTERS]
    for key in [key for key in table.items if key[0].startswith("keyed#")]:
        table.store(key, None)


def _freeze(
    world: World, patch: pytest.MonkeyPatch, *, naps_ms: Sequence[int] = (_FORGOTTEN_MS,)
) -> None:
    """Whoever stands still does so for so long, in turn; at last its key is forgotten."""
    naps = iter(naps_ms)

    def freeze_ms(_operation: str) -> float:
        nap_ms = next(naps)
        world.schedule.now_ms += nap_ms
        if nap_ms >= _FORGOTTEN_MS:
            _forget_keys(world)
        return 0

    patch.setattr(world, "freeze_ms", freeze_ms)


def _keep_first_reason_back(world: World, patch: pytest.MonkeyPatch) -> None:
    """Of several conditions that failed a cancelled transaction does not name the first."""
    service = world.transactions["home"]
    real = service._judge

    def judge(writes: Sequence[Write]) -> None:
        try:
            real(writes)
        except TransactionCancelled as cancelled:
            first, *others = cancelled.reasons
            hidden = Reason("None") if any(one.condition_failed for one in others) else first
            raise TransactionCancelled((hidden, *others)) from None

    patch.setattr(service, "_judge", judge)


def test_a_value_is_not_set_a_second_time_after_such_a_standstill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What others changed meanwhile would be taken back."""
    world = calm_world()
    seller = _seller(world)
    # The value is read, it is set without an answer; the next attempt to set it stands still.
    script(world, None, Fault.AFTER, Fault.FROZEN)
    _freeze(world, monkeypatch)

    outcome = seller.strict.transactions.set_value(HALL, 7, key="order-1")

    assert isinstance(outcome, Unknown)
    assert seller.strict.show(HALL).value == 7


def test_a_void_marker_that_comes_too_late_keeps_nothing_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attempt is in; the next, behind its token's life, found no room; then it is forgotten."""
    world = calm_world()
    seller = _seller(world, hall=95)
    script(world, Fault.AFTER, Fault.FROZEN, Fault.FROZEN)
    _freeze(world, monkeypatch, naps_ms=(2 * TOKEN_LIFE_MS, _FORGOTTEN_MS))
    _keep_first_reason_back(world, monkeypatch)

    outcome = seller.strict.transactions.change(CHANGES, key="order-1")

    assert isinstance(outcome, Unknown)
    assert _values(seller) == {HALL: 100, SHELF: 15}


def test_a_refusal_is_not_final_while_its_doubtful_request_could_not_be_kept_out() -> None:
    """An attempt got no answer, the next one found no room, and every void marker was throttled."""
    world = calm_world()
    seller = _seller(world, hall=100)
    script(world, Fault.BEFORE, None, *[Fault.THROTTLE] * 8)

    outcome = seller.strict.transactions.change(CHANGES, key="order-1")

    assert isinstance(outcome, Unknown)


def test_a_key_that_another_call_used_for_something_else_is_said_to_be_reused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it is first met by the void marker: those changes are not the ones wanted."""
    world = calm_world()
    seller = _seller(world, hall=100)
    other = Product(world.process("home", "other"))
    assert isinstance(other.strict.transactions.change({SHELF: -1}, key="order-1"), Applied)
    script(world, Fault.BEFORE)
    _keep_first_reason_back(world, monkeypatch)

    with pytest.raises(IdempotencyKeyReused):
        seller.strict.transactions.change(CHANGES, key="order-1")


def test_a_refusal_behind_a_void_marker_is_final() -> None:
    """As ever."""
    world = calm_world()
    seller = _seller(world, hall=100)
    script(world, Fault.BEFORE)

    assert isinstance(seller.strict.transactions.change(CHANGES, key="order-1"), BoundReached)
    assert not isinstance(seller.strict.transactions.withdraw("order-1"), Duplicate)


def test_claims_that_stood_still_write_over_nothing_that_came_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attempt without an answer is in; its token is forgotten when the next one would leave."""
    world = calm_world(watched=False)
    app = Product(world.process("home", "app"))
    posts, key = world.copies["home"][POSTS], ("p-1", "post")
    posts.store(key, {"counter": "p-1", "part": "post", "title": "first"})
    script(world, Fault.AFTER, Fault.FROZEN)
    change = ItemChange(POSTS, {"counter": "p-1", "part": "post"}, {"title": "second"})

    def freeze_ms(_operation: str) -> float:
        world.schedule.pass_time(2 * TOKEN_LIFE_MS)  # what is under way lands first
        posts.store(key, {"counter": "p-1", "part": "post", "title": "third"})
        return 0

    monkeypatch.setattr(world, "freeze_ms", freeze_ms)

    with pytest.raises(Unclear):
        app.claims.take(Claim("title", "second", owner="p-1"), own=[change])

    assert posts.items[key]["title"] == "third"
