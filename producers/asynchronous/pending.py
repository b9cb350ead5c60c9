"""Entries on their way that are awaited, and the outcomes that wake whoever does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from countledger.producers.buffer.outcomes import Outcomes
from countledger.producers.buffer.pending import Pending

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.producers.receipt import Receipt


class AsyncPending(Pending):
    """An entry on its way; `await` it for its receipt. `result()` knows it once it is `done`."""

    __slots__ = ("_future",)

    def __init__(self, fates: Outcomes, counter: str, delta: Amount, entry: Entry | None) -> None:
        super().__init__(fates, counter, delta, entry)
        self._future: asyncio.Future[None] | None = None

    def __await__(self) -> Generator[object, None, Receipt]:
        """Wait until it is acknowledged.

        Raises:
            CountledgerError: what `CountLedger.record` raises.
        """
        self.seen = True
        if self.outcome is None:
            if self._future is None:
                self._future = asyncio.get_running_loop().create_future()
            # Of several who wait for it, one may be cancelled.
            yield from asyncio.shield(self._future)
        return self.result(0)

    def wake(self) -> None:
        """Its outcome is known: let go on whoever awaits it."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class AsyncOutcomes(Outcomes):
    """Outcomes that are awaited."""

    def pending(self, counter: str, delta: Amount, entry: Entry | None) -> AsyncPending:
        """A new entry on its way."""
        return AsyncPending(self, counter, delta, entry)

    def tell(self, pendings: Iterable[Pending]) -> None:
        """Call whoever wants to be called, and wake whoever waits."""
        told = list(pendings)
        super().tell(told)
        for pending in told:
            if isinstance(pending, AsyncPending):
                pending.wake()
