"""The transports, and what each of them carries: one line for a transport, one for an operation.

A transport is added to `TRANSPORTS` with the operations that it has. Each operation is called on
items of its own, so a test sees whether this very call was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from countledger.ledger.expressions import Absent, Add, Compare
from countledger.ledger.operations import Check, Delete, Put, Query, Scan, Update
from countledger.producers.asynchronous.door import open_door

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from countledger.ledger.connection import Connection
    from countledger.ledger.door import Door
    from countledger.producers.asynchronous.door import AsyncDoor


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
        return {"counter": self.name, "entry": "e#new", "delta": 2}


# One operation by name, at a place.
Call: TypeAlias = Callable[[str, Place], object]


def update_of(place: Place) -> Update:
    """Adds 2 to the item that is there."""
    return Update(place.table, place.old, (Add("delta", 2),), Compare("delta", "=", 1))


def writes_of(place: Place) -> list[Any]:
    """A transaction with one write that shows."""
    return [Check(place.table, place.old, Compare("delta", "=", 1)), Put(place.table, place.new)]


READS: Final[Mapping[str, Callable[[Door, Place], object]]] = {
    "get": lambda door, at: door.get(at.table, at.old, consistent=True),
    "get_many": lambda door, at: door.get_many(at.table, [at.old]),
    "query": lambda door, at: door.page(Query(at.table, Compare("counter", "=", at.name))),
    "scan": lambda door, at: door.page(Scan(at.table)),
    "transact_get": lambda door, at: door.transact_get(at.table, [at.old]),
    "describe": lambda door, at: door.describe(at.table),
}
WRITES: Final[Mapping[str, Callable[[Door, Place], object]]] = {
    "put": lambda door, at: door.put(Put(at.table, at.new, Absent("entry"))),
    "put_batch": lambda door, at: door.put_batch(at.table, [at.new]),
    "update": lambda door, at: door.update(update_of(at)),
    "delete": lambda door, at: door.delete(Delete(at.table, at.old)),
    "transact": lambda door, at: door.transact(writes_of(at), at.name),
}


@contextmanager
def boto3_calls(connection: Connection) -> Iterator[Call]:
    """Calls of a thread."""
    door = connection.door("none")
    yield lambda operation, place: {**READS, **WRITES}[operation](door, place)


@contextmanager
def aiobotocore_calls(connection: Connection) -> Iterator[Call]:
    """Calls of an event loop."""

    async def call(door: AsyncDoor, operation: str, place: Place) -> object:
        await asyncio.sleep(0)  # the loop hears first of connections that have ended
        if operation == "put":
            await door.put_soon(Put(place.table, place.new, Absent("entry")))
            return None
        return await door.put_batch_soon(place.table, [place.new])

    with asyncio.Runner() as runner:
        opened = open_door(connection)
        door = runner.run(opened.__aenter__())
        yield lambda operation, place: runner.run(call(door, operation, place))
        runner.run(opened.__aexit__(None, None, None))


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
    "boto3": Transport(boto3_calls, (*READS, *WRITES)),
    "aiobotocore": Transport(aiobotocore_calls, ("put", "put_batch")),
}
