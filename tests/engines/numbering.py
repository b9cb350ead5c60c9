"""Sequences and claims of one process each, and tables of an app's own beside ours."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, TypeVar
from uuid import uuid4

from countledger.infra.memory.stack import MemoryConnection
from countledger.ledger.attributes import Item
from countledger.ledger.clock import Clock
from countledger.ledger.connection import Retries
from countledger.ledger.operations import Scan
from countledger.producers.claims.claims import Claims
from countledger.producers.sequences.sequences import Sequences
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.unit.connections import UnitConnection, through

T = TypeVar("T")


def process_of(
    store: Store, retries: Retries = "none", clock: Clock | None = None
) -> UnitConnection:
    """A new process: its own clients with one meter, nothing known, no waits of its own."""
    dynamo = store.connection.dynamo(retries).metered()
    reads = replace(store.connection.dynamo("standard"), meter=dynamo.meter)
    return through(store.connection, dynamo, reads, clock or HandClock())


def sequences_of(
    store: Store, *, retries: Retries = "none", clock: Clock | None = None
) -> Sequences:
    """The sequences of a new process."""
    return Sequences(process_of(store, retries, clock))


def claims_of(store: Store, *, retries: Retries = "none", clock: Clock | None = None) -> Claims:
    """The claims of a new process."""
    return Claims(process_of(store, retries, clock))


@contextmanager
def own_table(store: Store, sort: Literal["N", "S"] | None = None) -> Iterator[str]:
    """A table of an app's own: key `id`, or `post` and `place`; an index by `email`."""
    name = f"own-{uuid4().hex[:12]}"
    key = {"id": "S"} if sort is None else {"post": "S", "place": sort}
    if isinstance(store.connection, MemoryConnection):
        store.connection.memory.add(name, *key)
        yield name
        return
    client: Any = store.client()
    roles = zip(key, ("HASH", "RANGE"), strict=False)
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": attribute, "AttributeType": kind}
            for attribute, kind in {**key, "email": "S"}.items()
        ],
        KeySchema=[{"AttributeName": attribute, "KeyType": role} for attribute, role in roles],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "emails",
                "KeySchema": [{"AttributeName": "email", "KeyType": "HASH"}],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    )
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1})
    try:
        yield name
    finally:
        client.delete_table(TableName=name)


def all_items(store: Store, table: str) -> list[Item]:
    """Everything in a small table."""
    return [item for page in store.dynamo().pages(Scan(table)) for item in page]


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make calls at the same time, each on a thread of its own."""
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def units(owner: Sequences | Claims) -> tuple[float, float]:
    """The write and read units of a process so far."""
    meter = owner.connection.unretried.meter
    return meter.write_units, meter.read_units
