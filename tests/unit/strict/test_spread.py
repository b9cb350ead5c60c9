"""Changes of counters with bins: what they answer, and how many transactions they send."""

from collections.abc import Callable

import pytest

from countledger.ledger.namespace import Kind
from countledger.producers.strict.outcome import Applied, BoundReached, Unknown
from tests.simulation.calm import calm_world
from tests.simulation.product import Product
from tests.simulation.world import World
from tests.unit.strict.test_incarnations import Process

COUNTER = "s:hall"


def _seller(world: World, opening: int) -> Product:
    """Method `request_token` with more bins than are asked one by one."""
    Product(world.process("home", "set-up")).namespaces.create("s", kind=Kind.STRICT)
    seller = Product(world.process("home", "seller"))
    seller.strict.create(COUNTER, method="request_token", lower=0, opening=opening, bins=5)
    return seller


def test_a_key_that_is_used_elsewhere_gets_no_answer_about_a_bound() -> None:
    """It was split over all bins, which are empty now: each of them says that its token is used."""
    world = calm_world()
    seller = _seller(world, 5)
    assert isinstance(seller.strict.change(COUNTER, -5, key="order-1"), Applied)

    again = seller.strict.change(COUNTER, -5, key="order-1")
    other = seller.strict.change(COUNTER, -5, key="order-2")

    assert isinstance(again, Unknown)
    assert isinstance(other, BoundReached)
    assert seller.strict.show(COUNTER).value == 0


# Three bins are tried one by one, and all of them are read; then the transaction is sent.
_TRIED, _READ = 3, 2 * 8


def _sells_out(process: Process) -> None:
    """Another process takes all at the last moment."""
    other = Process(process.stack).strict
    process.stack.before_next_request(lambda: other.change(COUNTER, -40), skip=_TRIED + 1)


def _loses_an_answer(process: Process) -> None:
    process.stack.before_next_request(process.stack.lose_next_answer, skip=_TRIED + 1)


@pytest.mark.parametrize(
    ("meets", "outcome", "units"),
    [
        # Eight bins with five each, of which seven have enough.
        pytest.param(lambda _: None, Applied, (_TRIED + 2 * 7, _READ), id="a clear answer"),
        # No attempt of it can still be applied.
        pytest.param(_sells_out, BoundReached, (_TRIED + 2 * 7, 2 * _READ), id="clearly refused"),
        # Method atomic has no fence: it sends nothing more.
        pytest.param(_loses_an_answer, Unknown, (_TRIED + 2 * 7, _READ), id="a lost answer"),
    ],
)
def test_a_split_of_method_atomic_is_one_transaction(
    meets: Callable[[Process], None], outcome: type, units: tuple[float, float]
) -> None:
    process = Process()
    process.make(method="atomic", opening=40, bins=8)
    meets(process)
    meter = process.strict.connection.meter
    before = meter.write_units, meter.read_units

    told = process.strict.change(COUNTER, -33)

    assert isinstance(told, outcome)
    assert (meter.write_units - before[0], meter.read_units - before[1]) == units
