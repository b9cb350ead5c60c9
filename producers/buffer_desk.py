"""One process's buffer behind one lock: events come in, senders' threads take batches out.

What is to be sent when is the state machine's (`buffer`); this adds a lock, threads that wait for
something to be due, and callers that wait for room or for outcomes.
"""

from __future__ import annotations

from threading import Condition, Lock, Thread, get_ident
from time import monotonic
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import CountledgerError
from countledger.producers.buffer import Buffer
from countledger.producers.buffer_delivery import Delivered, given_up
from countledger.producers.buffer_errors import BufferFull, Failure, ProducerClosed, StillBuffered
from countledger.producers.buffer_outcomes import Outcomes
from countledger.producers.buffer_statistics import BufferStatistics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.ledger.amount import Amount
    from countledger.producers.buffer import Batch
    from countledger.producers.buffer_delivery import Delivery
    from countledger.producers.buffer_pending import Pending
    from countledger.producers.buffering import Buffering
    from countledger.producers.coalesce import EntryMaker
    from countledger.producers.sender import Outcome
    from countledger.producers.spool import Spool

_CLOSED: Final = "the producer was closed before it could be"


def ticks_ms() -> float:
    """Milliseconds on a clock that never goes back."""
    return monotonic() * 1_000


class Desk:
    """One process's buffer and the threads that empty it.

    Args:
        buffering: the bounds.
        maker: makes the entries of coalesced events.
        make_delivery: called once, on the first sender's thread.
        spool: keeps what is taken; None keeps nothing.
        on_failure: told of each failure, on a sender's thread; without it they are kept.
    """

    def __init__(
        self,
        buffering: Buffering,
        maker: EntryMaker,
        make_delivery: Callable[[EntryMaker], Delivery],
        spool: Spool | None,
        on_failure: Callable[[Failure], object] | None,
    ) -> None:
        self.lock = Lock()
        self.buffer = Buffer(buffering)
        self.outcomes = Outcomes(self.lock, on_failure)
        self.spool = spool
        self.closed = False
        self.maker = maker
        self._make_delivery = make_delivery
        self._delivery: Delivery | None = None
        self._making = Lock()
        self._work = Condition(self.lock)
        self._senders = self._idle = self._timers = 0
        self._sender_ids: set[int] = set()
        self._events = self._batches = self._waits = 0

    # ---- taking ----

    def join(self, counter: object, delta: Amount) -> Pending | None:
        """Take an event that joins a pending entry of its counter; None where there is none."""
        if not isinstance(counter, str):
            return None
        with self.lock:
            pending = self.buffer.join(counter, delta)
            if pending is not None:
                self._events += 1
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
        size = sum(pending.size for pending in pendings)
        with self.lock:
            self._reserve(len(pendings), size)
        try:
            if self.spool is not None:
                self.spool.append([one for one in pendings if one.rows is None])
        except BaseException:
            with self.lock:
                self.buffer.release(len(pendings), size)
                self.outcomes.changed.notify_all()
            raise
        with self.lock:
            taken = [self._take(pending) for pending in pendings]
            if self.closed:
                self.buffer.hurry()
            self._wake(ticks_ms())
        return taken

    def _reserve(self, entries: int, size: int) -> None:
        while True:
            if self.closed:
                raise ProducerClosed("the producer is closed: it takes no more events")
            failed = self.outcomes.unseen()
            if failed >= self.buffer.buffering.max_entries:
                raise BufferFull(
                    f"{failed} entries failed and nobody asked after them: call flush, or make "
                    "the producer with `on_failure`"
                )
            # A callback of ours that adds must not wait for the very thread that it runs on.
            if self.buffer.reserve(entries, size, over=get_ident() in self._sender_ids):
                return
            # Who is waiting for room is not to wait for company as well.
            self.buffer.hurry()
            self._wake(ticks_ms())
            if self.buffer.buffering.when_full == "error":
                raise BufferFull(
                    f"{self.buffer.entries} entries wait for their acknowledgement already, the "
                    "most that the producer takes: try again later"
                )
            self.outcomes.changed.wait()

    def _take(self, pending: Pending) -> Pending:
        """Queue a pending, or let its event join one that is there."""
        now_ms = ticks_ms()
        self._events += pending.events
        if pending.entry is not None:
            self.buffer.put(pending, now_ms)
            return pending
        joined = self.buffer.join(pending.counter, pending.delta)
        if joined is None:
            self.buffer.open(pending, now_ms)
            return pending
        if joined.rows is not None and pending.rows is not None:
            joined.rows += pending.rows
        self.buffer.release(1, pending.size)
        return joined

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
                return  # no thread to be had; those that there are go on, or who waits helps itself
            self._senders += 1

    def _send_on(self) -> None:
        """A sender's life."""
        self._sender_ids.add(get_ident())
        while (batch := self._next_batch()) is not None:
            self.deliver(batch)

    def _next_batch(self) -> Batch | None:
        with self.lock:
            while True:
                now_ms = ticks_ms()
                batch = self.buffer.take(now_ms)
                if batch is not None:
                    self._wake(now_ms)
                    return batch
                if self.outcomes.abandoned or (self.closed and not self.buffer.entries):
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
            with self._making:
                if self._delivery is None:
                    self._delivery = self._make_delivery(self.maker)
        except CountledgerError as error:
            delivered = Delivered([error] * len(batch.pendings), 0)
        else:
            delivered = self._delivery.deliver(batch, self.spool)
        with self.lock:
            self.outcomes.settle(batch.pendings, delivered.outcomes)
        self.outcomes.tell(batch.pendings)
        # Only now: who waits for all to end, waits for the callbacks too.
        with self.lock:
            self._batches += 1
            self._waits += delivered.waits
            self.buffer.settle(batch, slow_down=delivered.waits > 0)
            self.outcomes.changed.notify_all()
            self._wake(ticks_ms())

    # ---- ending ----

    def flush(self, timeout_s: float | None) -> tuple[Failure, ...]:
        """Send all that was taken so far, and wait for it; the failures nobody has asked after.

        Raises:
            StillBuffered: the time was over before.
        """
        until_s = None if timeout_s is None else monotonic() + timeout_s
        with self.lock:
            mark = self.buffer.hurry()
            for _ in self.outcomes.waiting(until_s):
                if self.buffer.settled_through(mark):
                    return self.outcomes.take_failures()
                self._wake(ticks_ms())
            raise StillBuffered(
                f"{self.buffer.entries} entries were not acknowledged within {timeout_s} s; they "
                "are still sent"
            )

    def close(self, timeout_s: float | None) -> tuple[Failure, ...]:
        """Take no more, send all that is left, and hand back what could not be sent in time."""
        until_s = None if timeout_s is None else monotonic() + timeout_s
        with self.lock:
            self.closed = True
            self.outcomes.changed.notify_all()
            for _ in self.outcomes.waiting(until_s):
                self.buffer.hurry()
                self._wake(ticks_ms())
                if not self.buffer.entries:
                    break
            self._work.notify_all()
            lost = self.buffer.pending_under_way()
            left = self.buffer.withdraw()
            self.outcomes.settle(left, self._given_up(left))
            failures = self.outcomes.take_failures()
        self.outcomes.tell(left)
        return failures + tuple(
            Failure(one.entry, given_up(one.entry, _CLOSED)) for one in lost if one.entry
        )

    def _given_up(self, pendings: Sequence[Pending]) -> list[Outcome]:
        """Why entries were not sent; those that could not be made stay events in the spool."""
        try:
            self.maker.freeze(pendings, self.spool)
        except CountledgerError as error:
            return [given_up(one.entry, _CLOSED) if one.entry else error for one in pendings]
        return [given_up(one.entry, _CLOSED) for one in pendings if one.entry is not None]

    def statistics(self) -> BufferStatistics:
        """What was done so far, and what waits."""
        with self.lock:
            tally = self.outcomes.tally
            return BufferStatistics(
                events=self._events,
                waiting=self.buffer.entries,
                under_way=len(self.buffer.pending_under_way()),
                recorded=tally.recorded,
                duplicates=tally.duplicates,
                failed=tally.failed,
                batches=self._batches,
                waits=self._waits,
                senders=int(self.buffer.limit),
            )
