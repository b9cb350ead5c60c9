"""The outcomes of the entries of a buffer: they are published, and each failure is reported."""

from __future__ import annotations

import logging
from collections import deque
from threading import Condition, Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.amount import Amount, add, may_be_added
from countledger.ledger.errors import CountledgerError
from countledger.ledger.processes import this_process
from countledger.producers.buffer.buffering import (
    ENTRY_BYTES,
    NOT_PICKLED,
    BufferTally,
    Failure,
    ProducerClosed,
    size_of,
)
from countledger.producers.event import Receipt, Status, receipt_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from countledger.ledger.entry import Entry
    from countledger.producers.recorder import Outcome


_LOG: Final = logging.getLogger(__name__)
# Stands for a receipt, which is made when it is read: most never are.
_RECORDED: Final = Receipt("", "", Status.RECORDED)


class PendingEntry:
    """An entry that is not acknowledged yet. Coalesced events share one.

    Attributes:
        counter: the counter's name.
        delta: the sum so far, which the entry adds.
        events: the number of events so far.
    """

    __slots__ = (
        "_outcomes",
        "at_ms",
        "callbacks",
        "counter",
        "delta",
        "entries",
        "events",
        "handed_back",
        "number",
        "reported",
        "rows",
        "settled",
        "size",
        "unfrozen",
    )

    def __init__(
        self,
        outcomes: Outcomes,
        counter: str,
        delta: Amount,
        entry: Entry | None = None,
        at_ms: int | None = None,
    ) -> None:
        self._outcomes = outcomes
        self.counter = counter
        self.delta = delta
        self.events = 1 if entry is None else entry.events
        # The attributes below are internal to the buffer.
        self.entries: Sequence[Entry] | None = None if entry is None else (entry,)
        self.number = 0  # of its entry among them
        self.settled: Outcome | None = None  # its outcome; `_RECORDED` stands for its receipt
        self.at_ms = at_ms  # the time of the entry that is created later; None means that time
        self.size = ENTRY_BYTES + len(counter) if entry is None else size_of(entry)
        self.rows: list[int] | None = None  # its row numbers in the spool
        self.unfrozen = False  # whether the spool has its events and not yet its entry
        self.reported = False  # whether a caller has the outcome, or waits for it
        self.handed_back = False  # whether `close` or `on_failure` reported it already
        self.callbacks: list[Callable[[PendingEntry], object]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled: its outcome would be known in one process only.

        Raises:
            TypeError: always.
        """
        raise TypeError(NOT_PICKLED)

    @property
    def entry(self) -> Entry | None:
        """The entry; None until it is created, at the latest just before its first send."""
        return None if self.entries is None else self.entries[self.number]

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.settled is not None

    @property
    def outcome(self) -> Outcome | None:
        """The receipt or the error; None until it is known."""
        if self.settled is _RECORDED and (entry := self.entry) is not None:
            self.settled = receipt_of(entry.counter, entry.id)
        return self.settled

    def result(self, timeout_s: float | None = None) -> Receipt:
        """Wait until the entry is acknowledged.

        Args:
            timeout_s: the longest wait in seconds; None waits until the outcome is known.

        Raises:
            TimeoutError: the outcome is not known yet.
            ProducerClosed: this is a fork of the process that added the entry.
            CountledgerError: what `CountLedger.record` raises.
        """
        outcome = self.wait(timeout_s)
        if isinstance(outcome, Receipt):
            return outcome
        raise outcome

    def wait(self, timeout_s: float | None = None) -> Outcome:
        """As `result`, but return an error of this entry instead of raising it."""
        return self._outcomes.outcome_of(self, timeout_s)

    def add_done_callback(self, callback: Callable[[PendingEntry], object]) -> None:
        """Call a function with this entry, on a sender's thread, once the outcome is known.

        If the outcome is known already, call it now on this thread. Its errors are logged.
        """
        self._outcomes.call_when_done(self, callback)

    def join(self, delta: Amount, rows: Sequence[int] = ()) -> bool:
        """Add one more event of the counter; False if the sum is too long for an entry.

        Its rows in the spool come first: a signal handler may raise between any two steps, and an
        event that is in the sum must not stay in the spool.
        """
        total = add(self.delta, delta)
        if not may_be_added(total):
            return False
        if self.rows is not None:
            self.rows += rows
        self.delta = total
        self.events += 1
        return True


class Outcomes:
    """The outcomes of one process's buffer.

    Attributes:
        kind: what its pending entries are.
        progress_s: when the last outcome was stored.
        failed: the failures that nobody has taken; some of them a caller may have got since.

    Args:
        lock: the lock of the buffer; callers wait for outcomes under it.
        on_failure: called with each failure, on a sender's thread; without it, failures are kept.
    """

    kind: type[PendingEntry] = PendingEntry

    def __init__(self, lock: Lock, on_failure: Callable[[Failure], object] | None) -> None:
        self.changed = Condition(lock)
        self.tally = BufferTally()
        self.progress_s = 0.0
        self._process: object = this_process()
        self.on_failure = on_failure
        self.failed: deque[PendingEntry] = deque()
        # The spool rows of failed entries, in case they are added again.
        self._rows: dict[tuple[str, str], list[int]] = {}

    @property
    def abandoned(self) -> bool:
        """Whether the entries belong to a parent process: their outcomes never arrive here."""
        return self._process != this_process()

    def abandon(self) -> None:
        """Mark the entries as those of a parent process."""
        self._process = None

    def resolve(
        self, pendings: Sequence[PendingEntry], others: Mapping[int, Outcome]
    ) -> list[PendingEntry]:
        """Store outcomes, under the lock; return the entries to `notify` about."""
        to_notify: list[PendingEntry] = []
        self.tally.count(len(pendings), others.values())
        self.progress_s = monotonic()
        for number, pending in enumerate(pendings):
            outcome = others.get(number, _RECORDED)
            recorded = type(outcome) is Receipt
            if not recorded or pending.callbacks is not None or pending.rows is not None:
                to_notify.append(pending)
                self._note(pending, recorded=recorded)
            pending.settled = outcome  # last: an interrupted entry has no outcome yet
        self.changed.notify_all()
        return to_notify

    def _note(self, pending: PendingEntry, *, recorded: bool) -> None:
        if not recorded and not pending.callbacks and not pending.handed_back:
            pending.reported |= self.on_failure is not None
            if self.on_failure is None:
                self.failed.append(pending)
        if pending.rows and (entry := pending.entry) is not None:
            identity = entry.counter, entry.id
            self._rows.pop(identity, None)
            if not recorded:
                self._rows[identity] = pending.rows[:1]

    def notify(self, pendings: Iterable[PendingEntry]) -> None:
        """Call the callbacks and `on_failure`; called without the lock."""
        for pending in pendings:
            for callback in pending.callbacks or ():
                _call(callback, pending)
            pending.callbacks = None
            if isinstance(error := pending.outcome, CountledgerError) and not pending.handed_back:
                pending.handed_back = True
                self.report((Failure(pending.entry, error),))

    def report(self, failures: tuple[Failure, ...]) -> tuple[Failure, ...]:
        """Call `on_failure`, or return the failures if it is not set; called without the lock."""
        if self.on_failure is None:
            return failures
        for failure in failures:
            _call(self.on_failure, failure)
        return ()

    def outcome_of(self, pending: PendingEntry, timeout_s: float | None) -> Outcome:
        """Wait for an entry's outcome; raises what `PendingEntry.result` does of the wait."""
        if pending.settled is None:
            self.refuse_in_a_fork(pending)
            pending.reported = True  # the caller that waits gets it, so `flush` does not report it
            try:
                with self.changed:
                    self.changed.wait_for(lambda: pending.done, timeout_s)
            finally:
                pending.reported = pending.done  # also if the wait was interrupted
        if pending.outcome is None:
            raise TimeoutError(
                f"the entry of {pending.counter!r} has no outcome after {timeout_s} s"
            )
        pending.reported = True
        return pending.outcome

    def call_when_done(
        self, pending: PendingEntry, callback: Callable[[PendingEntry], object]
    ) -> None:
        """Call a function once the outcome is known, or now if it is known already."""
        self.refuse_in_a_fork(pending)
        with self.changed:
            if pending.outcome is None:
                pending.callbacks = [*(pending.callbacks or ()), callback]
                return
        pending.reported = True
        _call(callback, pending)

    def refuse_in_a_fork(self, pending: PendingEntry) -> None:
        """Refuse to wait for an outcome that never arrives in this process.

        Raises:
            ProducerClosed: this is a fork of the process that added the entries.
        """
        if pending.settled is None and self.abandoned:
            raise ProducerClosed(
                "the entry was added before this process was forked: read its outcome in the "
                "parent process"
            )

    def unreported(self) -> int:
        """The number of failures that no caller has got; called under the lock."""
        while self.failed and self.failed[0].reported:
            self.failed.popleft()
        return len(self.failed)

    def take_failures(self) -> tuple[Failure, ...]:
        """The failures that no caller has got, each once; called under the lock."""
        failures = tuple(
            Failure(one.entry, one.outcome)
            for one in dict.fromkeys(self.failed)  # an interrupted `close` may add one twice
            if not one.reported and isinstance(one.outcome, CountledgerError)
        )
        self.failed.clear()
        return failures

    def rows_of(self, counter: str, entry_id: str) -> list[int] | None:
        """The spool rows of an entry that failed."""
        return self._rows.get((counter, entry_id))


def _call(callback: Callable[[Any], object], value: object) -> None:
    """Call a function of the app; its errors are logged and stop nothing here."""
    try:
        callback(value)
    except (Exception, SystemExit):  # noqa: BLE001 - an error of the app must not end a sender's thread
        _LOG.exception("a callback of a buffered producer failed")
