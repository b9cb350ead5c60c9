"""The buffered producer for event loops: the one with threads, whose waits are awaited.

    async with AsyncCountLedger() as ledger, await ledger.buffered() as clicks:
        pending = await clicks.add("clicks:home", 1)
        receipt = await pending.result()

The threads of the producer send. A caller that would block its thread there, for headroom, a flush
or an outcome, is suspended here (see `ledger.suspension`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from countledger.ledger.asynchronous.calls import suspended
from countledger.ledger.suspension import CallNotes
from countledger.producers.buffer.settings import NotRecorded, Outcomes, PendingEntry
from countledger.producers.event import Event, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from threading import Lock
    from types import TracebackType
    from typing import Self

    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.ledger.ids import IdempotencyKey, RangeKey
    from countledger.producers.buffer.producer import BufferedProducer, ThreadedBuffer
    from countledger.producers.buffer.settings import BufferStatistics, Failure
    from countledger.producers.sender import Outcome

_T = TypeVar("_T")
_LOG: Final = logging.getLogger(__name__)


class AsyncPendingEntry(PendingEntry):
    """A pending entry whose outcome is awaited."""

    __slots__ = ()

    async def result(self, timeout_s: float | None = None) -> Receipt:  # type: ignore[override]  # awaited
        """As `PendingEntry.result`."""
        outcome = await self.wait(timeout_s)
        if isinstance(outcome, Receipt):
            return outcome
        raise outcome

    async def wait(self, timeout_s: float | None = None) -> Outcome:  # type: ignore[override]  # awaited
        """As `PendingEntry.wait`."""
        wait = partial(self._outcomes.outcome_of, self, timeout_s)
        return await suspended(wait, CallNotes())


class AsyncOutcomes(Outcomes):
    """Outcomes whose callbacks are called in the event loop that used the producer last."""

    kind = AsyncPendingEntry

    def __init__(self, lock: Lock, on_failure: Callable[[Failure], object] | None) -> None:
        super().__init__(lock, on_failure)
        self.loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # no loop runs in this thread
            self.loop = asyncio.get_running_loop()
        self._to_notify: deque[PendingEntry] = deque()

    def notify(self, pendings: Iterable[PendingEntry]) -> None:
        """Call the callbacks and `on_failure` soon, before anything that this lets go on."""
        self._to_notify += pendings
        if self.loop is not None and self.loop.is_running():
            with suppress(RuntimeError):  # closed meanwhile
                self.loop.call_soon_threadsafe(self.notify_here)
                return
        self.notify_here()

    def notify_here(self) -> None:
        """Call what no loop has called yet: one that ends may leave some of it."""
        while not self.abandoned:  # a fork may go on with the loop of its parent
            try:
                pending = self._to_notify.popleft()
            except IndexError:
                return
            super().notify((pending,))


class AsyncBufferedProducer:
    """Adds events at once and sends them in the background. Made by `AsyncCountLedger.buffered`.

    A spool is written on the loop itself, which is blocked for that time: with `fsync`, until the
    disk answers, at each `add`.
    """

    def __init__(self, producer: BufferedProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the producer, also after an error."""
        await self.close()

    async def add(
        self,
        counter: str,
        delta: Amount,
        *,
        key: str | IdempotencyKey | RangeKey | None = None,
        occurred_at: datetime | None = None,
        note: Mapping[str, str] | None = None,
    ) -> AsyncPendingEntry:
        """Add to a counter without waiting for the ledger; it only waits if the buffer is full.

        One write unit for each KB of the entry; coalesced events share one entry.

        Returns:
            The pending entry; `await pending.result()` waits for the receipt.

        Raises:
            BadInput, BufferFull, ProducerClosed, SpoolRefused: as `BufferedProducer.add`.
        """
        own = self._here()
        pending = own.state.pending_of(Event(counter, delta, key, occurred_at, note))
        taken = own.accept_now(pending)
        if taken is None:
            (taken,) = await suspended(partial(own.accept, (pending,)), CallNotes())
        return cast("AsyncPendingEntry", taken)

    async def add_many(self, events: Iterable[Event]) -> list[AsyncPendingEntry]:
        """Add many events; with a spool this is much cheaper than one `add` for each.

        If it is cancelled, some events may be accepted; to know which, `add` one by one.

        Raises:
            BadInput, BufferFull, SpoolRefused, ProducerClosed: as `BufferedProducer.add_many`.
        """
        taken: Any = await self._run(partial(self._producer.add_many, events))
        return cast("list[AsyncPendingEntry]", taken)

    async def resend(self, entry: Entry) -> AsyncPendingEntry:
        """Add an entry that failed again, unchanged; it cannot count twice."""
        return cast("AsyncPendingEntry", await self._run(partial(self._producer.resend, entry)))

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all events added so far, and wait until they are acknowledged.

        Raises:
            NotRecorded, StillBuffered: as `BufferedProducer.flush`.
        """
        await self._end(partial(self._producer.flush, timeout_s))

    async def close(self, timeout_s: float | None = None) -> None:
        """Send all events that are left, and accept no more. If it is cancelled, the wait ends.

        Raises:
            NotRecorded: as `BufferedProducer.close`; logged instead if this is cancelled.
        """
        try:
            await self._end(partial(self._producer.close, timeout_s))
        except asyncio.CancelledError:
            try:
                self._producer.close(0)
            except NotRecorded as error:
                number = len(error.failures)
                _LOG.error("close was cancelled with %d entries left: %s", number, error)
            raise
        finally:
            self._here().end_waits()
            self._notify()

    @property
    def statistics(self) -> BufferStatistics:
        """The statistics so far."""
        return self._producer.statistics

    async def _end(self, function: Callable[[], None]) -> None:
        try:
            await self._run(function)
        finally:
            self._notify()  # in no turn of the loop: a task cancelled there would lose its failures

    async def _run(self, function: Callable[[], _T]) -> _T:
        """Call the producer; where it would block the loop, the call is suspended."""
        self._here()
        return await suspended(function, CallNotes())

    def _here(self) -> ThreadedBuffer:
        """The buffer of this process, whose callbacks are called in this event loop."""
        own = self._producer._here()  # noqa: SLF001 - its form
        cast("AsyncOutcomes", own.outcomes).loop = asyncio.get_running_loop()
        return own

    def _notify(self) -> None:
        """Call the callbacks of what has ended, before the caller goes on."""
        cast("AsyncOutcomes", self._here().outcomes).notify_here()
