"""What became of the entries of a buffer: who waits is told, and what failed is not forgotten."""

from __future__ import annotations

import logging
from collections import deque
from threading import Condition, Lock
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from countledger.ledger.amount import Amount, add, may_be_added
from countledger.ledger.forks import this_process
from countledger.producers.buffer.buffering import BufferTally, Wait
from countledger.producers.buffer.errors import Failure, ProducerClosed
from countledger.producers.event import Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from countledger.ledger.entry import Entry
    from countledger.producers.sender import Outcome

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class PendingEntry:
    """An entry on its way. Of events that were coalesced, all have the same one.

    Attributes:
        counter: the counter's name.
        delta: what the entry adds, as far as it is known yet.
        events: how many events it carries, as far as it is known yet.
        entry: the entry, once it is made: at once, or if coalescing, before it is first sent.
        outcome: its receipt or its error, once that is known.
    """

    __slots__ = (
        "_outcomes",
        "callbacks",
        "counter",
        "delta",
        "entry",
        "events",
        "handed_back",
        "number",
        "outcome",
        "reported",
        "rows",
        "since_ms",
        "size",
        "unfrozen",
    )

    def __init__(
        self, outcomes: Outcomes, counter: str, delta: Amount, entry: Entry | None
    ) -> None:
        self._outcomes = outcomes
        self.counter = counter
        self.delta = delta
        self.entry = entry
        self.events = 1
        self.outcome: Outcome | None = None
        # What follows is the buffer's own.
        self.number = 0  # its place in the queue
        self.since_ms = 0.0
        self.size = 0
        self.rows: list[int] | None = None  # where it lies in the spool
        self.unfrozen = False  # whether the spool holds its events still, and not its entry
        self.reported = False  # whether somebody has been told of its outcome
        self.handed_back = False  # whether the producer's end reported it while it was under way
        self.callbacks: list[Callable[[PendingEntry], object]] | None = None

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self.outcome is not None

    def result(self, timeout_s: float | None = None) -> Receipt:
        """Wait until the entry is acknowledged.

        Args:
            timeout_s: for how long, at the most; None waits until it is known.

        Raises:
            TimeoutError: it is not known yet.
            ProducerClosed: this is a fork of the process that the entry belongs to.
            CountledgerError: what `CountLedger.record` raises.
        """
        outcome = self.wait(timeout_s)
        if isinstance(outcome, Receipt):
            return outcome
        raise outcome

    def wait(self, timeout_s: float | None = None) -> Outcome:
        """As `result`, with an error of this entry as a value."""
        return self._outcomes.outcome_of(self, timeout_s)

    def add_done_callback(self, callback: Callable[[PendingEntry], object]) -> None:
        """Have a function called with this, on a sender's thread, once the outcome is known.

        At once and here if it is known already. What it raises is logged.
        """
        self._outcomes.call_when_done(self, callback)

    def join(self, delta: Amount) -> bool:
        """Take in one more event of the counter; False where the sum is too long for an entry."""
        total = add(self.delta, delta)
        if not may_be_added(total):
            return False
        self.delta = total
        self.events += 1
        return True


