"""The state of a buffer in one process: its queue, its outcomes and its statistics.

It decides and never waits. Its callers wait, in threads (`threaded`) or in an event loop
(`asynchronous`), and make sure that only one of them uses it at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import SECOND_MS
from countledger.producers.buffer.delivery import keep, may_coalesce
from countledger.producers.buffer.queue import SendQueue
from countledger.producers.buffer.settings import (
    BufferFull,
    BufferStatistics,
    Failure,
    ProducerClosed,
    StillBuffered,
    Wait,
)
from countledger.producers.event import Event, Receipt, not_an_event, unacknowledged

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.producers.buffer.delivery import Delivered, EntryMaker
    from countledger.producers.buffer.queue import EntryBatch
    from countledger.producers.buffer.settings import Buffering, Outcomes, PendingEntry
    from countledger.producers.buffer.spool import Spool


_CLOSED: Final = "the producer was closed before"


def ticks_ms() -> float:
    """Milliseconds of a monotonic clock."""
    return monotonic() * 1_000


def not_sent(pending: PendingEntry) -> CountledgerError:
    """The error of an entry that was not acknowledged before the producer was closed."""
    if pending.entry is None:
        return ProducerClosed(f"events of {pending.counter!r} stay in the spool: {_CLOSED}")
    return unacknowledged(pending.entry, _CLOSED)


def error_of(pending: PendingEntry) -> CountledgerError:
    """The error of an entry that is being sent when the producer is closed: its own, if it has."""
    known = pending.outcome
    return known if isinstance(known, CountledgerError) else not_sent(pending)


@dataclass(slots=True)
class BufferState:
    """The state of a buffer in one process.

    Attributes:
        buffering: the settings.
        maker: creates entries.
        spool: keeps accepted events; None keeps nothing.
        outcomes: the outcomes of the entries.
        closed: whether events are refused.
        events: the number of accepted events.
        batches: the number of finished batches.
        waits: the number of attempts that were throttled or not answered, and repeated.
    """

    buffering: Buffering
    maker: EntryMaker
    spool: Spool | None
    outcomes: Outcomes
    closed: bool = False
    events: int = 0
    batches: int = 0
    waits: int = 0
    queue: SendQueue = field(init=False)

    def __post_init__(self) -> None:
        """Start empty."""
        self.queue = SendQueue(self.buffering)

    # ---- accepting ----

    def pending_of(self, event: object) -> PendingEntry:
        """The pending entry of an event; its entry is created now unless the event is plain.

        Raises:
            BadInput: it is no `Event`.
        """
        if not isinstance(event, Event):
            raise not_an_event(event)
        if may_coalesce(event):
            return self.pending_of_plain(event.counter, event.delta)
        return self.outcomes.kind(
            self.outcomes, event.counter, event.delta, self.maker.of_event(event)
        )

    def pending_of_plain(self, counter: str, delta: Amount) -> PendingEntry:
        """As `pending_of`, of an event without key, note and time of its own; both are checked.

        The entry is created when it is sent, with the time of now. A spool needs it before.
        """
        if self.buffering.coalesce:
            return self.outcomes.kind(self.outcomes, counter, delta)
        pending = self.outcomes.kind(self.outcomes, counter, delta, None, self.maker.clock.now_ms())
        if self.spool is not None:
            self.maker.make((pending,))
        return pending

    def pending_again(self, entry: Entry) -> PendingEntry:
        """The pending entry of an entry that failed; it keeps its row in the spool."""
        pending = self.outcomes.kind(self.outcomes, entry.counter, entry.delta, entry)
        pending.rows = self.outcomes.rows_of(entry.counter, entry.id)
        return pending

    def left_in_spool(self) -> list[PendingEntry]:
        """The entries and events that an earlier process left; events may be coalesced again.

        Raises:
            SpoolRefused: a row cannot be decoded, or an entry cannot be kept.
        """
        if self.spool is None:
            return []
        pendings = []
        for row in self.spool.kept():
            pending = self.outcomes.kind(self.outcomes, row.counter, row.delta, row.entry)
            pending.rows = [row.row]
            pendings.append(pending)
        if not self.buffering.coalesce:
            self.maker.make(pendings)
            keep(pendings, self.spool)
        return pendings

    def has_headroom(self, entries: int, size: int, *, over: bool = False) -> bool:
        """Reserve headroom; if it is not enough, make all entries due and return False.

        Raises:
            ProducerClosed: the producer is closed.
            BufferFull: as many failures are unread as the buffer may have entries.
        """
        if self.closed:
            raise ProducerClosed("the producer is closed: create another one to add events")
        if self.outcomes.failed:
            failed = self.outcomes.unreported()
            if failed >= self.buffering.holds_entries:
                raise BufferFull(
                    f"{failed} entries failed and their errors were not read: call flush, or "
                    "create the producer with `on_failure`"
                )
        if over:
            self.queue.exceed(entries, size)
        if over or self.queue.reserve(entries, size):
            return True
        # A caller that waits for headroom must not wait for the linger time too.
        self.queue.make_due()
        return False

    def full(self) -> BufferFull:
        """The error if the buffer is full and `when_full` is `error`."""
        return BufferFull(
            f"the buffer is full: {self.queue.entries} entries are not acknowledged yet "
            "(max_entries, max_bytes): try again later"
        )

    def take_plain(self, pending: PendingEntry) -> bool:
        """`has_headroom` and `take` in one step; False if anything else is to be decided."""
        if self.closed or self.outcomes.failed or pending.at_ms is None:
            return False
        if not self.queue.fill(pending):
            return False
        self.events += 1
        return True

    def take(self, pending: PendingEntry) -> PendingEntry:
        """Queue a pending entry, or add its event to one of its counter; return the one used."""
        self.events += pending.events
        if pending.at_ms is not None or pending.entry is not None:
            self.queue.put(pending, ticks_ms())
        else:
            joined = self.queue.join(pending.counter, pending.delta, pending.rows or ())
            if joined is not None:
                self.queue.release(1, pending.size)
                return joined
            self.queue.open(pending, ticks_ms())
        return pending

    # ---- sending ----

    def next_batch(self, now_ms: float) -> EntryBatch | None:
        """The next batch that is due, with its entries created; None if no batch is due."""
        batch = self.queue.take(now_ms)
        if batch is not None:
            batch.entries = self.maker.make(batch.pendings)
        return batch

    # ---- ending ----

    def wait(self, timeout_s: float | None) -> Wait:
        """The wait of a `flush` or a `close` that begins now."""
        return Wait(timeout_s, self.buffering.patience_ms / SECOND_MS, monotonic())

    def ended(self, batch: EntryBatch, delivered: Delivered) -> None:
        """Count a finished batch and release its headroom."""
        self.batches += 1
        self.waits += delivered.waits
        self.queue.finish(batch, slow_down=delivered.waits > 0)

    def hand_back(self) -> tuple[list[PendingEntry], tuple[Failure, ...], tuple[Failure, ...]]:
        """Fail all entries that are left.

        Returns:
            The entries that were still waiting, whose outcome is known now; all failures that no
            caller has got; and the failures of the entries that are being sent, to report once.
        """
        under_way = [one for one in self.queue.pending_under_way() if not self._is_reported(one)]
        left = self.queue.waiting()
        self.maker.make(left)
        try:
            keep(left, self.spool)
        except CountledgerError as error:
            errors = [error if one.entry is None else not_sent(one) for one in left]
        else:
            errors = [not_sent(one) for one in left]
        self.outcomes.resolve(left, dict(enumerate(errors)))
        # If the spool has the events and not the entry, the events are sent at the next start.
        lost = tuple(
            Failure(None if one.unfrozen else one.entry, error_of(one)) for one in under_way
        )
        failures = self.outcomes.take_failures()
        # After all else: if a signal handler raised before, the next `close` finds the entries.
        self.queue.withdraw()
        for one in under_way:
            one.handed_back = True
        return left, failures, lost

    def _is_reported(self, pending: PendingEntry) -> bool:
        """Whether `close` has nothing to report of an entry that is being sent.

        A batch is under way until its callbacks have returned; its outcomes are known before.
        """
        known = pending.outcome
        if pending.handed_back or isinstance(known, Receipt):
            return True
        return known is not None and self.outcomes.on_failure is None

    def still_buffered(self, timeout_s: float | None) -> StillBuffered:
        """The error at the end of a wait."""
        left = self.queue.entries
        if timeout_s is None:
            patience_s = self.buffering.patience_ms / SECOND_MS
            return StillBuffered(
                f"no entry was acknowledged or refused for {patience_s:g} s; {left} entries are "
                "still being sent"
            )
        return StillBuffered(
            f"{left} entries were not acknowledged within {timeout_s} s; they are still being sent"
        )

    def statistics(self) -> BufferStatistics:
        """The statistics so far."""
        tally = self.outcomes.tally
        return BufferStatistics(
            events=self.events,
            waiting=self.queue.entries,
            under_way=len(self.queue.pending_under_way()),
            recorded=tally.recorded,
            duplicates=tally.duplicates,
            failed=tally.failed,
            batches=self.batches,
            waits=self.waits,
            senders=int(self.queue.limit),
        )
