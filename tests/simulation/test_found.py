"""What the simulation has found, each as the shortest course of events that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import KeyExpired
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.ledger.namespace import Kind
from countledger.producers.strict.outcome import Applied, Duplicate, GivenUp, Unknown
from tests.simulation.calm import calm_world, script
from tests.simulation.faults import Fault
from tests.simulation.product import Product
from tests.simulation.shape import COUNTERS

if TYPE_CHECKING:
    from tests.simulation.world import World

COUNTER = "s:hall"


def _world() -> World:
    """With a namespace of strict counters."""
    world = calm_world()
    Product(world.process("home", "set-up")).namespaces.create("s", kind=Kind.STRICT)
    return world


def _seller(world: World, method: str, opening: int = 0) -> Product:
    window = {"window_ms": 5 * MINUTE_MS} if method == "marker" else {}
    seller = Product(world.process("home", "seller"))
    seller.strict.create(COUNTER, method=method, lower=0, upper=100, opening=opening, **window)
    return seller


def _forget_markers(world: World) -> None:
    """As time to live does."""
    table = world.copies["home"][COUNTERS]
    for key in [key for key in table.items if key[1].startswith("m#")]:
        table.store(key, None)


@pytest.mark.parametrize("method", ["crt", "marker"])
def test_a_change_that_is_in_cannot_be_given_up_once_it_may_be_forgotten(method: str) -> None:
    """Its token or marker is gone: nothing may be said to be out for good that is in."""
    world = _world()
    seller = _seller(world, method)
    order = IdempotencyKey("order-1", to_datetime(seller.process.now_ms()))
    assert isinstance(seller.strict.change(COUNTER, 5, key=order), Applied)
    world.schedule.now_ms += HOUR_MS
    _forget_markers(world)

    with pytest.raises(KeyExpired):
        seller.strict.give_up(COUNTER, order)

    assert seller.strict.show(COUNTER).value == 5


@pytest.mark.parametrize("method", ["crt", "marker"])
def test_a_process_that_stood_still_for_longer_than_its_key_is_remembered_sends_nothing(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt without an answer is in; the next one would count again, and does not leave."""
    world = _world()
    seller = _seller(world, method)
    script(world, Fault.AFTER, Fault.FROZEN)
    frozen: list[float] = []

    def freeze_ms() -> float:
        frozen.append(world.schedule.now_ms)
        world.schedule.now_ms += HOUR_MS
        _forget_markers(world)
        return 0

    monkeypatch.setattr(world, "freeze_ms", freeze_ms)

    outcome = seller.strict.change(COUNTER, 5)

    assert len(frozen) == 1
    assert isinstance(outcome, Unknown)
    assert seller.strict.show(COUNTER).value == 5


def test_a_key_is_not_said_to_be_reused_because_nobody_could_tell() -> None:
    """Its token is taken, and what for cannot be asked: unknown, not another amount."""
    world = _world()
    seller = _seller(world, "crt")
    order = IdempotencyKey("order-1", to_datetime(seller.process.now_ms()))
    assert isinstance(seller.strict.give_up(COUNTER, order), GivenUp)
    script(world, None, *[Fault.THROTTLE] * 8)

    outcome = seller.strict.change(COUNTER, 5, key=order)

    assert isinstance(outcome, Unknown)


@pytest.mark.parametrize("method", ["crt", "marker", "set"])
def test_a_refusal_is_not_final_while_its_doubtful_request_could_not_be_kept_out(
    method: str,
) -> None:
    """An attempt got no answer, the next one found no room, and every fence was throttled."""
    world = _world()
    seller = _seller(world, method, opening=100)
    script(world, Fault.BEFORE, None, *[Fault.THROTTLE] * 8)

    outcome = seller.strict.change(COUNTER, 1)

    assert isinstance(outcome, Unknown)


def _made_again(world: World, method: str) -> Product:
    """By another process, under the hands of the first."""
    window = {"window_ms": 5 * MINUTE_MS} if method == "marker" else {}
    other = Product(world.process("home", "other"))
    other.strict.delete(COUNTER)
    other.strict.create(COUNTER, method=method, lower=0, upper=100, **window)
    return other


@pytest.mark.parametrize("method", ["crt", "marker"])
@pytest.mark.parametrize("delta", [5, 7])
def test_a_key_of_an_old_making_says_nothing_of_the_new_one(method: str, delta: int) -> None:
    """A process that knows the old counter repeats it: its token or marker is still there."""
    world = _world()
    seller = _seller(world, method)
    order = IdempotencyKey("order-1", to_datetime(seller.process.now_ms()))
    assert isinstance(seller.strict.change(COUNTER, 5, key=order), Applied)
    _made_again(world, method)

    outcome = seller.strict.change(COUNTER, delta, key=order)

    assert isinstance(outcome, Applied)
    assert seller.strict.show(COUNTER).value == delta


@pytest.mark.parametrize("method", ["crt", "marker"])
@pytest.mark.parametrize("before", [True, False], ids=["given up before", "given up behind"])
def test_a_key_is_not_given_up_in_a_making_that_is_gone(method: str, before: bool) -> None:  # noqa: FBT001 - a parameter
    """What it stands for in the new one is said, and is not written over."""
    world = _world()
    seller = _seller(world, method)
    order = IdempotencyKey("order-1", to_datetime(seller.process.now_ms()))
    if before:
        assert isinstance(seller.strict.give_up(COUNTER, order), GivenUp)
    other = _made_again(world, method)
    assert isinstance(other.strict.change(COUNTER, 5, key=order), Applied)

    assert isinstance(seller.strict.give_up(COUNTER, order), Duplicate)
    assert isinstance(other.strict.change(COUNTER, 5, key=order), Duplicate)
