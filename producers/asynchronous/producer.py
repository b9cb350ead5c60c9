"""The buffered producer for an event loop: the same buffer, emptied by tasks instead of threads.

    async with ledger.buffered_async() as clicks:
        await clicks.add("clicks:home", 1)

What is sent when, what fails and what a spool keeps is as in `buffered`. One event loop uses it.

A forked child has the loop of its parent in memory, with the parent's connections and event queue.
It touches neither: an open producer refuses to work there and closes nothing. Opened again by
`async with`, on a loop of the child's own, it begins with nothing in hand.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from countledger.ledger.forks import abandon, abandon_in_forks
from countledger.producers.asynchronous.buffer import AsyncBuffer
from countledger.producers.asynchronous.dynamo import open_client
from countledger.producers.asynchronous.sender import AsyncSender
from countledger.producers.buffer.assembly import ledger_name
from countledger.producers.buffer.delivery import EntryMaker
from countledger.producers.buffer.errors import NotRecorded, NotTaken
from countledger.producers.buffer.spool import Spool
from countledger.producers.event import Event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from countledger.ledger.amount import Amount
    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.ledger.ids import IdempotencyKey
    from countledger.ledger.namespace import Namespaces
    from countledger.producers.asynchronous.pending import AsyncPendingEntry
    from countledger.producers.buffer.buffering import Buffering, BufferStatistics
    from countledger.producers.buffer.errors import Failure

_LOG: Final = logging.getLogger(__name__)
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
        self._maker = maker
        self._on_failure = on_failure
        self._reset()

    def _reset(self) -> None:
        """Nothing is in hand, and nothing is open."""
        self._buffer = AsyncBuffer(self.buffering, self._maker, self._on_failure)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the client, and the spool; what is in it is sent.

        Raises:
            SetupError: aiobotocore is not installed, there is no such stack, or the spool cannot
                be used.
        """
        if self._buffer.belongs_to_parent:
            abandon(vars(self).copy())
            self._reset()
        buffer, state = self._buffer, self._buffer.state
        async with AsyncExitStack() as stack:
            buffer.sender = await stack.enter_async_context(self._open_sender())
            state.spool = self._open_spool()
            if state.spool is not None:
                stack.callback(state.spool.close)
            state.closed = False
            left = state.left_in_spool()
            if left:
                await buffer.accept(left)
            self._stack = stack.pop_all()
        abandon_in_forks(self)
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
    ) -> AsyncPendingEntry:
        """Add to a counter, soon; it waits for nothing but room.

        One write unit for each KB of its entry; coalesced events share theirs.

        Returns:
            Its entry on its way; `await` that for the receipt.

        Raises:
            BadInput, BufferFull, SpoolRefused: as `BufferedProducer.add`.
        """
        (pending,) = await self._take([Event(counter, delta, key, occurred_at, note)])
        return pending

    async def add_many(self, events: Iterable[Event]) -> list[AsyncPendingEntry]:
        """Add many events, each as `add`; with a spool much cheaper than one by one.

        Cancelled, it has taken those that found room; if you must know which, `add` one by one.

        Raises:
            BufferFull, SpoolRefused, ProducerClosed: as `BufferedProducer.add_many`.
        """
        taken: list[AsyncPendingEntry] = []
        every = list(events)
        most = min(_CHUNK, self.buffering.max_entries)
        for start in range(0, len(every), most):
            try:
                taken += await self._take(every[start : start + most])
            except NotTaken as error:
                error.taken = tuple(taken)
                raise
        return taken

    async def resend(self, entry: Entry) -> AsyncPendingEntry:
        """Add an entry that came back with an error, as it is; it cannot count twice."""
        (pending,) = await self._buffer.accept([self._buffer.state.pending_again(entry)])
        return pending

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all that was added so far, and wait until it is acknowledged.

        Raises:
            NotRecorded, StillBuffered: as `BufferedProducer.flush`.
        """
        failures = await self._buffer.flush(timeout_s)
        if failures:
            raise NotRecorded(failures)

    async def close(self, timeout_s: float | None = None) -> None:
        """Send all that is left, and take no more; cancelled, it does not wait any longer.

        Raises:
            NotRecorded: as `BufferedProducer.close`; logged, where this is cancelled.
        """
        if self._buffer.belongs_to_parent:
            abandon(self)
            return
        try:
            await self._buffer.close(timeout_s)
        except asyncio.CancelledError:
            failures = await self._hand_back()
            if failures:
                number, told = len(failures), NotRecorded(failures)
                _LOG.error("%d entries were in hand as a close was cancelled: %s", number, told)
            raise
        failures = await self._hand_back()
        if failures:
            raise NotRecorded(failures)

    async def _hand_back(self) -> tuple[Failure, ...]:
        """Hand back whatever is left, and close what was opened."""
        failures = self._buffer.hand_back()
        await self._stack.aclose()
        return failures

    @property
    def statistics(self) -> BufferStatistics:
        """What was done so far, and what waits."""
        return self._buffer.state.statistics()

    async def _take(self, events: Sequence[Event]) -> list[AsyncPendingEntry]:
        if not events:
            return []
        return await self._buffer.accept([self._buffer.state.pending_of(event) for event in events])


def async_producer(
    connection: Connection,
    buffering: Buffering,
    namespaces: Namespaces,
    on_failure: Callable[[Failure], object] | None,
) -> AsyncBufferedProducer:
    """A buffered producer of a stack for an event loop.

    Raises:
        SetupError: there is no such stack.
    """
    table = connection.setting("ledger_table")

    @asynccontextmanager
    async def open_sender() -> AsyncIterator[AsyncSender]:
        async with open_client(connection) as dynamo:
            yield AsyncSender(
                dynamo, table, namespaces, clock_skew_ms=connection.settings.clock_skew_ms
            )

    def open_spool() -> Spool | None:
        if buffering.spool is None:
            return None
        name = ledger_name(connection)
        return Spool.open(buffering.spool, ledger=name, fsync=buffering.fsync)

    return AsyncBufferedProducer(
        buffering,
        open_sender,
        EntryMaker(connection.region),
        open_spool=open_spool,
        on_failure=on_failure,
    )
