"""The buffered producer for an event loop: the same buffer, with tasks instead of threads.

    async with ledger.buffered_async() as clicks:
        await clicks.add("clicks:home", 1)

Batches, failures and the spool are as in `buffered`. One event loop uses a producer.

A forked child has the loop of its parent in memory, with the parent's connections and event queue.
It uses neither: an open producer refuses to work in the child and closes nothing. If the child
opens it again by `async with` on a loop of its own, the producer starts empty.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from countledger.ledger.asynchronous.calls import OpenClients, loop_connection
from countledger.ledger.processes import abandon, abandon_in_forks, before_snapshot
from countledger.producers.assembly import delivery_of
from countledger.producers.buffer.asynchronous import AsyncBuffer
from countledger.producers.buffer.sending import EntryMaker, ledger_name
from countledger.producers.buffer.settings import NOT_PICKLED, NotRecorded, NotTaken
from countledger.producers.buffer.spool import Spool
from countledger.producers.event import Event, gathered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from countledger.ledger.amount import Amount
    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.ledger.ids import IdempotencyKey, RangeKey
    from countledger.ledger.namespace import Namespaces
    from countledger.producers.buffer.asynchronous import AsyncPendingEntry
    from countledger.producers.buffer.sending import BatchDelivery
    from countledger.producers.buffer.settings import Buffering, BufferStatistics, Failure

_LOG: Final = logging.getLogger(__name__)
# The largest number of events that are accepted, and written to the spool, together.
_CHUNK: Final = 500


class AsyncBufferedProducer:
    """Adds events at once and sends them in the background of an event loop.

    A spool is written on the loop itself, which is blocked for that time: with `fsync`, until the
    disk answers, at each `add`.
    """

    def __init__(
        self,
        buffering: Buffering,
        open_delivery: Callable[[], AbstractAsyncContextManager[BatchDelivery]],
        maker: EntryMaker,
        *,
        open_spool: Callable[[], Spool | None],
        on_failure: Callable[[Failure], object] | None = None,
    ) -> None:
        """Create a closed producer; `async with` opens it.

        Args:
            buffering: the settings.
            open_delivery: opens what sends entries to the ledger.
            maker: creates entries.
            open_spool: opens the spool; returns None without one.
            on_failure: called with each failure, in the event loop; it must not block.
        """
        self.buffering = buffering
        self._open_delivery = open_delivery
        self._open_spool = open_spool
        self._maker = maker
        self._on_failure = on_failure
        self._reset()

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled: its events would be in two processes.

        Raises:
            TypeError: always.
        """
        raise TypeError(NOT_PICKLED)

    def _reset(self) -> None:
        """Start empty and closed."""
        self._buffer = AsyncBuffer(self.buffering, self._maker, self._on_failure)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open the client and the spool, and start to send the entries in the spool.

        Raises:
            SpoolRefused: the spool cannot be used.
        """
        if self._buffer.belongs_to_parent:
            abandon(vars(self).copy())
            self._reset()
        buffer, state = self._buffer, self._buffer.state
        async with AsyncExitStack() as stack:
            buffer.delivery = await stack.enter_async_context(self._open_delivery())
            state.spool = self._open_spool()
            if state.spool is not None:
                stack.callback(state.spool.close)
            state.closed = False
            left = state.left_in_spool()
            if left:
                await buffer.accept(left)
            self._stack = stack.pop_all()
        self._loop = asyncio.get_running_loop()
        abandon_in_forks(self)
        _OPEN.add(self)
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
            The pending entry; `await` it for the receipt.

        Raises:
            BadInput, BufferFull, ProducerClosed, SpoolRefused: as `BufferedProducer.add`.
        """
        (pending,) = await self._take([Event(counter, delta, key, occurred_at, note)])
        return pending

    async def add_many(self, events: Iterable[Event]) -> list[AsyncPendingEntry]:
        """Add many events; with a spool this is much cheaper than one `add` for each.

        If it is cancelled, some events may be accepted; to know which, `add` one by one.

        Raises:
            BadInput, BufferFull, SpoolRefused, ProducerClosed: as `BufferedProducer.add_many`.
        """
        taken: list[AsyncPendingEntry] = []
        every = gathered(events)
        most = min(_CHUNK, self.buffering.holds_entries)
        for start in range(0, len(every), most):
            try:
                taken += await self._take(every[start : start + most])
            except NotTaken as error:
                error.taken = tuple(taken)
                raise
        return taken

    async def resend(self, entry: Entry) -> AsyncPendingEntry:
        """Add an entry that failed again, unchanged; it cannot count twice."""
        (pending,) = await self._buffer.accept([self._buffer.state.pending_again(entry)])
        return pending

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send all events added so far, and wait until they are acknowledged.

        Raises:
            NotRecorded, StillBuffered: as `BufferedProducer.flush`.
        """
        failures = await self._buffer.flush(timeout_s)
        if failures:
            raise NotRecorded(failures)

    def flush_before_snapshot(self) -> None:
        """As `flush`, from outside of the event loop, which a thread runs or nobody."""
        if self._buffer.belongs_to_parent or self._loop.is_closed():
            return
        if self._loop.is_running():
            asyncio.run_coroutine_threadsafe(self.flush(), self._loop).result()
        else:
            self._loop.run_until_complete(self.flush())

    async def close(self, timeout_s: float | None = None) -> None:
        """Send all events that are left, and accept no more. If it is cancelled, the wait ends.

        Raises:
            NotRecorded: as `BufferedProducer.close`; logged instead if this is cancelled.
        """
        if self._buffer.belongs_to_parent:
            abandon(self)
            return
        try:
            await self._buffer.close(timeout_s)
        except asyncio.CancelledError:
            failures = await self._hand_back()
            if failures:
                number, error = len(failures), NotRecorded(failures)
                _LOG.error("close was cancelled with %d entries left: %s", number, error)
            raise
        failures = await self._hand_back()
        if failures:
            raise NotRecorded(failures)

    async def _hand_back(self) -> tuple[Failure, ...]:
        """Fail the entries that are left, and close the client and the spool."""
        failures = self._buffer.hand_back()
        _OPEN.discard(self)
        await self._stack.aclose()
        return failures

    @property
    def statistics(self) -> BufferStatistics:
        """The statistics so far."""
        return self._buffer.state.statistics()

    async def _take(self, events: Sequence[Event]) -> list[AsyncPendingEntry]:
        if not events:
            return []
        return await self._buffer.accept([self._buffer.state.pending_of(event) for event in events])


def _flush_all() -> None:
    for producer in list(_OPEN):
        producer.flush_before_snapshot()


_OPEN: Final[WeakSet[AsyncBufferedProducer]] = WeakSet()
before_snapshot(_flush_all)


def async_producer(
    connection: Connection,
    buffering: Buffering,
    namespaces: Namespaces,
    on_failure: Callable[[Failure], object] | None,
) -> AsyncBufferedProducer:
    """A buffered producer of a stack for an event loop, whose tables the namespaces have found."""
    settings = replace(connection.settings, ledger_table=namespaces.table)

    @asynccontextmanager
    async def open_delivery() -> AsyncIterator[BatchDelivery]:
        opened = OpenClients()
        opened.open()
        try:
            own = loop_connection(replace(connection, settings=settings), opened)
            mine = replace(namespaces, dynamo=own.dynamo("standard"))
            yield delivery_of(own, buffering, mine)
        finally:
            await opened.aclose()

    def open_spool() -> Spool | None:
        if buffering.spool is None:
            return None
        name = ledger_name(connection)
        return Spool.open(buffering.spool, ledger=name, fsync=buffering.fsync)

    return AsyncBufferedProducer(
        buffering,
        open_delivery,
        EntryMaker(connection.region, connection.clock, connection.ids.new_ids),
        open_spool=open_spool,
        on_failure=on_failure,
    )
