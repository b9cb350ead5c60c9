"""Changes of counters with bins: what they answer, and how many transactions they send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.ledger.namespace import Kind
from countledger.producers.strict.outcome import Applied, BoundReached, Unknown
from tests.simulation.calm import calm_world
from tests.simulation.product import Product
from tests.unit.ledger.memory import LOST, Fault, meanwhile
from tests.unit.strict.test_incarnations import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

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


def test_a_split_with_a_clear_answer_sends_one_transaction() -> None:
    """Method atomic uses its token up only after a refusal that may hide a lost attempt.

    Another transaction would cost two units more, and if its answer was lost, an applied change
    would be called unknown.
    """
    process = Process()
    dynamo = process.dynamo
    process.make(method="atomic", opening=40, bins=8)
    calls, units = len(dynamo.calls), dynamo.meter.write_units

    outcome = process.strict.change("s:hall", -33)

    assert isinstance(outcome, Applied)
    assert dynamo.calls[calls:].count("transact") == 1
    # Eight bins with five each: all of them are read once, and seven of them have enough.
    assert dynamo.meter.write_units - units == 2 * 7
    assert dynamo.calls[calls:].count("get") == 8


def test_a_split_that_is_clearly_refused_sends_one_transaction() -> None:
    """No attempt of it can still be applied, so no token is used up."""
    process = Process()
    dynamo = process.dynamo
    other = Process(dynamo)
    process.make(method="atomic", opening=40, bins=8)
    sells_out = meanwhile(lambda: other.strict.change("s:hall", -40), "transact")
    dynamo.plans.append(sells_out)
    calls = len(dynamo.calls)

    outcome = process.strict.change("s:hall", -33)

    assert isinstance(outcome, BoundReached)
    assert dynamo.calls[calls:].count("transact") == 2  # the other's, and its own


def test_a_split_that_was_applied_before_its_retry_sends_two_transactions() -> None:
    """The answer to the retry is clear: it needs no fence."""
    process = Process()
    dynamo = process.dynamo
    process.make(method="atomic", opening=40, bins=8)
    calls = len(dynamo.calls)
    dynamo.transact_faults.append(Fault(LOST, applied=True))

    outcome = process.strict.change("s:hall", -33)

    assert isinstance(outcome, Applied)
    assert dynamo.calls[calls:].count("transact") == 2
