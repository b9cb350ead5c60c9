"""A producer whose `add` returns at once; its threads send the events in batches.

    with ledger.buffered() as clicks:
        clicks.add("clicks:home", 1)

Events are sent when they fill a batch, when they have waited for the linger time, by `flush`, and
at the end of the `with` block, of the process, or in a Lambda of each invocation (`flushing`).
Each failure is reported with its entry.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections import deque
from functools import wraps
from math import inf
from threading import Condition, Lock, Thread, get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from countledger.ledger.amount import parse_delta
from countledger.ledger.errors import BadInput, CountledgerError
from countledger.ledger.keys import check_counter
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.processes import abandon, before_snapshot, lock_open_in_forks, this_process
from countledger.ledger.suspension import Interrupted, Waiters
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
    Failure,
    NotRecorded,
    NotTaken,
    Outcomes,
)
from countledger.producers.buffer.spool import Spool
from countledger.producers.event import Event, gathered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Protocol, Self

    from countledger.ledger.amount import Amount
    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.ledger.ids import IdempotencyKey, RangeKey
    from countledger.producers.buffer.queue import EntryBatch
    from countledger.producers.buffer.sending import Delivered
    from countledger.producers.buffer.settings import (
        Buffering,
        BufferStatistics,
        PendingEntry,
        Wait,
    )
    from countledger.producers.sender import Outcome


# Buffered producers at the end of their process or invocation, in a fork, before a snapshot.
#
# A process sends all its events before it ends, and a fork never sends those of its parent. Lambda
# freezes a process between two invocations, so a handler flushes before each invocation ends. Each
# copy of a snapshot would send the events that are in it, so SnapStart's hook flushes before.


if TYPE_CHECKING:

    class Holder(Protocol):
        """A producer that may have unsent events."""

        def close(self, timeout_s: float | None = ...) -> None: ...

        def flush(self, timeout_s: float | None = ...) -> None: ...

        def restart_in_fork(self) -> None: ...


P = ParamSpec("P")
R = TypeVar("R")

_LOG: Final = logging.getLogger(__name__)
# `flush` ends this long before the time limit of a Lambda, so that it can report what is left.
_MARGIN_MS: Final = SECOND_MS
# How long the end of a process waits for a producer: it must not wait for ever.
_AT_EXIT_S: Final = 30.0
# Keeps producers alive until they are closed: garbage collection must not drop their events.
_OPEN: Final[dict[Holder, None]] = {}
# One finalizer for all producers, while `multiprocessing` has it registered.
_FINALIZERS: Final[list[Any]] = []


def opened(producer: Holder) -> None:
    """Register a producer, which may have unsent events from now on."""
    _OPEN[producer] = None
    util = _multiprocessing()
    if util is not None:
        _close_at_its_end(util)


def closed(producer: Holder) -> None:
    """Unregister a producer, which has no unsent events left."""
    _OPEN.pop(producer, None)


def _close_all() -> None:
    """Close all producers at the end of the process; the senders' threads still run."""
    for producer in list(_OPEN):
        try:
            producer.close(_AT_EXIT_S)
        except CountledgerError:
            _LOG.exception("entries were not acknowledged when the process ended")


def _flush_all() -> None:
    """Send all events, before a snapshot; an error keeps Lambda from taking one."""
    for producer in list(_OPEN):
        producer.flush()


def _restart_all() -> None:
    """Start all producers empty in a fork: its threads are gone, and its locks may be held."""
    for producer in list(_OPEN):
        producer.restart_in_fork()
    util = _multiprocessing()
    if _OPEN and util is not None:
        # `multiprocessing` drops the parent's finalizers after this, then calls this function.
        util.register_after_fork(_close_all, lambda _: _close_at_its_end(util))


def _multiprocessing() -> Any:  # noqa: ANN401 - a module
    return sys.modules.get("multiprocessing.util")


