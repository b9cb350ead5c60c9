"""Sends entries from an event loop: performs the steps of `sender` and `buffer.delivery`.

Requests, costs and errors of the client are those of `ledger.dynamo`; only the SDK differs.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from countledger.ledger.asynchronous.session import open_client, open_session
from countledger.ledger.attempts import Pause, run_async
from countledger.ledger.attributes import decode, encode
from countledger.ledger.before_send import guarded
from countledger.ledger.dynamo import METERED, DynamoClient, consumed_in, of_the_table
from countledger.ledger.keys import namespace_of
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import PutBatch
from countledger.ledger.service_errors import translated
from countledger.producers.buffer.delivery import (
    PauseCounter,
    ReadNamespace,
    delivered,
    kept,
    sending,
    unknown_outcomes,
)
from countledger.producers.sender import Sender

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from countledger.ledger.attempts import Answer, Step
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Put
    from countledger.producers.buffer.delivery import Delivered
    from countledger.producers.buffer.queue import EntryBatch
    from countledger.producers.buffer.spool import Spool


@dataclass(frozen=True, slots=True)
class AsyncSender(Sender):
    """Sends entries to the ledger without blocking an event loop.

    Its client is an `AsyncDynamoClient`. A thread reads each namespace at its first use.

    Attributes:
        known: the namespaces that were read.
    """

    known: set[str] = field(default_factory=set)

    async def deliver(self, batch: EntryBatch, spool: Spool | None, attempts: int) -> Delivered:
        """As `BatchDelivery.deliver`; the only error is a cancellation."""
        perform = PauseCounter(self._perform_async)
        refused = kept(batch, spool)
        if refused is not None:
            return refused
        try:
            outcomes = await run_async(sending(batch, self, attempts), perform)
        # Any error, also a bug here: the entries must return to their owner.
        except Exception as error:  # noqa: BLE001
            outcomes = unknown_outcomes(batch, error)
        return delivered(batch, spool, outcomes, perform.pauses)

    async def _perform_async(self, step: Step) -> Answer:
        if isinstance(step, Pause):
            return await asyncio.sleep(step.wait_ms / 1_000)
        operation = step.operation
        if isinstance(operation, ReadNamespace):
            return await self._read(operation.counter)
        dynamo = cast("AsyncDynamoClient", self.dynamo)
        with guarded(step.before_send):
            if isinstance(operation, PutBatch):
                return await dynamo.put_batch_async(operation.table, operation.items)
            return await dynamo.put_async(operation)

    async def _read(self, counter: str) -> None:
        name = namespace_of(counter)
        if name not in self.known:
            await asyncio.to_thread(self.namespaces.for_use, counter, Kind.LEDGER)
            self.known.add(name)


class AsyncDynamoClient(DynamoClient):
    """Performs operations through a client of aiobotocore."""

    __slots__ = ()

    async def put_async(self, write: Put) -> None:
        """As `put`."""
        what = f"PutItem on {write.table}"
        client: Any = self.client
        with translated(what), self._conditions():
            answer = await client.put_item(**write.arguments(), **METERED)
        self.meter.written(consumed_in(answer, what))

    async def put_batch_async(self, table: str, items: Sequence[Item]) -> list[Item]:
        """As `put_batch`."""
        requests: Any = [{"PutRequest": {"Item": encode(item)}} for item in items]
        what = f"BatchWriteItem on {table}"
        client: Any = self.client
        with translated(what):
            answer = await client.batch_write_item(RequestItems={table: requests}, **METERED)
        self.meter.written(consumed_in(answer, what))
        left = of_the_table(answer["UnprocessedItems"])
        return [decode(request["PutRequest"]["Item"]) for request in left]


@asynccontextmanager
async def open_dynamo(connection: Connection) -> AsyncIterator[AsyncDynamoClient]:
    """A client of this event loop, whose SDK does not retry.

    Raises:
        SetupError: aiobotocore is not installed, or the client cannot be made.
    """
    session = await open_session(connection)
    async with open_client(connection, session, "dynamodb", "none", connection.region) as client:
        yield AsyncDynamoClient(client, connection.meter)
