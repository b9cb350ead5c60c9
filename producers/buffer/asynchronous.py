"""The buffered producer for an event loop: the same buffer, with tasks instead of threads.

    async with ledger.buffered_async() as clicks:
        await clicks.add("clicks:home", 1)

Batches, failures and the spool are as in `buffered`. One event loop uses a producer: callers add
events, and tasks send batches (see `sending`).

A forked child has the loop of its parent in memory, with the parent's connections and event queue,
and may even continue to run it. Only the parent sends the parent's events: an open producer refuses
to work in the child and closes nothing. If the child opens it again by `async with` on a loop of
its own, the producer starts empty.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from countledger.ledger.asynchronous.calls import OpenClients, loop_connection, suspended
from countledger.ledger.processes import abandon, abandon_in_forks, before_snapshot, this_process
from countledger.ledger.suspension import CallNotes
from countledger.producers.buffer.sending import (
    BatchDelivery,
    BufferState,
    EntryMaker,
    ledger_name,
    not_sent,
    ticks_ms,
    undeliverable,
)
from countledger.producers.buffer.settings import (
    NOT_PICKLED,
    NotRecorded,
    NotTaken,
    Outcomes,
    PendingEntry,
    ProducerClosed,
)
from countledger.producers.buffer.spool import Spool
from countledger.producers.event import Event, gathered

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from countledger.ledger.amount import Amount
    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.ledger.ids import IdempotencyKey, RangeKey
    from countledger.producers.buffer.queue import EntryBatch
    from countledger.producers.buffer.sending import Delivered
    from countledger.producers.buffer.settings import Buffering, BufferStatistics, Failure, Wait
    from countledger.producers.event import Receipt
    from countledger.producers.sender import Outcome


class AsyncBuffer:
    """The buffer of one event loop and the tasks that send its batches; closed at first.

    `on_failure` is called with each failure, in the event loop.
    """

    delivery: BatchDelivery

    def __init__(
        self,
        buffering: Buffering,
        maker: EntryMaker,
        on_failure: Callable[[Failure], object] | None,
    ) -> None:
        self.buffering = buffering
        self._process = this_process()
        self._lock = Lock()  # never contended: one event loop runs all callers
        outcomes = AsyncOutcomes(self._lock, on_failure)
        self.state = BufferState(buffering, maker, None, outcomes, closed=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._changes = ChangeSignal()
        self._turn = asyncio.Lock()

    # ---- processes ----

    @property
    def belongs_to_parent(self) -> bool:
        """Whether this is a fork of the process that opened the buffer."""
        return self._process != this_process()

    def refuse_in_fork(self) -> None:
        """Refuse an operation that only the process of the buffer may do."""
        if self.belongs_to_parent:
            raise ProducerClosed(
                "the producer was opened before this process was forked: open one with "
                "`async with` on an event loop of this process"
            )

    # ---- accepting ----

    async def accept(self, pendings: Sequence[PendingEntry]) -> list[AsyncPendingEntry]:
        """Accept events once there is headroom; return the pending entry of each."""
        self.refuse_in_fork()
        state = self.state
        size = sum(pending.size for pending in pendings)
        # No headroom is reserved while this waits: no other task runs between here and `take`.
        if self._turn.locked() or not state.has_headroom(len(pendings), size):
            self.wake()
            if self.buffering.when_full == "error":
                raise state.full()
            # Tasks check for headroom one after the other: if thousands checked after each batch,
            # the loop would have no time to send.
            async with self._turn:
                while not state.has_headroom(len(pendings), size):
                    self.wake()
                    await self._changes.wait()
        try:
            if state.spool is not None:
                state.spool.append([one for one in pendings if one.rows is None])
        except BaseException:
            state.queue.release(len(pendings), size)
            raise
        taken = [state.take(pending) for pending in pendings]
        if state.queue.may_be_due:
            self.wake()
        return [pending for pending in taken if isinstance(pending, AsyncPendingEntry)]

    # ---- sending ----

    def wake(self) -> None:
        """Send what is due, and set a timer for the next due time."""
        if self.belongs_to_parent:
            return
        buffer, now_ms = self.state.queue, ticks_ms()
        buffer.may_be_due = False
        while (batch := self.state.next_batch(now_ms)) is not None:
            task = asyncio.create_task(self._deliver(batch))
            self._tasks.add(task)
            task.add_done_callback(partial(self._ended, batch))
        due_ms = buffer.due_in_ms(now_ms)
        if due_ms is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(due_ms / 1_000, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        self.wake()

    async def _deliver(self, batch: EntryBatch) -> None:
        if self.belongs_to_parent:
            return
        deliver = partial(self.delivery.deliver, batch, self.state.spool)
        delivered = await suspended(deliver, CallNotes())
        if not self.belongs_to_parent:
            self._end(batch, delivered)

    def _ended(self, batch: EntryBatch, task: asyncio.Task[None]) -> None:
        """Finish the batch of a task that was cancelled, also if that was before its first step."""
        self._tasks.discard(task)
        if self.belongs_to_parent:
            return
        if task.cancelled() and not all(pending.done for pending in batch.pendings):
            cancelled = asyncio.CancelledError("the task that sent it was cancelled")
            self._end(batch, undeliverable(batch, self.state.spool, cancelled))

    def _end(self, batch: EntryBatch, delivered: Delivered) -> None:
        state = self.state
        with self._lock:
            state.outcomes.resolve(batch.pendings, delivered.others)
        state.outcomes.notify(batch.pendings)
        state.ended(batch, delivered)
        self._changes.signal()
        self.wake()

    # ---- ending ----

    async def flush(self, timeout_s: float | None) -> tuple[Failure, ...]:
        """Send all accepted events and wait; return the failures that no caller has got."""
        self.refuse_in_fork()
        buffer, wait = self.state.queue, self.state.wait(timeout_s)
        mark = buffer.make_due()
        self.wake()
        if not await self._until(lambda: buffer.finished_through(mark), wait):
            raise self.state.still_buffered(timeout_s)
        return self.state.outcomes.take_failures()

    async def close(self, timeout_s: float | None) -> None:
        """Refuse further events, and send all that are left until the wait ends."""
        wait = self.state.wait(timeout_s)
        self.state.closed = True
        self._changes.signal()
        self.state.queue.make_due()
        self.wake()
        await self._until(lambda: not self.state.queue.entries, wait)

    def hand_back(self) -> tuple[Failure, ...]:
        """Fail all entries that are left; return the failures that no caller has got."""
        under_way = self.state.queue.pending_under_way()
        with self._lock:
            left, failures, lost = self.state.hand_back()
        for task in list(self._tasks):
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for pending in under_way:
            pending.settled = not_sent(pending)
        outcomes = self.state.outcomes
        outcomes.notify([*left, *under_way])
        return (*failures, *outcomes.report(lost))

    async def _until(self, holds: Callable[[], bool], wait: Wait) -> bool:
        outcomes = self.state.outcomes
        return await self._changes.until(
            holds, lambda: wait.left_s(monotonic(), outcomes.progress_s)
        )


class AsyncPendingEntry(PendingEntry):
    """A pending entry; `await` it for its receipt. `result()` returns it once it is `done`."""

    __slots__ = ("_awaiting", "_future")

    def __init__(self, *given: Any) -> None:  # noqa: ANN401 - as a pending entry
        super().__init__(*given)
        self._future: asyncio.Future[None] | None = None
        self._awaiting = 0  # the number of tasks

    def __await__(self) -> Generator[object, None, Receipt]:
        """Wait until the entry is acknowledged.

        Raises:
            ProducerClosed: this is a fork of the process that added the entry.
            CountledgerError: what `CountLedger.record` raises.
        """
        self.reported = True
        if self.settled is None:
            self._outcomes.refuse_in_a_fork(self)
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

    kind = AsyncPendingEntry

    def outcome_of(self, pending: PendingEntry, timeout_s: float | None) -> Outcome:  # noqa: ARG002 - it never waits
        """The outcome of an entry, if it is known; waiting would block the loop that sends it."""
        if pending.outcome is None:
            raise TimeoutError(f"the entry of {pending.counter!r} has no outcome yet: await it")
        pending.reported = True
        return pending.outcome

    def notify(self, pendings: Iterable[PendingEntry]) -> None:
        """Call the callbacks and `on_failure`, and resume the tasks that wait."""
        super().notify(notified := list(pendings))
        for pending in notified:
            if isinstance(pending, AsyncPendingEntry):
                pending.wake()


class ChangeSignal:
    """Resumes all tasks that wait, so that each checks its condition. For one event loop."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def signal(self) -> None:
        changed, self._next = self._next, asyncio.Event()
        changed.set()

    async def wait(self) -> None:
        await self._next.wait()

    async def until(self, holds: Callable[[], bool], left_s: Callable[[], float]) -> bool:
        """Wait until a condition holds; False if it does not in the seconds that are left.

        `left_s` is called again after each time-out, because it may grow.
        """
        while not holds():
            try:
                await asyncio.wait_for(self._next.wait(), max(left_s(), 0))
            except TimeoutError:
                if left_s() <= 0:
                    return holds()
        return True


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
        connection: Connection,
        buffering: Buffering,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> None:
        """Create a closed producer; `async with` opens it.

        Args:
            connection: to the stack, whose tables are found here and now.
            buffering: the settings.
            on_failure: called with each failure, in the event loop; it must not block.

        Raises:
            StackNotFound: the stack does not exist.
        """
        settings = replace(connection.settings, ledger_table=connection.ledger)
        self.connection = replace(connection, settings=settings)
        self.buffering = buffering
        self._maker = EntryMaker(connection)
        self._on_failure = on_failure
        self._reset()

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled: its events would be in two processes."""
        raise TypeError(NOT_PICKLED)

    def _reset(self) -> None:
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
            opened = OpenClients()
            opened.open()
            stack.push_async_callback(opened.aclose)
            own = loop_connection(self.connection, opened)
            buffer.delivery = BatchDelivery(own, self.buffering.attempts)
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

    def _open_spool(self) -> Spool | None:
        path, ledger = self.buffering.spool, ledger_name(self.connection)
        return None if path is None else Spool.open(path, ledger=ledger, fsync=self.buffering.fsync)

    async def _take(self, events: Sequence[Event]) -> list[AsyncPendingEntry]:
        if not events:
            return []
        return await self._buffer.accept([self._buffer.state.pending_of(event) for event in events])


def _flush_all() -> None:
    for producer in list(_OPEN):
        producer.flush_before_snapshot()


_OPEN: Final[WeakSet[AsyncBufferedProducer]] = WeakSet()
before_snapshot(_flush_all)
