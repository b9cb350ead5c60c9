"""The stream of the ledger as a table of the world, and its deliveries as calls of actors.

A delivery is an invocation of the function: it takes what follows the position of the mapping, runs
the product's materializer, and moves the position. If its process dies, or fails, the same records
are delivered again, by the next one; what it had sent may land after that. Two deliveries at once
are an invocation that was given up and goes on, and the one that follows.

A page of records that is empty ends a read of the stream: the pages after it show the same moment.
"""

from __future__ import annotations

from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, cast

from countledger.consumers.materializer import Materializer
from countledger.consumers.progress import PassedShards
from countledger.infra.memory.functions import lambda_record
from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from tests.exploring.client import NO_ANSWER, ActorConnection, Sending
from tests.exploring.followed import SHARD, STREAM, DirectClient, NoQuarantine, StateClock
from tests.exploring.stream import MAPPING, STREAM_TABLE, let_streams_flow, records_of
from tests.exploring.world import BEGIN_MS, World
from tests.unit.connections import connection_on

if TYPE_CHECKING:
    from countledger.client import CountLedger
    from tests.exploring.world import Contents

_POSITION: Final = ("mapping", "")


def deliver(ledger: CountLedger, *, most: int | None = None, again: bool = False) -> str:
    """Deliver the next records, at the most so many; `again`: all that the stream keeps."""
    connection = cast("ActorConnection", ledger.connection)
    sender = connection.sender
    world = sender.world

    def batch() -> list[dict[str, Any]]:
        after = 0 if again else _position(world)
        return [lambda_record(one, STREAM.arn) for one in records_of(world, after, most)]

    def move() -> None:
        world.tables[MAPPING].store(_POSITION, {"after": max(_position(world), handled)})

    records = sender.send(Sending(f"a batch, again: {again}", batch, writes=False, lost=NO_ANSWER))
    if not records:
        return "nothing"
    passed = PassedShards(connection.late_write_ms)
    outcome = Materializer(connection, NoQuarantine(), passed=passed).apply(records, SHARD)
    last = int(records[-1]["dynamodb"]["SequenceNumber"])
    handled = last if outcome.retry_from is None else outcome.retry_from - 1
    sender.send(Sending(f"delivered up to {handled}", move, writes=False, lost=NO_ANSWER))
    return "delivered"


def _position(world: World) -> int:
    position: int = world.tables[MAPPING].items.get(_POSITION, {}).get("after", 0)
    return position


def total_after_all(contents: Contents, counter: str) -> int:
    """The total once everything is delivered that the mapping has not delivered yet."""
    world = World()
    let_streams_flow(world)
    made = (item["made_ms"] for item in contents.tables[STREAM_TABLE].values())
    world.show(contents, max(made, default=BEGIN_MS))
    records = [lambda_record(one, STREAM.arn) for one in records_of(world, _position(world))]
    clock = StateClock(world)
    client = DirectClient(world=world, clock=clock)
    connection = connection_on(client, clock, counters_table=COUNTERS)
    outcome = Context().run(Materializer(connection, NoQuarantine()).apply, records, SHARD)
    if outcome.failed:
        raise AssertionError(outcome.failed)
    return int(world.tables[COUNTERS].items.get((counter, keys.TOTAL), {}).get("total", 0))
