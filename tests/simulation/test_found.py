"""What the simulation has found, each as the shortest course of events that shows it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import KeyExpired
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.ledger.namespace import Kind
from countledger.producers.strict.outcome import Applied, GivenUp, Unknown
from tests.simulation.auditor import Auditor
from tests.simulation.faults import Fault, Faults
from tests.simulation.product import Product
from tests.simulation.queue import Queue, Scheduler
from tests.simulation.schedule import Schedule
from tests.simulation.shape import COUNTERS, drawn
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTER = "s:hall"


class Scripted(Faults):
    """Faults in the order in which a test names them; then none."""

    script: Iterator[Fault | None] = iter(())

    def of_call(self, operation: str, *, writes: bool, mortal: bool) -> Fault | None:  # noqa: ARG002
        """The next one."""
        return next(self.script, None)


def _world() -> World:
    """One region in which nothing goes wrong by itself, outside of any schedule."""
    random = Random(1)  # noqa: S311 - a test's
    schedule = Schedule(random)
    shape = replace(drawn(random, {}), regions=1, skew_ms=0, page_items=100)
    auditor = Auditor(shape, schedule, "home")
    world = World(random, schedule, shape, Scripted(random, {}), auditor, Queue(), Scheduler())
    product = Product(world.process("home", "set-up"))
    product.namespaces.create("s", kind=Kind.STRICT)
    return world


def _seller(world: World, method: str, opening: int = 0) -> Product:
    window = {"window_ms": 5 * MINUTE_MS} if method == "marker" else {}
    seller = Product(world.process("home", "seller"))
    seller.strict.create(COUNTER, method=method, lower=0, upper=100, opening=opening, **window)
    return seller


def _script(world: World, *faults: Fault | None) -> None:
    """What the next calls meet, one after the other."""
    assert isinstance(world.faults, Scripted)
    world.faults.script = iter(faults)


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
    _script(world, Fault.AFTER, Fault.FROZEN)
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
    _script(world, None, *[Fault.THROTTLE] * 8)

    outcome = seller.strict.change(COUNTER, 5, key=order)

    assert isinstance(outcome, Unknown)


@pytest.mark.parametrize("method", ["crt", "marker", "set"])
def test_a_refusal_is_not_final_while_its_doubtful_request_could_not_be_kept_out(
    method: str,
) -> None:
    """An attempt got no answer, the next one found no room, and every fence was throttled."""
    world = _world()
    seller = _seller(world, method, opening=100)
    _script(world, Fault.BEFORE, None, *[Fault.THROTTLE] * 8)

    outcome = seller.strict.change(COUNTER, 1)

    assert isinstance(outcome, Unknown)
