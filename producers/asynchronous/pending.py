"""Pending entries to await, their outcomes, and waiting for a change on an event loop."""

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
    """A pending entry; `await` it for its receipt. `result()` returns it once it is `done`."""

    __slots__ = ("_awaiting", "_future")

    def __init__(
        self, outcomes: Outcomes, counter: str, delta: Amount, entry: Entry | None
    ) -> None:
        super().__init__(outcomes, counter, delta, entry)
        self._future: asyncio.Future[None] | None = None
        self._awaiting = 0  # the number of tasks

    def __await__(self) -> Generator[object, None, Receipt]:
        """Wait until the entry is acknowledged.

        Raises:
            ProducerClosed: this is a fork of the process that added the entry.
            CountledgerError: what `CountLedger.record` raises.
        """
        self.reported = True
        if self.outcome is None:
            self._outcomes.refuse_in_a_fork()
            if self._future is None:
                self._future = asyncio.get_running_loop().create_future()
            self._awaiting += 1
            try:
                # Shielded: if one of several waiting tasks is cancelled, the others go on.
                yield from asyncio.shield(self._future)
            except asyncio.CancelledError:
                # If no other task waits, a failure must be reported to others.
                self.reported = self._awaiting > 1
                raise
            finally:
                self._awaiting -= 1
        return self.result()

    def wake(self) -> None:
        """Resume the tasks that await the entry: its outcome is known."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class AsyncOutcomes(Outcomes):
    """Outcomes that tasks await."""

    def pending(self, counter: str, delta: Amount, entry: Entry | None) -> AsyncPendingEntry:
        """A new pending entry."""
        return AsyncPendingEntry(self, counter, delta, entry)

    def outcome_of(self, pending: PendingEntry, timeout_s: float | None) -> Outcome:  # noqa: ARG002 - it never waits
        """The outcome of an entry, if it is known; waiting would block the loop that sends it.

        Raises:
            TimeoutError: the outcome is not known yet.
        """
        if pending.outcome is None:
            raise TimeoutError(f"the entry of {pending.counter!r} has no outcome yet: await it")
        pending.reported = True
        return pending.outcome

    def notify(self, pendings: Iterable[PendingEntry]) -> None:
        """Call the callbacks and `on_failure`, and resume the tasks that wait."""
        notified = list(pendings)
        super().notify(notified)
        for pending in notified:
            if isinstance(pending, AsyncPendingEntry):
                pending.wake()


class ChangeSignal:
    """Resumes all tasks that wait, so that each checks its condition. For one event loop."""

    def __init__(self) -> None:
        """Start without a change."""
        self._next = asyncio.Event()

    def signal(self) -> None:
        """Signal a change."""
        changed, self._next = self._next, asyncio.Event()
        changed.set()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._next.wait()

    async def until(self, holds: Callable[[], bool], left_s: Callable[[], float]) -> bool:
        """Wait until a condition holds; False if it does not in time.

        Args:
            holds: whether the condition holds now.
            left_s: the seconds that are left; called again after each time-out, as it may grow.
        """
        while not holds():
            try:
                await asyncio.wait_for(self._next.wait(), max(left_s(), 0))
            except TimeoutError:
                if left_s() <= 0:
                    return holds()
        return True
