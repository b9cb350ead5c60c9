"""Sends entries from an event loop: performs the steps of `sender` and `buffer.delivery`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from countledger.ledger.attempts import Pause, run_async
from countledger.ledger.before_send import guarded
from countledger.ledger.keys import namespace_of
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import PutBatch
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
    from countledger.ledger.attempts import Answer, Step
    from countledger.producers.asynchronous.dynamo import AsyncDynamoClient
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
