"""One process's buffer behind one lock: events come in, senders' threads take batches out.

What is to be sent when is the state machine's (`buffer`); this adds a lock, threads that wait for
something to be due, and callers that wait for room or for outcomes.
"""

from __future__ import annotations

from threading import Condition, Lock, Thread, get_ident
from typing import TYPE_CHECKING

from countledger.ledger.errors import CountledgerError
from countledger.producers.buffer.delivery import undeliverable
from countledger.producers.buffer.holdings import ticks_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.ledger.amount import Amount
    from countledger.producers.buffer.buffer import Batch
    from countledger.producers.buffer.delivery import Delivered, Delivery
    from countledger.producers.buffer.errors import Failure
    from countledger.producers.buffer.holdings import Holdings
    from countledger.producers.buffer.pending import Pending
    from countledger.producers.buffer.statistics import BufferStatistics


class Desk:
    """One process's buffer and the threads that empty it.

    Args:
        holdings: what it has in hand.
        lock: the one of its outcomes.
        make_delivery: called once, on the first sender's thread.
    """

    def __init__(
        self,
        holdings: Holdings,
        lock: Lock,
        make_delivery: Callable[[], Delivery],
    ) -> None:
        self.holdings = holdings
        self.buffer = holdings.buffer
        self.outcomes = holdings.outcomes
        self.lock = lock
        self._make_delivery = make_delivery
        self._delivery: Delivery | None = None
        self._making = Lock()
        self._work = Condition(lock)
        self._senders = self._idle = self._timers = 0
        self._sender_ids: set[int] = set()
        # By thread: number and size of what it has room for, and brings in a moment.
        self._coming: dict[int, tuple[int, int]] = {}

    # ---- taking ----

    def join(self, counter: object, delta: Amount) -> Pending | None:
        """Take an event that joins a pending entry of its counter; None where there is none."""
        if not isinstance(counter, str):
            return None
        with self.lock:
            pending = self.buffer.join(counter, delta)
            if pending is not None:
                self.holdings.events += 1
                if self.buffer.window_is_empty:
                    self._wake(ticks_ms())
            return pending

    def take_in(self, pendings: Sequence[Pending]) -> list[Pending]:
        """Take events in, once there is room; each one's own pending, or the one that it joined.

        Raises:
            BufferFull: there is no room, and the producer is not to wait.
            ProducerClosed: it is at its end.
            SpoolRefused: they could not be spooled.
        """
        spool, size = self.holdings.spool, sum(pending.size for pending in pendings)
        try:
            while not self._reserve(len(pendings), size):
                self._help()
            if spool is not None:
                spool.append([one for one in pendings if one.rows is None])
            with self.lock:
                taken = self._take(pendings)
                del self._coming[get_ident()]
                return taken
        except BaseException as error:
            self._give_room_back(error)
            raise

    def _give_room_back(self, error: BaseException) -> None:
        """What this thread had room for will not come."""
        with self.lock:
            room = self._coming.pop(get_ident(), None)
            if not isinstance(error, CountledgerError):
                # A signal's handler may have raised it, between any two steps.
                self.buffer.recount(self._coming.values())
            elif room is not None:
                self.buffer.release(*room)
            self.outcomes.changed.notify_all()

    def _reserve(self, entries: int, size: int) -> bool:
        """Reserve room, and wait for it; False where nobody could make any."""
        with self.lock:
            # A callback of ours that adds must not wait for the very thread that it runs on.
            ours = get_ident() in self._sender_ids
            while not self.holdings.has_headroom(entries, size, over=ours):
                self._wake(ticks_ms())
                if self.holdings.buffering.when_full == "error":
                    raise self.holdings.full()
                if not self._senders:
                    return False
                self.outcomes.changed.wait()
            self._coming[get_ident()] = entries, size
        return True

    def _take(self, pendings: Sequence[Pending]) -> list[Pending]:
        taken = [self.holdings.take(pending) for pending in pendings]
        self._wake(ticks_ms())
        return taken

    # ---- sending ----

    def _wake(self, now_ms: float) -> None:
        """See to it that somebody sends what is due, and that somebody minds the time."""
        due = self.buffer.batches_due(now_ms)
        if due <= 0 and (self._timers or self.buffer.due_in_ms(now_ms) is None):
            return
        if self._idle:
            self._work.notify(max(due, 1))
        elif self._senders < int(self.buffer.limit):
            try:
                Thread(target=self._send_on, name="countledger-sender", daemon=True).start()
            except RuntimeError:
                return  # no thread to be had: those that there are go on, or who waits helps
            self._senders += 1

    def _send_on(self) -> None:
        """A sender's life."""
        self._sender_ids.add(get_ident())
        while (batch := self._next_batch()) is not None:
            self.deliver(batch)

    def _help(self) -> None:
        """Send what is due on this thread, where no other could be started."""
        while True:
            with self.lock:
                batch = None if self._senders else self.holdings.next_batch(ticks_ms())
            if batch is None:
                return
            self.deliver(batch)

    def _next_batch(self) -> Batch | None:
        with self.lock:
            while True:
                now_ms = ticks_ms()
                batch = None if self.outcomes.abandoned else self.holdings.next_batch(now_ms)
                if batch is not None:
                    self._wake(now_ms)
                    return batch
                if self.outcomes.abandoned or (self.holdings.closed and not self.buffer.entries):
                    self._senders -= 1
                    return None
                due_ms = None if self._timers else self.buffer.due_in_ms(now_ms)
                self._idle += 1
                self._timers += due_ms is not None
                self._work.wait(None if due_ms is None else due_ms / 1_000)
                self._timers -= due_ms is not None
                self._idle -= 1

    def deliver(self, batch: Batch) -> None:
        """Send a batch, and tell whoever waits for it."""
        try:
            delivered = self._delivered(batch)
        except (KeyboardInterrupt, SystemExit) as error:
            # On a thread of the app's that helps: what waits for the batch must not wait for ever.
            self._end(batch, undeliverable(batch, self.holdings.spool, error))
            raise
        self._end(batch, delivered)

    def _end(self, batch: Batch, delivered: Delivered) -> None:
        with self.lock:
            self.outcomes.settle(batch.pendings, delivered.outcomes)
        self.outcomes.tell(batch.pendings)
        # Only now: who waits for all to end, waits for the callbacks too.
        with self.lock:
            self.holdings.ended(batch, delivered)
            self.outcomes.changed.notify_all()
            self._wake(ticks_ms())

    def _delivered(self, batch: Batch) -> Delivered:
        try:
            with self._making:
                if self._delivery is None:
                    self._delivery = self._make_delivery()
        # Whatever it is: the entries must come back to their owner.
        except Exception as error:  # noqa: BLE001
            return undeliverable(batch, self.holdings.spool, error)
        return self._delivery.deliver(batch, self.holdings.spool)

    # ---- ending ----

    def hurry(self) -> None:
        """Send all that was taken so far, without waiting for it."""
        with self.lock:
            self.buffer.hurry()
            self._wake(ticks_ms())

    def flush(self, timeout_s: float | None) -> tuple[Failure, ...]:
        """Send all that was taken so far, and wait for it; the failures nobody has asked after.

        Raises:
            StillBuffered: the time was over before.
        """
        wait = self.holdings.wait(timeout_s)
        with self.lock:
            mark = self.buffer.hurry()
            self._wake(ticks_ms())
        self._help()
        with self.lock:
            for _ in self.outcomes.waiting_on(wait):
                if self.buffer.settled_through(mark):
                    return self.outcomes.take_failures()
                self._wake(ticks_ms())
            raise self.holdings.still_buffered(timeout_s)

    def close(self, timeout_s: float | None) -> tuple[Failure, ...]:
        """Take no more, send all that is left, and hand back what could not be sent in time.

        Returns:
            The failures that nobody could be told of.
        """
        wait = self.holdings.wait(timeout_s)
        with self.lock:
            self.holdings.closed = True
            self.outcomes.changed.notify_all()
            self.buffer.hurry()
            self._wake(ticks_ms())
        self._help()
        with self.lock:
            for _ in self.outcomes.waiting_on(wait):
                self.buffer.hurry()
                self._wake(ticks_ms())
                if not self.buffer.entries:
                    break
            self._work.notify_all()
            left, failures, lost = self.holdings.hand_back()
        self.outcomes.tell(left)
        return (*failures, *self.outcomes.report(lost))

    def statistics(self) -> BufferStatistics:
        """What was done so far, and what waits."""
        with self.lock:
            return self.holdings.statistics()
