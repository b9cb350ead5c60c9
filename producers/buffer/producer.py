"""A producer whose `add` returns at once; its threads send the events in batches.

    with ledger.buffered() as clicks:
        clicks.add("clicks:home", 1)

Events are sent when they fill a batch, when they have waited for the linger time, by `flush`, and
at the end of the `with` block, of the process, or in a Lambda of each invocation (`flushing`).
Each failure is reported with its entry.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.amount import parse_delta
from countledger.ledger.errors import BadInput, CountledgerError
from countledger.ledger.keys import check_counter
from countledger.ledger.processes import abandon, lock_open_in_forks, this_process
from countledger.producers.buffer.processes import closed, flushing, opened
from countledger.producers.buffer.sending import BufferState
from countledger.producers.buffer.settings import (
    NOT_PICKLED,
    Failure,
    NotRecorded,
    NotTaken,
    Outcomes,
)
from countledger.producers.buffer.spool import Spool
from countledger.producers.buffer.threaded import ThreadedBuffer
from countledger.producers.event import Event, gathered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.ledger.ids import IdempotencyKey, RangeKey
    from countledger.producers.buffer.processes import P, R
    from countledger.producers.buffer.sending import BatchDelivery, EntryMaker
    from countledger.producers.buffer.settings import Buffering, BufferStatistics, PendingEntry
    from countledger.producers.recorder import Outcome

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
        buffering: Buffering,
        make_delivery: Callable[[], BatchDelivery],
        maker: EntryMaker,
        *,
        ledger: str,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> None:
        """Open the spool, if one is named, and start to send the entries in it.

        Args:
            buffering: the settings.
            make_delivery: creates what sends the batches; called once in each process.
            maker: creates entries.
            ledger: the name of the ledger, for the spool.
            on_failure: called with each failure, on a thread of this producer or by `close`. It
                must not wait for the producer; it may call `resend`.

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
        """Refuse to be pickled: its events would be in two processes.

        Raises:
            TypeError: always.
        """
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
            return own.accept_one(own.state.pending_of_plain(check_counter(counter), delta))
        event = Event(counter, delta, key, occurred_at, note)
        return own.accept_one(own.state.pending_of(event))

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
        """Return the producer."""
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
        outcomes = Outcomes(lock, self._on_failure)
        spool, is_closed = self._spool, self._closed
        state = BufferState(self.buffering, self._maker, spool, outcomes, closed=is_closed)
        self._mine = this_process(), ThreadedBuffer(state, lock, self._make_delivery)

    def _take(self, events: Sequence[Event]) -> list[PendingEntry]:
        own = self._here()
        return own.accept([own.state.pending_of(event) for event in events])


def _is_known(one: PendingEntry | NotTaken | BadInput) -> bool:
    return isinstance(one, CountledgerError) or one.done


def _outcome(one: PendingEntry | NotTaken | BadInput) -> Outcome:
    return one if isinstance(one, CountledgerError) else one.wait()