def _close_at_its_end(util: Any) -> None:  # noqa: ANN401 - a module
    """Register a finalizer: a worker of `multiprocessing` ends without `atexit`."""
    if not any(one.still_active() for one in _FINALIZERS):
        _FINALIZERS[:] = [util.Finalize(None, _close_all, exitpriority=0)]


def flushing(handler: Callable[P, R], flush: Callable[[float | None], object]) -> Callable[P, R]:
    """A handler that flushes before each invocation ends, also if the invocation fails.

    `flush` gets the seconds that are left, or None if that is unknown.
    """

    @wraps(handler)
    def invoke(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return handler(*arguments, **options)
        finally:
            flush(_time_left_s(arguments))

    return invoke


def _time_left_s(arguments: tuple[Any, ...]) -> float | None:
    """The time that an invocation has left, less a margin; None if its context does not have it."""
    left_ms = getattr(arguments[1], "get_remaining_time_in_millis", None) if arguments[1:] else None
    return None if left_ms is None else max(left_ms() - _MARGIN_MS, 0) / SECOND_MS


atexit.register(_close_all)
before_snapshot(_flush_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restart_all)


# The buffer of one process, under one lock: callers add events, and threads send batches.
#
# `queue` decides what is sent when. Here are the lock, threads and callers that wait.


class ThreadedBuffer:
    """The buffer of one process and the threads that send its batches.

    `lock` is that of the outcomes. `make_delivery` is called once, on the thread of the first
    sender.
    """

    def __init__(
        self, state: BufferState, lock: Lock, make_delivery: Callable[[], BatchDelivery]
    ) -> None:
        self.state = state
        self.queue = state.queue
        self.outcomes = state.outcomes
        self.lock = lock
        self._make_delivery = make_delivery
        self._delivery: BatchDelivery | None = None
        self._delivery_lock = Lock()
        self._work = Condition(lock)
        self._headroom = Waiters(lock)
        # `flush` and `close` wait for the end of the batches up to a mark, each for its own.
        self._drained = Waiters(lock)
        self._marks: list[float] = []
        # Threads that send; those of them that wait; those that wait and were notified.
        self._senders = self._idle = self._notified = self._timers = 0
        self._sender_ids: set[int] = set()
        # For each thread, the number and the size of the entries for which it reserved headroom.
        self._reserved: dict[int, tuple[int, int]] = {}

    # ---- accepting ----

    def join(self, counter: object, delta: Amount) -> PendingEntry | None:
        """Add an event to the pending entry of its counter; None if its counter has none."""
        if not isinstance(counter, str):
            return None
        with self.lock:
            pending = self.queue.join(counter, delta)
            if pending is not None:
                self.state.events += 1
                self._wake_for_new()
            return pending

    def accept_now(self, pending: PendingEntry) -> PendingEntry | None:
        """As `accept`, of one event, under one lock; None without headroom, or with a spool."""
        if self.state.spool is not None:
            return None
        try:
            with self.lock:
                if self._senders and self.state.take_plain(pending):
                    return pending
                if not self.state.has_headroom(1, pending.size):
                    return None
                taken = self.state.take(pending)
                self._wake_for_new()
                return taken
        except BaseException as error:
            self._cancel_reservation(error)
            raise

    def accept(self, pendings: Sequence[PendingEntry]) -> list[PendingEntry]:
        """Accept events once there is headroom; return the pending entry of each."""
        spool, size = self.state.spool, sum(pending.size for pending in pendings)
        try:
            while not self._reserve(len(pendings), size):
                self._help()
            if spool is not None:
                spool.append([one for one in pendings if one.rows is None])
            with self.lock:
                taken = [self.state.take(pending) for pending in pendings]
                if self.state.closed:
                    self.queue.make_due()
                self._wake_for_new()
                del self._reserved[get_ident()]
                self._headroom.notify()
                return taken
        except BaseException as error:
            self._cancel_reservation(error)
            raise

    def _cancel_reservation(self, error: BaseException) -> None:
        """Release the headroom that this thread reserved for events it does not add."""
        with self.lock:
            room = self._reserved.pop(get_ident(), None)
            if not isinstance(error, CountledgerError | Interrupted):
                # A signal handler may have raised it between any two steps.
                self.queue.recount(self._reserved.values())
            elif room is not None:
                self.queue.release(*room)
            self._headroom.notify()
            self._drained.notify_all()

    def _reserve(self, entries: int, size: int) -> bool:
        """Wait for headroom and reserve it; False if no sender runs that could release any.

        Of those that wait, each batch that ends lets one look, who lets the next one look: if
        thousands of tasks looked after each batch, their loop would do nothing else.
        """
        with self.lock:
            # A callback that adds events runs on a sender's thread: it must not wait for itself.
            ours = get_ident() in self._sender_ids
            while not self.state.has_headroom(entries, size, over=ours):
                self._wake(ticks_ms())
                if self.state.buffering.when_full == "error":
                    raise self.state.full()
                if not self._senders:
                    return False
                self._headroom.wait()
            self._reserved[get_ident()] = entries, size
        return True

    def _wake_for_new(self) -> None:
        """Wake who sends, if a new entry can have made a batch due."""
        if self.queue.may_be_due or not self._senders:
            self._wake(ticks_ms())

    # ---- sending ----

    def _wake(self, now_ms: float) -> None:
        """Make sure that a thread sends what is due, and that one waits for the next due time."""
        self.queue.may_be_due = False
        due = self.queue.batches_due(now_ms)
        if due <= 0 and (self._timers or self.queue.due_in_ms(now_ms) is None):
            return
        if self._idle:
            # A thread that was notified wakes later: until then one notification is enough.
            count = min(max(due, 1), self._idle) - self._notified
            if count > 0:
                self._work.notify(count)
                self._notified += count
        elif self._senders < int(self.queue.limit):
            try:
                Thread(target=self._run_sender, name="countledger-sender", daemon=True).start()
            except RuntimeError:
                return  # no thread can start: running senders go on, or the caller that waits sends
            self._senders += 1

    def _run_sender(self) -> None:
        self._sender_ids.add(get_ident())
        while (batch := self._next_batch()) is not None:
            self.deliver(batch)

    def _help(self) -> None:
        """Send what is due on this thread if no sender could be started."""
        while True:
            with self.lock:
                batch = None if self._senders else self.state.next_batch(ticks_ms())
            if batch is None:
                return
            self.deliver(batch)

    def _next_batch(self) -> EntryBatch | None:
        with self.lock:
            while True:
                now_ms = ticks_ms()
                batch = None if self.outcomes.abandoned else self.state.next_batch(now_ms)
                if batch is not None:
                    self._wake(now_ms)
                    return batch
                if self.outcomes.abandoned or (self.state.closed and not self.queue.entries):
                    self._senders -= 1
                    return None
                due_ms = None if self._timers else self.queue.due_in_ms(now_ms)
                self._idle += 1
                self._timers += due_ms is not None
                self._work.wait(None if due_ms is None else due_ms / 1_000)
                self._timers -= due_ms is not None
                self._idle -= 1
                self._notified -= self._notified > 0

    def deliver(self, batch: EntryBatch) -> None:
        try:
            delivered = self._delivered(batch)
        except (KeyboardInterrupt, SystemExit) as error:
            # Raised on a thread of the app: other callers must not wait for this batch for ever.
            self._end(batch, undeliverable(batch, self.state.spool, error))
            raise
        self._end(batch, delivered)

    def _end(self, batch: EntryBatch, delivered: Delivered) -> None:
        with self.lock:
            to_notify = self.outcomes.resolve(batch.pendings, delivered.others)
            if not to_notify:
                self._finish(batch, delivered)
                return
        self.outcomes.notify(to_notify)
        # After the callbacks: `flush` and `close` wait for these too.
        with self.lock:
            self._finish(batch, delivered)

    def _finish(self, batch: EntryBatch, delivered: Delivered) -> None:
        self.state.ended(batch, delivered)
        self._headroom.notify()
        if any(self.queue.finished_through(mark) for mark in self._marks):
            self._drained.notify_all()
        self._wake(ticks_ms())

    def _delivered(self, batch: EntryBatch) -> Delivered:
        try:
            with self._delivery_lock:
                if self._delivery is None:
                    self._delivery = self._make_delivery()
        # Any error, also a bug: the entries must return to their owner.
        except Exception as error:  # noqa: BLE001
            return undeliverable(batch, self.state.spool, error)
        return self._delivery.deliver(batch, self.state.spool)

    # ---- ending ----

    def make_due(self) -> int:
        """Start to send all accepted events, without waiting; return the mark of the last one."""
        with self.lock:
            mark = self.queue.make_due()
            self._wake(ticks_ms())
            return mark

    def flush(self, timeout_s: float | None) -> tuple[Failure, ...]:
        """Send all accepted events and wait; return the failures that no caller has got."""
        wait = self.state.wait(timeout_s)
        mark = self.make_due()
        self._help()
        with self.lock:
            for _ in self._draining(mark, wait):
                if self.queue.finished_through(mark):
                    return self.outcomes.take_failures()
                self._wake(ticks_ms())
            raise self.state.still_buffered(timeout_s)

    def close(self, timeout_s: float | None) -> tuple[Failure, ...]:
        """As `flush`, but refuse further events, and fail those that are not sent in time."""
        wait = self.state.wait(timeout_s)
        with self.lock:
            self.state.closed = True
            self.queue.recount(self._reserved.values())  # an interrupted `close` left it wrong
            self._headroom.notify_all()
        self.make_due()
        self._help()
        with self.lock:
            for _ in self._draining(inf, wait):
                self.queue.make_due()
                self._wake(ticks_ms())
                if not self.queue.entries:
                    break
            self._work.notify_all()
            left, failures, lost = self.state.hand_back()
            self._drained.notify_all()
        self.outcomes.notify(left)
        return (*failures, *self.outcomes.report(lost))

    def end_waits(self) -> None:
        """After a close that was too short: answer those who wait for what is still being sent."""
        with self.lock:
            for pending in self.queue.pending_under_way():
                if pending.waiters is not None and not pending.done:
                    pending.settled = not_sent(pending)
                    pending.waiters.notify_all()

    def _draining(self, mark: float, wait: Wait) -> Iterator[None]:
        """Yield now and when all batches up to a mark may be finished, until the wait is over."""
        self._marks.append(mark)
        try:
            yield
            while (left_s := wait.left_s(monotonic(), self.outcomes.progress_s)) > 0:
                self._drained.wait(left_s)
                yield
        finally:
            self._marks.remove(mark)

    def statistics(self) -> BufferStatistics:
        with self.lock:
            return self.state.statistics()


# The largest number of events that one commit writes to the spool.
_CHUNK: Final = 500
# Held while a producer is reset in a fork, so that one of several threads does it.
_RESET_LOCK: Final = lock_open_in_forks()


class BufferedProducer:
    """Adds events at once and sends them in the background. Safe to share between threads.

    In a fork it starts empty; the parent sends what was added before the fork. If a server forks
    without Python's hooks, it starts empty at its first use in the fork.
    """

    def __init__(
        self,
        connection: Connection,
        buffering: Buffering,
        on_failure: Callable[[Failure], object] | None = None,
        make_outcomes: type[Outcomes] = Outcomes,
    ) -> None:
        """Open the spool, if one is named, and start to send the entries in it.

        Args:
            connection: to the stack.
            buffering: the settings.
            on_failure: called with each failure, on a thread of this producer or by `close`. It
                must not wait for the producer; it may call `resend`.
            make_outcomes: how callers learn of outcomes.

        Raises:
            SetupError: the stack does not exist, or the spool cannot be used.
        """
        self.connection, self.buffering = connection, buffering
        self._maker = EntryMaker(connection)
        self._on_failure = on_failure
        self._make_outcomes = make_outcomes
        self._spool: Spool | None = None
        ledger = ledger_name(connection)
        if buffering.spool is not None:
            self._spool = Spool.open(buffering.spool, ledger=ledger, fsync=buffering.fsync)
        self._closed = False
        self._joins = buffering.coalesce and self._spool is None
        self._reset()
        opened(self)
        try:
            left = self._here().state.left_in_spool()
            if left:
                self._here().accept(left)
        except BaseException:
            # Otherwise the spool stays locked until this process ends.
            closed(self)
            if self._spool is not None:
                self._spool.close()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled: its events would be in two processes."""
        raise TypeError(NOT_PICKLED)

    def add(
        self,
        counter: str,
        delta: Amount,
        *,
        key: str | IdempotencyKey | RangeKey | None = None,
        occurred_at: datetime | None = None,
        note: Mapping[str, str] | None = None,
    ) -> PendingEntry:
        """Add to a counter as `CountLedger.record` does, without waiting for the ledger.

        One write unit for each KB of the entry; coalesced events share one entry.

        Returns:
            The pending entry; `result()` waits for the receipt.

        Raises:
            BadInput: an argument breaks its rule; the event was not accepted.
            BufferFull: the buffer is full, and `when_full` is `error`, or too many failures were
                not read.
            ProducerClosed: the producer is closed.
            SpoolRefused: the spool could not keep the event; it was not accepted.
        """
        own = self._here()
        if key is None and occurred_at is None and note is None:
            delta = parse_delta(delta)
            if self._joins and (joined := own.join(counter, delta)) is not None:
                return joined
            pending = own.state.pending_of_plain(check_counter(counter), delta)
        else:
            pending = own.state.pending_of(Event(counter, delta, key, occurred_at, note))
        return own.accept_now(pending) or own.accept((pending,))[0]

    def add_many(self, events: Iterable[Event]) -> list[PendingEntry]:
        """Add many events; with a spool this is much cheaper than one `add` for each.

        The events are gathered first: if that fails, none was accepted.

        Returns:
            The pending entry of each event, in their order.

        Raises:
            BadInput: one of them is no `Event`; none was accepted.
            BufferFull, SpoolRefused, ProducerClosed: as `add`; `taken` has the pending entries of
                the events that were accepted, which are the first ones.
        """
        taken: list[PendingEntry] = []
        every = gathered(events)
        most = min(_CHUNK, self.buffering.holds_entries)
        for start in range(0, len(every), most):
            try:
                taken += self._take(every[start : start + most])
            except NotTaken as error:
                error.taken = tuple(taken)
                raise
        return taken

    def record_many(self, events: Iterable[Event]) -> list[Outcome]:
        """Add many events, which are gathered first, and wait for all of them.

        Returns:
            One outcome for each, in order: receipt, error, or the `NotTaken` that refused it.

        Raises:
            BadInput: one of them is no `Event`; none was accepted.
        """
        return list(self.record_stream(gathered(events)))

    def record_stream(self, events: Iterable[Event]) -> Iterator[Outcome]:
        """As `record_many` for any number, while it is iterated.

        It adds half as many events ahead as entries may wait, so that they alone fill no buffer.

        Yields:
            One outcome for each event, in their order; of what is no `Event`, a `BadInput`.
        """
        waiting: deque[PendingEntry | NotTaken | BadInput] = deque()
        ahead = self.buffering.holds_entries // 2
        for event in events:
            try:
                waiting += self._take([event])
            except (NotTaken, BadInput) as error:
                waiting.append(error)
            while waiting and (_is_known(waiting[0]) or len(waiting) > ahead):
                yield _outcome(waiting.popleft())
        self._here().make_due()
        while waiting:
            yield _outcome(waiting.popleft())

    def resend(self, entry: Entry) -> PendingEntry:
        """Add an entry that failed again, unchanged, as `add` does; it cannot count twice."""
        return self._here().accept([self._here().state.pending_again(entry)])[0]

    def flush(self, timeout_s: float | None = None) -> None:
        """Send all events added so far, and wait until they are acknowledged.

        Args:
            timeout_s: the longest wait in seconds; None waits until no entry was acknowledged or
                refused for `Buffering.patience_ms`.

        Raises:
            NotRecorded: entries have failed, and no caller got their errors yet; it has each.
            StillBuffered: the wait ended; the entries that are left are still being sent.
        """
        failures = self._here().flush(timeout_s)
        if failures:
            raise NotRecorded(failures)

    def close(self, timeout_s: float | None = None) -> None:
        """Send all events that are left, and accept no more.

        Args:
            timeout_s: the longest wait in seconds, as for `flush`.

        Raises:
            NotRecorded: entries failed or were not acknowledged before the wait ended, and
                `on_failure` is not set. With a spool, they are sent again at the next start unless
                the ledger refused them.
        """
        failures = self._here().close(timeout_s)
        self._closed = True
        closed(self)
        if self._spool is not None:
            self._spool.close()
        if failures:
            raise NotRecorded(failures)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the producer, also after an error; wait as `close` without a time-out."""
        self.close()

    def flushing(self, handler: Callable[P, R]) -> Callable[P, R]:
        """A Lambda handler that flushes before it ends, because a frozen process sends nothing.

        Raises:
            NotRecorded: entries failed, and no caller got their errors yet; the invocation fails.
            StillBuffered: the time limit is near; the next invocation in this process sends the
                entries that are left.
        """
        return flushing(handler, self.flush)

    @property
    def statistics(self) -> BufferStatistics:
        """The statistics of this process."""
        return self._here().statistics()

    def refused(self) -> list[Failure]:
        """The entries in the spool that can never be recorded: too old, or refused by a rule."""
        if self._spool is None:
            return []
        return [Failure(row.entry, BadInput(why)) for row, why in self._spool.refused()]

    def forget_refused(self) -> None:
        """Remove from the spool the entries that `refused` returns."""
        if self._spool is not None:
            self._spool.forget([row.row for row, _ in self._spool.refused()])

    def restart_in_fork(self) -> None:
        """Start empty in a fork."""
        parents = self._mine[1]
        parents.outcomes.abandon()
        abandon(parents)
        self._reset()

    def _here(self) -> ThreadedBuffer:
        """The buffer of this process; a fork made without Python's hooks is reset here."""
        if self._mine[0] != this_process():
            with _RESET_LOCK:
                if self._mine[0] != this_process():
                    self.restart_in_fork()
        return self._mine[1]

    def _reset(self) -> None:
        lock = Lock()
        outcomes = self._make_outcomes(lock, self._on_failure)
        spool, is_closed = self._spool, self._closed
        state = BufferState(self.buffering, self._maker, spool, outcomes, closed=is_closed)
        self._mine = this_process(), ThreadedBuffer(state, lock, self._make_delivery)

    def _make_delivery(self) -> BatchDelivery:
        return BatchDelivery(self.connection, self.buffering.attempts)

    def _take(self, events: Sequence[Event]) -> list[PendingEntry]:
        own = self._here()
        return own.accept([own.state.pending_of(event) for event in events])


def _is_known(one: PendingEntry | NotTaken | BadInput) -> bool:
    return isinstance(one, CountledgerError) or one.done


def _outcome(one: PendingEntry | NotTaken | BadInput) -> Outcome:
    return one if isinstance(one, CountledgerError) else one.wait()
