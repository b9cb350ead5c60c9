"""The buffered producer for an event loop: the same buffer, emptied by tasks instead of threads.

    async with ledger.buffered_async() as clicks:
        await clicks.add("clicks:home", 1)

What is sent when, what fails and what a spool keeps is as in `buffered`. One event loop uses it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final

from countledger.producers.asynchronous.delivery import deliver
from countledger.producers.asynchronous.pending import AsyncOutcomes, AsyncPending
from countledger.producers.buffer.errors import NotRecorded
from countledger.producers.buffer.holdings import Holdings, not_sent, ticks_ms
from countledger.producers.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.ledger.ids import IdempotencyKey
    from countledger.producers.asynchronous.sender import AsyncSender
    from countledger.producers.buffer.buffer import Batch
    from countledger.producers.buffer.buffering import Buffering
    from countledger.producers.buffer.coalesce import EntryMaker
    from countledger.producers.buffer.errors import Failure
    from countledger.producers.buffer.pending import Pending
    from countledger.producers.buffer.spool import Spool
    from countledger.producers.buffer.statistics import BufferStatistics

_LOG: Final = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S: Final = 30.0
# Events that are taken, and spooled, at once.
_CHUNK: Final = 500


class AsyncBufferedProducer:
    """Adds events at once and sends them in the background of an event loop.

    A spool is written on the loop itself, which stands still for as long as that takes: with
    `fsync` for as long as the disk does, at each `add`.
    """

    def __init__(
        self,
        buffering: Buffering,
        open_sender: Callable[[], AbstractAsyncContextManager[AsyncSender]],
        maker: EntryMaker,
        *,
        open_spool: Callable[[], Spool | None],
        on_failure: Callable[[Failure], object] | None = None,
    ) -> None:
        """Nothing is opened before `async with`.

        Args:
            buffering: the bounds.
            open_sender: makes what brings entries to the ledger.
            maker: makes entries.
            open_spool: opens the spool, where there is one.
            on_failure: told of each failure, in the event loop; it must not block.
        """
        self.buffering = buffering
        self._open_sender = open_sender
        self._open_spool = open_spool
        self._lock = Lock()  # held by nobody for longer than a moment: all is one event loop's
        outcomes = AsyncOutcomes(self._lock, on_failure)
        self._holdings = Holdings(buffering, maker, None, outcomes, closed=True)
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Open the client, and the spool; what is in it is sent.

        Raises:
            SetupError: aiobotocore is not installed, there is no such stack, or the spool cannot
                be used.
        """
        async with AsyncExitStack() as stack:
            self._sender = await stack.enter_async_context(self._open_sender())
            self._holdings.spool = self._open_spool()
            if self._holdings.spool is not None:
                stack.callback(self._holdings.spool.close)
            self._holdings.closed = False
            left = self._holdings.left_in_spool()
            if left:
                await self._take_in(left)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it, also after an error."""
        await self.close()

    async def add(
        self,
        counter: str,
        delta: Amount,
        *,
        key: str | IdempotencyKey | None = None,
        occurred_at: datetime | None = None,
        note: Mapping[str, str] | None = None,
    ) -> AsyncPending:
        """Add to a counter, soon; it waits for nothing but room.

        One write unit for each KB of its entry; coalesced events share theirs.

        Returns:
            Its entry on its way; `await` that for the receipt.

        Raises:
            BadInput, BufferFull, SpoolRefused: as `BufferedProducer.add`.
        """
        (pending,) = await self._take([Event(counter, delta, key, occurred_at, note)])
        return pending

    async def add_many(self, events: Iterable[Event]) -> list[AsyncPending]:
        """Add many events, each as `add`; with a spool much cheaper than one by one."""
        taken: list[AsyncPending] = []
        chunk: list[Event] = []
        most = min(_CHUNK, self.buffering.max_entries)
        for event in events:
            chunk.append(event)
            if len(chunk) == most:
                taken += await self._take(chunk)
                chunk = []
        return taken + await self._take(chunk)

    async def resend(self, entry: Entry) -> AsyncPending:
        """Add an entry that came back with an error, as it is; it cannot count twice."""
        (pending,) = await self._take_in([self._holdings.pending_again(entry)])
        return pending

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all that was added so far, and wait until it is acknowledged.

        Raises:
            NotRecorded, StillBuffered: as `BufferedProducer.flush`.
        """
        buffer = self._holdings.buffer
        mark = buffer.hurry()
        self._wake()
        if not await self._until(lambda: buffer.settled_through(mark), timeout_s):
            raise self._holdings.still_buffered(timeout_s)
        failures = self._holdings.outcomes.take_failures()
        if failures:
            raise NotRecorded(failures)

    async def close(self, timeout_s: float | None = _CLOSE_TIMEOUT_S) -> None:
        """Send all that is left, and take no more; cancelled, it does not wait any longer.

        Raises:
            NotRecorded: as `BufferedProducer.close`; logged, where this is cancelled.
        """
        self._holdings.closed = True
        self._signal()
        self._holdings.buffer.hurry()
        self._wake()
        try:
            await self._until(lambda: not self._holdings.buffer.entries, timeout_s)
        except asyncio.CancelledError:
            failures = await self._let_go()
            if failures:
                number, told = len(failures), NotRecorded(failures)
                _LOG.error("%d entries were in hand as a close was cancelled: %s", number, told)
            raise
        failures = await self._let_go()
        if failures:
            raise NotRecorded(failures)

    async def _let_go(self) -> tuple[Failure, ...]:
        """Hand back whatever is left, and close what was opened."""
        under_way = self._holdings.buffer.pending_under_way()
        with self._lock:
            left, failures = self._holdings.hand_back()
        for task in list(self._tasks):
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for pending in under_way:
            pending.outcome = not_sent(pending)
        self._holdings.outcomes.tell([*left, *under_way])
        await self._stack.aclose()
        return failures

    @property
    def statistics(self) -> BufferStatistics:
        """What was done so far, and what waits."""
        return self._holdings.statistics()

    async def _take(self, events: Sequence[Event]) -> list[AsyncPending]:
        if not events:
            return []
        return await self._take_in([self._holdings.pending_of(event) for event in events])

    async def _take_in(self, pendings: Sequence[Pending]) -> list[AsyncPending]:
        holdings = self._holdings
        size = sum(pending.size for pending in pendings)
        # Room is never held while this waits: between here and `take` nobody else runs.
        if self._turn.locked() or not holdings.has_room(len(pendings), size):
            self._wake()
            if self.buffering.when_full == "error":
                raise holdings.full()
            # One of those who wait looks for room, and the next one behind it: thousands that all
            # look whenever a batch ends would leave the loop no time to send.
            async with self._turn:
                while not holdings.has_room(len(pendings), size):
                    self._wake()
                    await self._changed.wait()
        try:
            if holdings.spool is not None:
                holdings.spool.append([one for one in pendings if one.rows is None])
        except BaseException:
            holdings.buffer.release(len(pendings), size)
            raise
        taken = [holdings.take(pending) for pending in pendings]
        self._wake()
        return [pending for pending in taken if isinstance(pending, AsyncPending)]

    def _wake(self) -> None:
        """Send what is due, and mind the time."""
        buffer, now_ms = self._holdings.buffer, ticks_ms()
        while (batch := self._holdings.next_batch(now_ms)) is not None:
            task = asyncio.create_task(self._deliver(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        due_ms = buffer.due_in_ms(now_ms)
        if due_ms is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(due_ms / 1_000, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self._wake()

    async def _deliver(self, batch: Batch) -> None:
        holdings = self._holdings
        delivered = await deliver(
            batch, self._sender, holdings.spool, attempts=self.buffering.attempts
        )
        with self._lock:
            holdings.outcomes.settle(batch.pendings, delivered.outcomes)
        holdings.outcomes.tell(batch.pendings)
        holdings.ended(batch, delivered)
        self._signal()
        self._wake()

    def _signal(self) -> None:
        """Let everybody look again who waits for something to change."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _until(self, holds: Callable[[], bool], timeout_s: float | None) -> bool:
        until_s = None if timeout_s is None else monotonic() + timeout_s
        while not holds():
            left_s = None if until_s is None else until_s - monotonic()
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                return False
        return True
