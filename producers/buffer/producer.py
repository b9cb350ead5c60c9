"""A producer whose `add` returns at once; threads of its own send what was added, in batches.

    with ledger.buffered() as clicks:
        clicks.add("clicks:home", 1)

What was added is sent when it fills a batch, when it has waited long enough, by `flush`, and at
the end: of the `with` block, of the process, or in a Lambda, of each invocation (`flushing`).
Nothing is lost without a word: what fails comes back with its entry.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Final

from countledger.ledger.amount import parse_delta
from countledger.ledger.errors import BadInput
from countledger.ledger.forks import abandon, lock_open_in_forks, this_process
from countledger.producers.buffer.errors import Failure, NotRecorded, NotTaken
from countledger.producers.buffer.outcomes import Outcomes
from countledger.producers.buffer.processes import closed, flushing, opened
from countledger.producers.buffer.spool import Spool
from countledger.producers.buffer.state import BufferState
from countledger.producers.buffer.threaded import ThreadedBuffer
from countledger.producers.event import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.ledger.ids import IdempotencyKey
    from countledger.producers.buffer.buffering import Buffering, BufferStatistics
    from countledger.producers.buffer.delivery import BatchDelivery, EntryMaker
    from countledger.producers.buffer.outcomes import PendingEntry
    from countledger.producers.buffer.processes import P, R
    from countledger.producers.sender import Outcome

# Events that are spooled by one commit.
_CHUNK: Final = 500
# How many events `record_stream` adds before it waits for the first of them.
_AHEAD_MAX: Final = 20_000
# Held while a fork begins again: of several threads that come first, one does.
_RESET_LOCK: Final = lock_open_in_forks()


class BufferedProducer:
    """Adds events at once and sends them in the background. Safe to share between threads.

    In a fork it begins anew with nothing in hand; what was added before is the parent's. So it does
    under a server that forks without Python's hooks: there it begins at its first use.
    """

    def __init__(
        self,
        buffering: Buffering,
        make_delivery: Callable[[], BatchDelivery],
        maker: EntryMaker,
        *,
        ledger: str,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> None:
        """Open the spool, if one is named, and send what is in it; nothing else is done yet.

        Args:
            buffering: the bounds.
            make_delivery: makes what batches are sent by; called once in each process.
            maker: makes entries.
            ledger: names the ledger, for the spool.
            on_failure: told of each failure, on a thread of this producer's or by `close`. It must
                not wait for the producer; it may `resend`.

        Raises:
            SpoolRefused: the spool cannot be used.
        """
        self.buffering = buffering
        self._make_delivery = make_delivery
        self._maker = maker
        self._on_failure = on_failure
        self._spool: Spool | None = None
        if buffering.spool is not None:
            self._spool = Spool.open(buffering.spool, ledger=ledger, fsync=buffering.fsync)
        self._closed = False
        self._joins = buffering.coalesce and self._spool is None
        self._reset()
        opened(self)
        try:
            left = self._buffer.state.left_in_spool()
            if left:
                self._buffer.accept(left)
        except BaseException:
            # Else nobody could open the spool again before this process ends.
            closed(self)
            if self._spool is not None:
                self._spool.close()
            raise

    def add(
        self,
        counter: str,
        delta: Amount,
        *,
        key: str | IdempotencyKey | None = None,
        occurred_at: datetime | None = None,
        note: Mapping[str, str] | None = None,
    ) -> PendingEntry:
        """Add to a counter, soon: as `CountLedger.record`, without waiting for it.

        One write unit for each KB of its entry; coalesced events share theirs.

        Returns:
            Its entry on its way; `result()` waits for the receipt.

        Raises:
            BadInput: an argument breaks its rule; nothing was taken.
            BufferFull: there is no room, and the producer is not to wait (`when_full`).
            SpoolRefused: the spool could not keep it; nothing was taken.
        """
        if self._joins and key is None and occurred_at is None and note is None:
            delta = parse_delta(delta)
            joined = self._buffer.join(counter, delta)
            if joined is not None:
                return joined
        return self._take([Event(counter, delta, key, occurred_at, note)])[0]

    def add_many(self, events: Iterable[Event]) -> list[PendingEntry]:
        """Add many events; with a spool much cheaper than one by one.

        They are gathered first: if that fails, nothing was taken.

        Returns:
            The entry of each event on its way, in their order.

        Raises:
            BufferFull, SpoolRefused, ProducerClosed: as `add`; `taken` has the entries of the
                events that were taken, which are the first ones.
        """
        taken: list[PendingEntry] = []
        every = list(events)
        most = min(_CHUNK, self.buffering.max_entries)
        for start in range(0, len(every), most):
            try:
                taken += self._take(every[start : start + most])
            except NotTaken as error:
                error.taken = tuple(taken)
                raise
        return taken

    def record_many(self, events: Iterable[Event]) -> list[Outcome]:
        """Add many events, gathered first, and wait for all of them.

        Returns:
            One outcome for each event, in their order: the receipt or the error of its entry, or
            the error for which it was not taken (`NotTaken`).
        """
        return list(self.record_stream(list(events)))

    def record_stream(self, events: Iterable[Event]) -> Iterator[Outcome]:
        """As `record_many` for events of any number, 20,000 ahead of the outcomes.

        It adds only while it is iterated.

        Yields:
            One outcome for each event, in their order.
        """
        waiting: deque[PendingEntry | NotTaken] = deque()
        for event in events:
            try:
                waiting.extend(self._take([event]))
            except NotTaken as error:
                waiting.append(error)
            while waiting and (_is_known(waiting[0]) or len(waiting) > _AHEAD_MAX):
                yield _outcome(waiting.popleft())
        self._buffer.make_due()
        while waiting:
            yield _outcome(waiting.popleft())

    def resend(self, entry: Entry) -> PendingEntry:
        """Add an entry that came back with an error, as it is; it cannot count twice.

        Raises:
            As `add`.
        """
        return self._buffer.accept([self._buffer.state.pending_again(entry)])[0]

    def flush(self, timeout_s: float | None = None) -> None:
        """Send all that was added so far, and wait until it is acknowledged.

        Args:
            timeout_s: for how long, at the most, whatever happens; None waits as long as there is
                progress: until nothing was acknowledged or refused for `Buffering.patience_ms`.

        Raises:
            NotRecorded: entries failed, by now, and nobody was told: each with its error.
            StillBuffered: the wait was over; what is left is still sent.
        """
        failures = self._buffer.flush(timeout_s)
        if failures:
            raise NotRecorded(failures)

    def close(self, timeout_s: float | None = None) -> None:
        """Send all that is left, and take no more.

        Args:
            timeout_s: for how long, at the most, as for `flush`.

        Raises:
            NotRecorded: entries failed, or were not acknowledged before the wait was over, and
                there is no `on_failure` to be told. With a spool they are sent again at the next
                start, unless they were refused for good.
        """
        failures = self._buffer.close(timeout_s)
        self._closed = True
        closed(self)
        if self._spool is not None:
            self._spool.close()
        if failures:
            raise NotRecorded(failures)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it, also after an error; it waits as long as there is progress."""
        self.close()

    def flushing(self, handler: Callable[P, R]) -> Callable[P, R]:
        """A Lambda handler that sends all it added before it ends: a frozen process sends nothing.

        Raises:
            NotRecorded: entries failed and nobody was told; the invocation fails.
            StillBuffered: its time was nearly over; what is left is sent by the next invocation,
                if there is one in this process.
        """
        return flushing(handler, self.flush)

    @property
    def statistics(self) -> BufferStatistics:
        """What was done so far in this process, and what waits."""
        return self._buffer.statistics()

    def refused(self) -> list[Failure]:
        """The entries in the spool that can never be recorded: too old, or against a rule."""
        if self._spool is None:
            return []
        return [Failure(row.entry, BadInput(why)) for row, why in self._spool.refused()]

    def forget_refused(self) -> None:
        """Remove them from the spool."""
        if self._spool is not None:
            self._spool.forget([row.row for row, _ in self._spool.refused()])

    def restart_in_fork(self) -> None:
        """Begin again in a fork, with nothing in hand."""
        _, parents = self._mine
        parents.outcomes.abandon()
        abandon(parents)
        self._reset()

    @property
    def _buffer(self) -> ThreadedBuffer:
        """The one of this process; a fork that Python has not seen begins again here."""
        if self._mine[0] != this_process():
            with _RESET_LOCK:
                if self._mine[0] != this_process():
                    self.restart_in_fork()
        return self._mine[1]

    def _reset(self) -> None:
        lock = Lock()
        outcomes = Outcomes(lock, self._on_failure)
        spool, is_closed = self._spool, self._closed
        state = BufferState(self.buffering, self._maker, spool, outcomes, closed=is_closed)
        self._mine = this_process(), ThreadedBuffer(state, lock, self._make_delivery)

    def _take(self, events: Sequence[Event]) -> list[PendingEntry]:
        own = self._buffer
        return own.accept([own.state.pending_of(event) for event in events]) if events else []


def _is_known(one: PendingEntry | NotTaken) -> bool:
    return isinstance(one, NotTaken) or one.done


def _outcome(one: PendingEntry | NotTaken) -> Outcome:
    return one if isinstance(one, NotTaken) else one.wait()
