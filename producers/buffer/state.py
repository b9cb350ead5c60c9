"""What one process has in hand: the buffer, what became of it, and the counts.

It decides and never waits; whoever uses it does, by threads (`threaded`) or in an event loop
(`asynchronous`), and lets one at a time in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import SECOND_MS
from countledger.producers.buffer.buffering import BufferStatistics
from countledger.producers.buffer.delivery import keep, may_coalesce
from countledger.producers.buffer.errors import BufferFull, Failure, ProducerClosed, StillBuffered
from countledger.producers.buffer.queue import SendQueue, size_of
from countledger.producers.event import unacknowledged

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.producers.buffer.buffering import Buffering, Wait
    from countledger.producers.buffer.delivery import Delivered, EntryMaker
    from countledger.producers.buffer.outcomes import Outcomes, PendingEntry
    from countledger.producers.buffer.queue import EntryBatch
    from countledger.producers.buffer.spool import Spool
    from countledger.producers.event import Event

_CLOSED: Final = "the producer was closed before"


def ticks_ms() -> float:
    """Milliseconds on a clock that never goes back."""
    return monotonic() * 1_000


def not_sent(pending: PendingEntry) -> CountledgerError:
    """Why an entry comes back at the end."""
    if pending.entry is None:
        return ProducerClosed(f"events of {pending.counter!r} stay in the spool: {_CLOSED}")
    return unacknowledged(pending.entry, _CLOSED)


@dataclass(slots=True)
class BufferState:
    """What one process has in hand.

    Attributes:
        buffering: the bounds.
        maker: makes entries.
        spool: keeps what is taken; None keeps nothing.
        outcomes: what became of it.
        closed: whether no more is taken.
        events: how many were taken.
        batches: how many came to their end.
        waits: how many attempts were throttled or not answered, and made again.
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
        """Nothing is in hand at first."""
        self.queue = SendQueue(self.buffering)

    # ---- taking ----

    def pending_of(self, event: Event) -> PendingEntry:
        """The pending entry of an event: made at once, unless it is to be coalesced."""
        coalesced = self.buffering.coalesce and may_coalesce(event)
        entry = None if coalesced else self.maker.of_event(event)
        return self._pending(event.counter, event.delta, entry)

    def pending_again(self, entry: Entry) -> PendingEntry:
        """The pending entry of one that came back; in the spool it keeps its row."""
        pending = self._pending(entry.counter, entry.delta, entry)
        pending.rows = self.outcomes.rows_of(entry.counter, entry.id)
        return pending

    def left_in_spool(self) -> list[PendingEntry]:
        """What an earlier process left; events that were to be coalesced are so, if that is on.

        Raises:
            SpoolRefused: a row cannot be understood, or an entry not be kept.
        """
        if self.spool is None:
            return []
        pendings = []
        for row in self.spool.kept():
            pending = self._pending(row.counter, row.delta, row.entry)
            pending.rows = [row.row]
            pendings.append(pending)
        if not self.buffering.coalesce:
            self.maker.make(pendings)
            keep(pendings, self.spool)
        return pendings

    def has_headroom(self, entries: int, size: int, *, over: bool = False) -> bool:
        """Reserve room; without it, what is in hand is to make_due, and its owner to wait.

        Raises:
            ProducerClosed: no more is taken.
            BufferFull: nobody is to wait, or only the app can make room.
        """
        if self.closed:
            raise ProducerClosed("the producer is closed: it takes no more events")
        failed = self.outcomes.unreported()
        if failed >= self.buffering.max_entries:
            raise BufferFull(
                f"{failed} entries failed and nobody asked after them: call flush, or make the "
                "producer with `on_failure`"
            )
        if self.queue.reserve(entries, size, over=over):
            return True
        # Who is waiting for room is not to wait for company as well.
        self.queue.make_due()
        return False

    def full(self) -> BufferFull:
        """What is said where nobody is to wait."""
        return BufferFull(
            f"{self.queue.entries} entries wait for their acknowledgement already, the most that "
            "the producer takes: try again later"
        )

    def take(self, pending: PendingEntry) -> PendingEntry:
        """Queue a pending entry, or let its event join one that is there, and answer that."""
        now_ms = ticks_ms()
        self.events += pending.events
        if pending.entry is not None:
            self.queue.put(pending, now_ms)
        else:
            joined = self.queue.join(pending.counter, pending.delta)
            if joined is not None:
                if joined.rows is not None and pending.rows is not None:
                    joined.rows += pending.rows
                self.queue.release(1, pending.size)
                return joined
            self.queue.open(pending, now_ms)
        if self.closed:
            self.queue.make_due()
        return pending

    # ---- sending ----

    def next_batch(self, now_ms: float) -> EntryBatch | None:
        """The next batch that is due, its entries made; None where none is."""
        batch = self.queue.take(now_ms)
        if batch is not None:
            self.maker.make(batch.pendings)
        return batch

    # ---- ending ----

    def wait(self, timeout_s: float | None) -> Wait:
        """For how long a flush or a close waits, from now on."""
        return self.outcomes.wait(timeout_s, self.buffering.patience_ms / SECOND_MS)

    def ended(self, batch: EntryBatch, delivered: Delivered) -> None:
        """A batch came to its end; its room is free."""
        self.batches += 1
        self.waits += delivered.waits
        self.queue.finish(batch, slow_down=delivered.waits > 0)

    def hand_back(self) -> tuple[list[PendingEntry], tuple[Failure, ...], tuple[Failure, ...]]:
        """Give up whatever is left, and under way.

        Returns:
            The entries that were still waiting, whose outcome is known now; all failures that
            nobody has asked after; and those of what is under way, to be reported once.
        """
        under_way = [one for one in self.queue.pending_under_way() if not one.handed_back]
        left = self.queue.withdraw()
        self.maker.make(left)
        try:
            keep(left, self.spool)
        except CountledgerError as error:
            self.outcomes.resolve(
                left, [error if one.entry is None else not_sent(one) for one in left]
            )
        else:
            self.outcomes.resolve(left, [not_sent(one) for one in left])
        # Of what has no entry that the spool knows, the events stay there, and come again.
        lost = tuple(
            Failure(None if one.unfrozen else one.entry, not_sent(one)) for one in under_way
        )
        for one in under_way:
            one.handed_back = True
        return left, self.outcomes.take_failures(), lost

    def still_buffered(self, timeout_s: float | None) -> StillBuffered:
        """What is said where the wait was over."""
        left = self.queue.entries
        if timeout_s is None:
            patience_s = self.buffering.patience_ms / SECOND_MS
            return StillBuffered(
                f"nothing was acknowledged or refused for {patience_s:g} s; {left} entries are "
                "still sent"
            )
        return StillBuffered(
            f"{left} entries were not acknowledged within {timeout_s} s; they are still sent"
        )

    def statistics(self) -> BufferStatistics:
        """What was done so far, and what waits."""
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

    def _pending(self, counter: str, delta: Amount, entry: Entry | None) -> PendingEntry:
        pending = self.outcomes.pending(counter, delta, entry)
        pending.size = size_of(counter, entry)
        if entry is not None:
            pending.events = entry.events
        return pending
