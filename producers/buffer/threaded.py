"""One process's buffer behind one lock: events come in, senders' threads take batches out.

`queue` decides what is sent when; this adds a lock, threads that wait for
something to be due, and callers that wait for room or for outcomes.
"""

from __future__ import annotations

from threading import Condition, Lock, Thread, get_ident
from typing import TYPE_CHECKING

from countledger.ledger.errors import CountledgerError
from countledger.producers.buffer.delivery import undeliverable
from countledger.producers.buffer.state import ticks_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.ledger.amount import Amount
    from countledger.producers.buffer.buffering import BufferStatistics
    from countledger.producers.buffer.delivery import BatchDelivery, Delivered
    from countledger.producers.buffer.errors import Failure
    from countledger.producers.buffer.outcomes import PendingEntry
    from countledger.producers.buffer.queue import EntryBatch
    from countledger.producers.buffer.state import BufferState


class ThreadedBuffer:
    """One process's buffer and the threads that empty it.

    Args:
        state: what it has in hand.
        lock: the one of its outcomes.
        make_delivery: called once, on the first sender's thread.
    """

    def __init__(
        self,
        state: BufferState,
        lock: Lock,
        make_delivery: Callable[[], BatchDelivery],
    ) -> None:
        self.state = state
        self.queue = state.queue
        self.outcomes = state.outcomes
        self.lock = lock
        self._make_delivery = make_delivery
        self._delivery: BatchDelivery | None = None
        self._delivery_lock = Lock()
        self._work = Condition(lock)
        self._senders = self._idle = self._timers = 0
        self._sender_ids: set[int] = set()
        # By thread: number and size of what it has room for, and brings in a moment.
        self._reserved: dict[int, tuple[int, int]] = {}

    # ---- taking ----

    def join(self, counter: object, delta: Amount) -> PendingEntry | None:
        """Take an event that joins a pending entry of its counter; None where there is none."""
        if not isinstance(counter, str):
            return None
        with self.lock:
            pending = self.queue.join(counter, delta)
            if pending is not None:
                self.state.events += 1
                if self.queue.window_is_empty:
                    self._wake(ticks_ms())
            return pending

    def accept(self, pendings: Sequence[PendingEntry]) -> list[PendingEntry]:
        """Take events in, once there is room; each one's own pending, or the one that it joined.

        Raises:
            BufferFull: there is no room, and the producer is not to wait.
            ProducerClosed: it is at its end.
            SpoolRefused: they could not be spooled.
        """
        spool, size = self.state.spool, sum(pending.size for pending in pendings)
        try:
            while not self._reserve(len(pendings), size):
                self._help()
            if spool is not None:
                spool.append([one for one in pendings if one.rows is None])
            with self.lock:
                taken = self._take(pendings)
                del self._reserved[get_ident()]
                return taken
        except BaseException as error:
            self._cancel_reservation(error)
            raise

    def _cancel_reservation(self, error: BaseException) -> None:
        """What this thread had room for will not come."""
        with self.lock:
            room = self._reserved.pop(get_ident(), None)
            if not isinstance(error, CountledgerError):
                # A signal's handler may have raised it, between any two steps.
                self.queue.recount(self._reserved.values())
            elif room is not None:
                self.queue.release(*room)
            self.outcomes.changed.notify_all()

    def _reserve(self, entries: int, size: int) -> bool:
        """Reserve room, and wait for it; False where nobody could make any."""
        with self.lock:
            # A callback of ours that adds must not wait for the very thread that it runs on.
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

    def _take(self, pendings: Sequence[PendingEntry]) -> list[PendingEntry]:
        taken = [self.state.take(pending) for pending in pendings]
        self._wake(ticks_ms())
        return taken

    # ---- sending ----

    def _wake(self, now_ms: float) -> None:
        """See to it that somebody sends what is due, and that somebody checks the time."""
        due = self.queue.batches_due(now_ms)
        if due <= 0 and (self._timers or self.queue.due_in_ms(now_ms) is None):
            return
        if self._idle:
            self._work.notify(max(due, 1))
        elif self._senders < int(self.queue.limit):
            try:
                Thread(target=self._run_sender, name="countledger-sender", daemon=True).start()
            except RuntimeError:
                return  # no thread to be had: those that there are go on, or who waits helps
            self._senders += 1

    def _run_sender(self) -> None:
        """A sender's life."""
        self._sender_ids.add(get_ident())
        while (batch := self._next_batch()) is not None:
            self.deliver(batch)

    def _help(self) -> None:
        """Send what is due on this thread, where no other could be started."""
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

    def deliver(self, batch: EntryBatch) -> None:
        """Send a batch, and tell whoever waits for it."""
        try:
            delivered = self._delivered(batch)
        except (KeyboardInterrupt, SystemExit) as error:
            # On a thread of the app's that helps: what waits for the batch must not wait for ever.
            self._end(batch, undeliverable(batch, self.state.spool, error))
            raise
        self._end(batch, delivered)

    def _end(self, batch: EntryBatch, delivered: Delivered) -> None:
        with self.lock:
            self.outcomes.resolve(batch.pendings, delivered.outcomes)
        self.outcomes.notify(batch.pendings)
        # Only now: who waits for all to end, waits for the callbacks too.
        with self.lock:
            self.state.ended(batch, delivered)
            self.outcomes.changed.notify_all()
            self._wake(ticks_ms())

    def _delivered(self, batch: EntryBatch) -> Delivered:
        try:
            with self._delivery_lock:
                if self._delivery is None:
                    self._delivery = self._make_delivery()
        # Whatever it is: the entries must come back to their owner.
        except Exception as error:  # noqa: BLE001
            return undeliverable(batch, self.state.spool, error)
        return self._delivery.deliver(batch, self.state.spool)

    # ---- ending ----

    def make_due(self) -> None:
        """Send all that was taken so far, without waiting for it."""
        with self.lock:
            self.queue.make_due()
            self._wake(ticks_ms())

    def flush(self, timeout_s: float | None) -> tuple[Failure, ...]:
        """Send all that was taken so far, and wait for it; the failures nobody has asked after.

        Raises:
            StillBuffered: the time was over before.
        """
        wait = self.state.wait(timeout_s)
        with self.lock:
            mark = self.queue.make_due()
            self._wake(ticks_ms())
        self._help()
        with self.lock:
            for _ in self.outcomes.waiting_on(wait):
                if self.queue.finished_through(mark):
                    return self.outcomes.take_failures()
                self._wake(ticks_ms())
            raise self.state.still_buffered(timeout_s)

    def close(self, timeout_s: float | None) -> tuple[Failure, ...]:
        """Take no more, send all that is left, and hand back what could not be sent in time.

        Returns:
            The failures that nobody could be told of.
        """
        wait = self.state.wait(timeout_s)
        with self.lock:
            self.state.closed = True
            self.outcomes.changed.notify_all()
            self.queue.make_due()
            self._wake(ticks_ms())
        self._help()
        with self.lock:
            for _ in self.outcomes.waiting_on(wait):
                self.queue.make_due()
                self._wake(ticks_ms())
                if not self.queue.entries:
                    break
            self._work.notify_all()
            left, failures, lost = self.state.hand_back()
        self.outcomes.notify(left)
        return (*failures, *self.outcomes.report(lost))

    def statistics(self) -> BufferStatistics:
        """What was done so far, and what waits."""
        with self.lock:
            return self.state.statistics()
