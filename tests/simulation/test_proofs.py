"""What a verdict rests on: a stream that was switched off, or hesitates, proves nothing."""

from typing import Any

import pytest

from countledger.consumers.materializer import Materializer
from countledger.consumers.record import ShardName, label_of
from countledger.consumers.verify import Judgement
from countledger.infra.memory.stream import Record
from countledger.ledger.errors import SetupError
from countledger.producers.event import Event
from tests.simulation.calm import calm_world
from tests.simulation.connection import connection_of
from tests.simulation.product import Product
from tests.simulation.stream import SimulatedStream
from tests.simulation.world import World
from tests.unit.consumers.world import Kept

COUNTER = "n:clicks"
# More than a quick look passes over, and fewer than a close one.
_HESITATES = 8


def _world() -> tuple[World, Product]:
    world = calm_world(watched=False)
    product = Product(world.process("home", "operator"))
    product.recorder.record(Event(COUNTER, 1))
    _deliver(world, product, world.streams["home"])
    assert product.totals.read(COUNTER, consistent=True).value == 1
    return world, product


def _event(record: Record) -> dict[str, Any]:
    made = record.made()
    stream: dict[str, Any] = made["dynamodb"]
    at_s = stream["ApproximateCreationDateTime"].timestamp()
    return {**made, "dynamodb": {**stream, "ApproximateCreationDateTime": at_s}}


def _deliver(world: World, product: Product, stream: SimulatedStream) -> None:
    """All that a stream shows, from its start."""
    made = Materializer(connection_of(product.process), Kept())
    world.schedule.pause(stream.lag_ms)
    for log in stream.shards.values():
        events = [_event(one) for one in log.records if one.key[1].startswith("e#")]
        made.apply(events, ShardName(label_of(stream.arn), log.id))


def _made_anew(world: World) -> SimulatedStream:
    """The ledger's stream is switched off, and on again: it is another one."""
    old = world.streams["home"]
    old.on = False
    new = SimulatedStream.of(
        f"{old.arn}-2", old.random, old.now_ms, old.lag_ms, by_item=old.by_item
    )
    new.open(1)
    world.copies["home"]["ledger"].watchers.append(new.note)
    return new


def test_a_stream_that_was_switched_off_proves_nothing() -> None:
    """What was written since shows in another one: a repair here would count it twice."""
    world, product = _world()
    new = _made_anew(world)
    product.recorder.record(Event(COUNTER, 10))

    with pytest.raises(SetupError, match="switched off"):
        product.auditor.repair(COUNTER)
    _deliver(world, product, new)

    assert (
        product.exact.read(COUNTER).value
        == product.totals.read(COUNTER, consistent=True).value
        == 11
    )


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_pages_without_records_are_not_the_end_of_a_shard(closed: bool) -> None:  # noqa: FBT001 - a parameter
    """A materializer that stands still: its records lie behind them, and will come."""
    world, product = _world()
    stream = world.streams["home"]
    product.recorder.record(Event(COUNTER, 10))
    if closed:
        for _ in range(20):
            stream.split()
    stream.hesitates = 60 if closed else _HESITATES

    found = product.auditor.repair(COUNTER)
    stream.hesitates = 0
    _deliver(world, product, stream)

    assert found.verdict.verdict is Judgement.BUSY
    assert (
        product.exact.read(COUNTER).value
        == product.totals.read(COUNTER, consistent=True).value
        == 11
    )