class Outcomes:
    """The outcomes of one process's buffer.

    Args:
        lock: the buffer's; whoever waits for an outcome waits under it.
        on_failure: told of each failure, on a sender's thread; without it they are kept.
    """

    def __init__(self, lock: Lock, on_failure: Callable[[Failure], object] | None) -> None:
        self.changed = Condition(lock)
        self.tally = BufferTally()
        self._process = this_process()
        self._abandoned = False
        self._on_failure = on_failure
        self._failed: deque[PendingEntry] = deque()
        # The rows in the spool of entries that failed, should they be added again.
        self._rows: dict[tuple[str, str], list[int]] = {}

    @property
    def abandoned(self) -> bool:
        """Whether the entries are those of a parent: nobody here will hear of their outcomes."""
        return self._abandoned or self._process != this_process()

    def abandon(self) -> None:
        """From now on they are those of a parent."""
        self._abandoned = True

    def pending(self, counter: str, delta: Amount, entry: Entry | None) -> PendingEntry:
        """A new entry on its way."""
        return PendingEntry(self, counter, delta, entry)

    def resolve(self, pendings: Sequence[PendingEntry], outcomes: Sequence[Outcome]) -> None:
        """Note outcomes; called under the lock."""
        for pending, outcome in zip(pendings, outcomes, strict=True):
            pending.outcome = outcome
            self.tally.count(outcome)
            failed = not isinstance(outcome, Receipt)
            if failed and not pending.callbacks and not pending.handed_back:
                if self._on_failure is None:
                    self._failed.append(pending)
                else:
                    pending.reported = True
            if pending.rows and pending.entry:
                identity = pending.entry.counter, pending.entry.id
                if isinstance(outcome, Receipt):
                    self._rows.pop(identity, None)
                else:
                    self._rows[identity] = pending.rows[:1]
        self.changed.notify_all()

    def notify(self, pendings: Iterable[PendingEntry]) -> None:
        """Call whoever wants to be called; outside of the lock."""
        for pending in pendings:
            for callback in pending.callbacks or ():
                _call(callback, pending)
            pending.callbacks = None
            outcome = pending.outcome
            if outcome is None or isinstance(outcome, Receipt) or pending.handed_back:
                continue
            self.report((Failure(pending.entry, outcome),))

    def report(self, failures: tuple[Failure, ...]) -> tuple[Failure, ...]:
        """Hand failures to `on_failure`, outside of the lock; those that nobody could be given."""
        if self._on_failure is None:
            return failures
        for failure in failures:
            _call(self._on_failure, failure)
        return ()

    def outcome_of(self, pending: PendingEntry, timeout_s: float | None) -> Outcome:
        """Wait for an entry's outcome.

        Raises:
            TimeoutError: it is not known yet.
            ProducerClosed: this is a fork of the process that it belongs to.
        """
        if pending.outcome is None:
            self.refuse_in_a_fork()
            until_s = None if timeout_s is None else monotonic() + timeout_s
            pending.reported = True  # by whom it is waited for, it is not told to others
            try:
                with self.changed:
                    for _ in self.waiting(until_s):
                        if pending.done:
                            break
            finally:
                pending.reported = pending.done  # also where the wait was interrupted
        if pending.outcome is None:
            raise TimeoutError(f"no outcome of an entry of {pending.counter!r} in {timeout_s} s")
        pending.reported = True
        return pending.outcome

    def waiting(self, until_s: float | None) -> Iterator[None]:
        """Yield at once, and after each change; end when the time is over. Under the lock."""
        while True:
            yield
            left_s = None if until_s is None else until_s - monotonic()
            if left_s is not None and left_s <= 0:
                return
            self.changed.wait(left_s)

    def wait(self, timeout_s: float | None, patience_s: float) -> Wait:
        """A wait that begins now."""
        return Wait(timeout_s, patience_s, monotonic(), self.tally.ended)

    def waiting_on(self, wait: Wait) -> Iterator[None]:
        """As `waiting`; end when the wait is over. Under the lock."""
        while True:
            yield
            left_s = wait.left_s(monotonic(), self.tally.ended)
            if left_s <= 0:
                return
            self.changed.wait(left_s)

    def call_when_done(
        self, pending: PendingEntry, callback: Callable[[PendingEntry], object]
    ) -> None:
        """Have a function called once the outcome is known; here and now if it is.

        Raises:
            ProducerClosed: this is a fork of the process that it belongs to.
        """
        if pending.outcome is None:
            self.refuse_in_a_fork()
        with self.changed:
            if pending.outcome is None:
                pending.callbacks = [*(pending.callbacks or ()), callback]
                return
        pending.reported = True
        _call(callback, pending)

    def refuse_in_a_fork(self) -> None:
        """Refuse to wait for what will never come.

        Raises:
            ProducerClosed: this is a fork of the process that the entries belong to.
        """
        if self.abandoned:
            raise ProducerClosed(
                "the entry was added before this process was forked: ask its parent"
            )

    def unreported(self) -> int:
        """How many failures nobody has asked after; called under the lock."""
        while self._failed and self._failed[0].reported:
            self._failed.popleft()
        return len(self._failed)

    def take_failures(self) -> tuple[Failure, ...]:
        """The failures that nobody has asked after, once; called under the lock."""
        failures = tuple(
            Failure(pending.entry, pending.outcome)
            for pending in self._failed
            if not pending.reported
            and pending.outcome is not None
            and not isinstance(pending.outcome, Receipt)
        )
        self._failed.clear()
        return failures

    def rows_of(self, counter: str, entry_id: str) -> list[int] | None:
        """Where an entry that failed lies in the spool."""
        return self._rows.get((counter, entry_id))


def _call(callback: Callable[[_T], object], value: _T) -> None:
    """Call what an app handed in: its errors are its own, and stop nothing here."""
    try:
        callback(value)
    except (Exception, SystemExit):  # noqa: BLE001 - nothing of an app's ends a sender's thread
        _LOG.exception("a callback of a buffered producer failed")
