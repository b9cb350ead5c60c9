"""The buffer of one process, under one lock: callers add events, and threads send batches.

`queue` decides what is sent when. Here are the lock, threads and callers that wait.
"""

from __future__ import annotations

from math import inf
from threading import Condition, Lock, Thread, get_ident
from time import monotonic
from typing import TYPE_CHECKING

from countledger.ledger.errors import CountledgerError
from countledger.producers.buffer.sending import ticks_ms, undeliverable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from countledger.ledger.amount import Amount
    from countledger.producers.buffer.queue import EntryBatch
    from countledger.producers.buffer.sending import BatchDelivery, BufferState, Delivered
    from countledger.producers.buffer.settings import BufferStatistics, Failure, PendingEntry, Wait


class ThreadedBuffer:
    """The buffer of one process and the threads that send its batches.

    Args:
        state: the state.
        lock: the lock of its outcomes.
        make_delivery: called once, on the thread of the first sender.
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
        # `flush` and `close` wait for the end of the batches up to a mark, each for its own.
        self._drained = Condition(lock)
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

    def accept_one(self, pending: PendingEntry) -> PendingEntry:
        """As `accept`, of one event: under one lock if there is headroom, and no spool."""
        if self.state.spool is None:
            try:
                with self.lock:
                    if self._senders and self.state.take_plain(pending):
                        return pending
                    if self.state.has_headroom(1, pending.size):
                        taken = self.state.take(pending)
                        self._wake_for_new()
                        return taken
            except BaseException as error:
                self._cancel_reservation(error)
                raise
        return self.accept((pending,))[0]

    def accept(self, pendings: Sequence[PendingEntry]) -> list[PendingEntry]:
        """Accept events once there is headroom; return the pending entry of each.

        Raises:
            BufferFull: the buffer is full, and `when_full` is `error`, or too many failures were
                not read.
            ProducerClosed: the producer is closed.
            SpoolRefused: the spool could not keep the events.
        """
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
                return taken
        except BaseException as error:
            self._cancel_reservation(error)
            raise

    def _cancel_reservation(self, error: BaseException) -> None:
        """Release the headroom that this thread reserved for events it does not add."""
        with self.lock:
            room = self._reserved.pop(get_ident(), None)
            if not isinstance(error, CountledgerError):
                # A signal handler may have raised it between any two steps.
                self.queue.recount(self._reserved.values())
            elif room is not None:
                self.queue.release(*room)
            self.outcomes.changed.notify_all()
            self._drained.notify_all()

    def _reserve(self, entries: int, size: int) -> bool:
        """Wait for headroom and reserve it; False if no sender runs that could release any."""
        with self.lock:
            # A callback that adds events runs on a sender's thread: it must not wait for itself.
            ours = get_ident() in self._sender_ids
            while not self.state.has_headroom(entries, size, over=ours):
                self._wake(ticks_ms())
                if self.state.buffering.when_full == "error":
                    raise self.state.full()
                if not self._senders:
                    return False
                self.outcomes.changed.wait()
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
        """The loop of a sender's thread."""
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
        """Send a batch and publish its outcomes."""
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
        self.outcomes.changed.notify_all()
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
        """Send all accepted events and wait; return the failures that no caller has got.

        Raises:
            StillBuffered: the wait ended before.
        """
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
            self.outcomes.changed.notify_all()
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
        """The statistics so far."""
        with self.lock:
            return self.state.statistics()
