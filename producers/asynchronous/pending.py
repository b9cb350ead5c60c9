"""Entries that are awaited, their outcomes, and waiting on an event loop for a change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from countledger.producers.buffer.outcomes import Outcomes, PendingEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.producers.event import Receipt
    from countledger.producers.sender import Outcome


class AsyncPendingEntry(PendingEntry):
    """An entry on its way; `await` it for its receipt. `result()` knows it once it is `done`."""

    __slots__ = ("_awaiting", "_future")

    def __init__(
        self, outcomes: Outcomes, counter: str, delta: Amount, entry: Entry | None
    ) -> None:
        super().__init__(outcomes, counter, delta, entry)
        self._future: asyncio.Future[None] | None = None
        self._awaiting = 0  # by how many

    def __await__(self) -> Generator[object, None, Receipt]:
        """Wait until it is acknowledged.

        Raises:
            ProducerClosed: this is a fork of the process that the entry belongs to.
            CountledgerError: what `CountLedger.record` raises.
        """
        self.reported = True
        if self.outcome is None:
            self._outcomes.refuse_in_a_fork()
            if self._future is None:
                self._future = asyncio.get_running_loop().create_future()
            self._awaiting += 1
            try:
                # Of several who wait for it, one may be cancelled.
                yield from asyncio.shield(self._future)
            except asyncio.CancelledError:
                # Where that was the last of them, a failure is to be notified to others.
                self.reported = self._awaiting > 1
                raise
            finally:
                self._awaiting -= 1
        return self.result()

    def wake(self) -> None:
        """Its outcome is known: let go on whoever awaits it."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class AsyncOutcomes(Outcomes):
    """Outcomes that are awaited."""

    def pending(self, counter: str, delta: Amount, entry: Entry | None) -> AsyncPendingEntry:
        """A new entry on its way."""
        return AsyncPendingEntry(self, counter, delta, entry)

    def outcome_of(self, pending: PendingEntry, timeout_s: float | None) -> Outcome:  # noqa: ARG002 - it never waits
        """An entry's outcome, if it is known; to wait for it would hold up who is to send it.

        Raises:
            TimeoutError: it is not known yet.
        """
        if pending.outcome is None:
            raise TimeoutError(f"no outcome of an entry of {pending.counter!r} yet: await it")
        pending.reported = True
        return pending.outcome

    def notify(self, pendings: Iterable[PendingEntry]) -> None:
        """Call whoever wants to be called, and wake whoever waits."""
        notified = list(pendings)
        super().notify(notified)
        for pending in notified:
            if isinstance(pending, AsyncPendingEntry):
                pending.wake()


class ChangeSignal:
    """Wakes everybody who waits, so that each looks again. One event loop uses it."""

    def __init__(self) -> None:
        """Nothing has changed yet."""
        self._next = asyncio.Event()

    def signal(self) -> None:
        """Something has changed."""
        changed, self._next = self._next, asyncio.Event()
        changed.set()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._next.wait()

    async def until(self, holds: Callable[[], bool], left_s: Callable[[], float]) -> bool:
        """Wait until something holds; whether it does in time.

        Args:
            holds: whether it holds now.
            left_s: how long it may still take, asked again after each time-out: it may grow.
        """
        while not holds():
            try:
                await asyncio.wait_for(self._next.wait(), max(left_s(), 0))
            except TimeoutError:
                if left_s() <= 0:
                    return holds()
        return True
