"""Sending entries from an event loop: the same rules as `sender`, awaited."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from countledger.ledger.before_send import guarded
from countledger.ledger.keys import namespace_of
from countledger.producers.course import Pause, carry_out_soon
from countledger.producers.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attributes import Item
    from countledger.ledger.entry import Entry
    from countledger.producers.asynchronous.dynamo import AsyncDynamoClient
    from countledger.producers.course import Step
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
            await asyncio.to_thread(self._namespace, entry)
            self.met.add(name)

    async def send_batch_soon(self, entries: Sequence[Entry]) -> list[Outcome]:
        """As `send_batch`, of entries whose namespaces are known."""
        return await carry_out_soon(self.sending_batch(entries), self._do_soon)

    async def outcome_soon(self, entry: Entry) -> Outcome:
        """As `outcome_of`, of an entry whose namespace is known."""
        return await carry_out_soon(self.sending_alone(entry), self._do_soon)

    async def _do_soon(self, step: Step) -> Sequence[Item]:
        if isinstance(step, Pause):
            await asyncio.sleep(step.wait_ms / 1_000)
            return ()
        with guarded(step.look):
            if step.batch:
                return await self._async_door.put_batch_soon(self.table, step.items)
            await self._async_door.put_soon(step.put(self.table))
            return ()

    @property
    def _async_door(self) -> AsyncDynamoClient:
        return cast("AsyncDynamoClient", self.dynamo)
