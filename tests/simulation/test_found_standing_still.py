"""What stands still for longer than a key of several changes is remembered counts nothing twice."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from countledger.ledger import keys
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import ClockSkew, KeyExpired
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.namespace import Kind
from countledger.producers.strict.outcome import Applied, Contended, Unknown
from tests.simulation.calm import calm_world, script
from tests.simulation.faults import Fault
from tests.simulation.product import Product
from tests.simulation.shape import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.world import World

ANN, BOB = "s:ann", "s:bob"
LONGER_MS = DAY_MS + HOUR_MS


@pytest.fixture
def world() -> World:
    """Two accounts."""
    world = calm_world()
    product = Product(world.process("home", "set-up"))
    product.namespaces.create("s", kind=Kind.STRICT)
    for counter in (ANN, BOB):
        product.strict.create(counter, method="atomic", lower=0, opening=10)
    return world


def _cashier(world: World) -> Product:
    return Product(world.process("home", "cashier"))


def _a_day_passes(world: World) -> None:
    """And time to live takes the markers away."""
    world.schedule.now_ms += LONGER_MS
    table = world.copies["home"][COUNTERS]
    for key in [key for key in table.items if key[0].startswith(keys.KEYED_PREFIX)]:
        table.store(key, None)


def _values(world: World) -> list[object]:
    strict = _cashier(world).strict
    return [strict.show(counter).value for counter in (ANN, BOB)]


def _stands_still(world: World, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For longer than a day, whenever a script says frozen."""
    frozen: list[int] = []

    def freeze_ms(_operation: str) -> float:
        frozen.append(1)
        _a_day_passes(world)
        return 0

    monkeypatch.setattr(world, "freeze_ms", freeze_ms)
    return frozen


def test_several_changes_that_are_in_cannot_be_given_up_once_they_may_be_forgotten(
    world: World,
) -> None:
    """Their marker is gone: what is in must not be said to be out for good."""
    cashier = _cashier(world)
    key = IdempotencyKey("t-1", to_datetime(cashier.process.now_ms()))
    assert isinstance(cashier.strict.transactions.transfer(ANN, BOB, 4, key=key), Applied)
    _a_day_passes(world)

    with pytest.raises(KeyExpired):
        cashier.strict.transactions.withdraw(key)
    ahead = IdempotencyKey("t-2", to_datetime(cashier.process.now_ms()) + timedelta(hours=1))
    with pytest.raises(ClockSkew):
        cashier.strict.transactions.withdraw(ahead)

    assert _values(world) == [6, 14]


@pytest.mark.parametrize(
    ("faults", "told", "values"),
    [
        ([Fault.AFTER, Fault.FROZEN], Unknown, [6, 14]),
        ([Fault.FROZEN], Contended, [10, 10]),
    ],
    ids=["after an attempt that is in", "before any"],
)
def test_a_transfer_that_stood_still_for_longer_than_its_key_is_remembered_is_not_sent(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    faults: Sequence[Fault],
    told: type[object],
    values: list[int],
) -> None:
    """Nobody could know any more whether it is in: the next attempt would move it again."""
    cashier = _cashier(world)
    for source, target in ((ANN, BOB), (BOB, ANN)):  # all there is to read is known then
        cashier.strict.transactions.transfer(source, target, 1, key=f"t-0 {source}")
    frozen = _stands_still(world, monkeypatch)
    script(world, *faults)

    outcome = cashier.strict.transactions.transfer(ANN, BOB, 4, key="t-1")

    assert len(frozen) == 1
    assert isinstance(outcome, told)
    assert _values(world) == values


def test_a_key_is_not_given_up_by_who_stood_still_for_too_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would keep out may be in, and forgotten."""
    cashier = _cashier(world)
    key = IdempotencyKey("t-1", to_datetime(cashier.process.now_ms()))
    assert isinstance(cashier.strict.transactions.transfer(ANN, BOB, 4, key=key), Applied)
    frozen = _stands_still(world, monkeypatch)
    script(world, Fault.FROZEN)

    outcome = cashier.strict.transactions.withdraw(key)

    assert len(frozen) == 1
    assert isinstance(outcome, Unknown)
    assert _values(world) == [6, 14]
