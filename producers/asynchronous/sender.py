"""Sending entries from an event loop: the same rules as `sender`, awaited."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from countledger.ledger.attempts import Pause, run_async
from countledger.ledger.before_send import guarded
from countledger.ledger.keys import namespace_of
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import PutBatch
from countledger.producers.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attempts import Answer, Step
    from countledger.ledger.entry import Entry
    from countledger.producers.asynchronous.dynamo import AsyncDynamoClient
    from countledger.producers.sender import Outcome


@dataclass(frozen=True, slots=True)
class AsyncSender(Sender):
    """Sends entries to the ledger without holding up an event loop.

    Its client is an `AsyncDynamoClient`. A thread reads each namespace at its first use.

    Attributes:
        met: the namespaces that are known.
    """

    met: set[str] = field(default_factory=set)

    async def meet(self, entry: Entry) -> None:
        """Know the namespace of an entry.

        Raises:
            NamespaceUnknown, WrongKind: its counter cannot be used like this.
        """
        name = namespace_of(entry.counter)
        if name not in self.met:
            await asyncio.to_thread(self.namespaces.for_use, entry.counter, Kind.LEDGER)
            self.met.add(name)

    async def send_batch_soon(self, entries: Sequence[Entry]) -> list[Outcome]:
        """As `send_batch`, of entries whose namespaces are known."""
        return await run_async(self.sending_batch(entries), self._perform_soon)

    async def outcome_soon(self, entry: Entry) -> Outcome:
        """As `outcome_of`, of an entry whose namespace is known."""
        return await run_async(self.sending_alone(entry), self._perform_soon)

    async def _perform_soon(self, step: Step) -> Answer:
        if isinstance(step, Pause):
            return await asyncio.sleep(step.wait_ms / 1_000)
        with guarded(step.before_send):
            if isinstance(step.operation, PutBatch):
                table, items = step.operation.table, step.operation.items
                return await self._async_dynamo.put_batch_soon(table, items)
            return await self._async_dynamo.put_soon(step.operation)

    @property
    def _async_dynamo(self) -> AsyncDynamoClient:
        return cast("AsyncDynamoClient", self.dynamo)
