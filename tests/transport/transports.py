"""The transports, and what each of them carries: one line for a transport, one for an operation.

A transport is added to `TRANSPORTS` with the operations that it has. Each operation is called on
items of its own, so a test sees whether this very call was stored.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from countledger.ledger.asynchronous.calls import OpenClients, loop_connection
from countledger.ledger.connection import Connection
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.entry import Entry, PutBatch
from countledger.ledger.operations import (
    Absent,
    Add,
    Check,
    Compare,
    Delete,
    Put,
    Query,
    Scan,
    Update,
)
from countledger.ledger.suspension import CallNotes


@dataclass(frozen=True)
class Place:
    """Where an operation works.

    Attributes:
        table: the table `ledger`.
        name: of a counter that has one item, `e#old` with a delta of 1.
    """

    table: str
    name: str

    @property
    def old(self) -> dict[str, Any]:
        """The key of the item that is there."""
        return {"counter": self.name, "entry": "e#old"}

    @property
    def new(self) -> dict[str, Any]:
        """The item that the operation writes."""
        return self.batch.items[0]

    @property
    def batch(self) -> PutBatch:
        """The same as a batch."""
        entry = Entry(counter=self.name, id="new", delta=2, at_ms=1, origin="eu-west-1")
        return PutBatch(self.table, [entry], [1])


def impatient(connection: Connection, call_ms: int = 30_000, attempts: int = 100) -> Connection:
    """The same, whose clients give up early; for tests of silence alone."""
    settings = replace(
        connection.settings,
        connect_timeout_ms=300,
        read_timeout_ms=300,
        call_timeout_ms=call_ms,
        max_attempts=attempts,
    )
    return replace(connection, settings=settings)


# One operation by name, at a place.
Call: TypeAlias = Callable[[str, Place], object]


def update_of(place: Place) -> Update:
    """Adds 2 to the item that is there."""
    return Update(place.table, place.old, (Add("delta", 2),), Compare("delta", "=", 1))


def writes_of(place: Place) -> list[Any]:
    """A transaction with one write that shows."""
    return [Check(place.table, place.old, Compare("delta", "=", 1)), Put(place.table, place.new)]


READS: Final[Mapping[str, Callable[[DynamoClient, Place], object]]] = {
    "get": lambda dynamo, at: dynamo.get(at.table, at.old, consistent=True),
    "get_many": lambda dynamo, at: dynamo.get_many(at.table, [at.old]),
    "query": lambda dynamo, at: dynamo.page(Query(at.table, Compare("counter", "=", at.name))),
    "scan": lambda dynamo, at: dynamo.page(Scan(at.table)),
    "transact_get": lambda dynamo, at: dynamo.transact_get(at.table, [at.old]),
    "describe": lambda dynamo, at: dynamo.describe(at.table),
}
WRITES: Final[Mapping[str, Callable[[DynamoClient, Place], object]]] = {
    "put": lambda dynamo, at: dynamo.put(Put(at.table, at.new, Absent("entry"))),
    "put_batch": lambda dynamo, at: dynamo.put_entries(at.batch),
    "update": lambda dynamo, at: dynamo.update(update_of(at)),
    "delete": lambda dynamo, at: dynamo.delete(Delete(at.table, at.old)),
    "transact": lambda dynamo, at: dynamo.transact(writes_of(at), at.name),
}


@contextmanager
def calls_of_a_thread(transport: str, connection: Connection) -> Iterator[Call]:
    """Calls of a thread, by the transport of that setting."""
    settings = replace(connection.settings, transport=transport)
    dynamo = replace(connection, settings=settings).dynamo("none")
    yield lambda operation, place: {**READS, **WRITES}[operation](dynamo, place)


@contextmanager
def calls_of_a_loop(transport: str, connection: Connection) -> Iterator[Call]:
    """Calls of an event loop, by the transport of that setting."""
    opened = OpenClients()
    settings = replace(connection.settings, transport=transport)
    own = loop_connection(replace(connection, settings=settings), opened)

    async def call(operation: str, place: Place) -> object:
        run = partial({**READS, **WRITES}[operation], own.dynamo("none"), place)
        return await opened.get().run(run, CallNotes())

    async def begin() -> None:
        opened.open()

    with asyncio.Runner() as runner:
        runner.run(begin())
        yield lambda operation, place: runner.run(call(operation, place))
        runner.run(opened.aclose())


@dataclass(frozen=True)
class Transport:
    """One way to the service.

    Attributes:
        calls: opens its client, and makes calls by it.
        operations: what it carries.
    """

    calls: Callable[[Connection], AbstractContextManager[Call]]
    operations: tuple[str, ...]


TRANSPORTS: Final[Mapping[str, Transport]] = {
    "boto3": Transport(partial(calls_of_a_thread, "boto3"), (*READS, *WRITES)),
    "fast": Transport(partial(calls_of_a_thread, "fast"), (*READS, *WRITES)),
    "boto3 in a loop": Transport(partial(calls_of_a_loop, "boto3"), (*READS, *WRITES)),
    "fast in a loop": Transport(partial(calls_of_a_loop, "fast"), (*READS, *WRITES)),
}
