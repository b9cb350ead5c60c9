"""The settings and statistics of a buffer; the outcomes of its entries, each failure reported."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from countledger.ledger.amount import Amount, add, may_be_added
from countledger.ledger.errors import (
    BadInput,
    BadSetting,
    CountledgerError,
    ServiceFailed,
    SetupError,
    shown,
)
from countledger.ledger.limits import BATCH_WRITE_ITEMS, DAY_MS, HORIZON_MIN_MS, SECOND_MS
from countledger.ledger.processes import this_process
from countledger.ledger.suspension import Interrupted, Waiters
from countledger.producers.event import Receipt, Status, receipt_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path
    from threading import Lock

    from countledger.ledger.entry import Entry
    from countledger.producers.sender import Outcome


# The settings of a buffered producer, its statistics, and how long it waits.


_LINGER_MS: Final = 100
_COALESCING_LINGER_MS: Final = SECOND_MS
# What waits is in the cache of a processor; and a window of coalesced events fits in twice.
_ENTRIES: Final = 5_000
_COALESCED_ENTRIES: Final = 20_000
# More than a million entries take gigabytes; more than 64 senders contend for the lock.
_ENTRIES_MAX: Final = 1_000_000
_SENDERS_MAX: Final = 64
_ATTEMPTS_MAX: Final = 100
_MB: Final = 1_048_576
NOT_PICKLED: Final = (
    "a buffered producer cannot be pickled, nor what it returned: its events would be sent by two "
    "processes; pickle the `CountLedger`, and call `buffered` in the other process"
)
# The estimated size of an entry without its texts.
ENTRY_BYTES: Final = 400


def size_of(entry: Entry) -> int:
    """The estimated size of an entry in bytes."""
    size = ENTRY_BYTES + len(entry.counter)
    if entry.key is not None:
        size += len(entry.key)
    if entry.note is not None:
        size += sum(len(name) + len(text) for name, text in entry.note.items())
    return size


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffering:
    """The settings of a buffered producer, checked when they are created.

    Attributes:
        coalesce: whether events of one counter become one entry with their sum and their number.
            Events with a key, a note or a business time are never coalesced.
        linger_ms: how long an event may wait for others, in milliseconds; None means 100, or
            1,000 if events are coalesced.
        window_events: if events are coalesced, the largest number that is gathered before sending.
        max_entries: the largest number of unacknowledged entries, at least 25; None means 5,000,
            or 20,000 if events are coalesced. An event costs less while fewer wait.
        max_bytes: their largest total size in bytes, estimated.
        when_full: whether `add` waits at these limits (`block`) or raises `BufferFull` (`error`).
        senders: the largest number of batches that are sent at the same time; throttling lowers
            the number.
        attempts: how often an entry is sent before it fails.
        patience_ms: `flush`, `close` and the end of the `with` block stop waiting if no entry is
            acknowledged or refused for so many milliseconds.
        spool: a file that keeps unacknowledged entries across a crash of the process.
        fsync: whether the spool also survives a crash of the machine; each `add` then waits for
            the disk.

    Raises:
        BadSetting: a value breaks its rule; the text has both.
    """

    coalesce: bool = False
    linger_ms: int | None = None
    window_events: int = 10_000
    max_entries: int | None = None
    max_bytes: int = 64 * _MB
    when_full: Literal["block", "error"] = "block"
    senders: int = 8
    attempts: int = 12
    patience_ms: int = 30 * SECOND_MS
    spool: str | Path | None = None
    fsync: bool = False

    def __post_init__(self) -> None:
        # An entry that waits longer than the shortest horizon could expire unsent.
        self._check("linger_ms", self.lingers_ms, 0, HORIZON_MIN_MS // 2)
        self._check("window_events", self.window_events, 1, _ENTRIES_MAX)
        self._check("max_entries", self.holds_entries, BATCH_WRITE_ITEMS, _ENTRIES_MAX)
        self._check("max_bytes", self.max_bytes, _MB, 1_024 * _MB)
        self._check("senders", self.senders, 1, _SENDERS_MAX)
        self._check("attempts", self.attempts, 1, _ATTEMPTS_MAX)
        self._check("patience_ms", self.patience_ms, 1, DAY_MS)
        if self.when_full not in ("block", "error"):
            raise BadSetting(f"when_full {shown(self.when_full)} is neither 'block' nor 'error'")
        if self.fsync and self.spool is None:
            raise BadSetting("fsync=True needs a spool: name a file with spool=")

    @property
    def lingers_ms(self) -> int:
        """How long an event may wait for others, in milliseconds."""
        if self.linger_ms is not None:
            return self.linger_ms
        return _COALESCING_LINGER_MS if self.coalesce else _LINGER_MS

    @property
    def holds_entries(self) -> int:
        """The largest number of unacknowledged entries."""
        if self.max_entries is not None:
            return self.max_entries
        return _COALESCED_ENTRIES if self.coalesce else _ENTRIES

    @staticmethod
    def _check(name: str, value: object, least: int, most: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise BadSetting(f"{name} {shown(value)} is not a whole number from {least} to {most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferStatistics:
    """The buffer of one process at one moment; several events may share one entry.

    Attributes:
        events: the events that were added.
        waiting: the entries that are not acknowledged yet.
        under_way: the entries among them that are being sent.
        recorded: the entries acknowledged as new.
        duplicates: the entries acknowledged as recorded before.
        failed: the entries that failed.
        batches: the batches that are finished.
        waits: the attempts that were throttled or not answered, and repeated.
        senders: the number of batches that may be sent at the same time now.
    """

    events: int
    waiting: int
    under_way: int
    recorded: int
    duplicates: int
    failed: int
    batches: int
    waits: int
    senders: int


@dataclass(slots=True)
class BufferTally:
    """The number of entries by outcome."""

    recorded: int = 0
    duplicates: int = 0
    failed: int = 0

    def count(self, entries: int, others: Iterable[Outcome]) -> None:
        """Count so many entries; others are the outcomes of those not simply recorded."""
        states = [one.status if isinstance(one, Receipt) else None for one in others]
        self.failed += (failed := states.count(None))
        self.duplicates += (duplicates := states.count(Status.DUPLICATE))
        self.recorded += entries - failed - duplicates


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a caller waits until a buffer is empty.

    With a time-out, the wait ends after that time. Without one, it ends when no entry was
    acknowledged or refused for the time of the patience.
    """

    timeout_s: float | None
    patience_s: float
    since_s: float

    def left_s(self, now_s: float, progress_s: float) -> float:
        """The seconds that are left; 0 or less if the wait is over."""
        if self.timeout_s is not None:
            return self.since_s + self.timeout_s - now_s
        return max(self.since_s, progress_s) + self.patience_s - now_s


class Failure(NamedTuple):
    """An entry that was not recorded, and why.

    Attributes:
        entry: the entry; `resend` sends it again, and it cannot count twice. None if it was never
            created: its events stay in the spool.
        error: the reason.
    """

    entry: Entry | None
    error: CountledgerError


class NotTaken(CountledgerError):
    """The buffer did not accept an event; nothing of that event was written.

    Attributes:
        taken: if several events were added together (`add_many`), the entries of the events that
            were accepted before, in their order. They are sent.
    """

    taken: tuple[PendingEntry, ...] = ()


class ProducerClosed(NotTaken, BadInput):
    """A closed producer was used, or the outcome of an entry was read in another process."""


class SpoolRefused(NotTaken, SetupError):
    """A spool file is in use, belongs to another ledger, or cannot be read or written."""


class BufferFull(NotTaken, ServiceFailed):
    """The buffer is full; this event was not accepted."""


class StillBuffered(ServiceFailed):
    """The wait ended before all entries were acknowledged; the others stay in the buffer."""


class NotRecorded(ServiceFailed):
    """Entries failed, and no caller got their errors before."""

    def __init__(self, failures: tuple[Failure, ...]) -> None:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        super().__init__(f"not recorded: {failures[0].error}{more}")
        self.failures = failures


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
        "waiters",
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
        self.waiters: Waiters | None = None  # for the callers that wait, if any did

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled: its outcome would be known in one process only."""
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
    """The outcomes of one process's buffer, under its lock.

    `failed`: the failures that nobody has taken; some of them a caller may have got since.
    `on_failure` is called on a sender's thread; without it, failures are kept.
    """

    kind: type[PendingEntry] = PendingEntry

    def __init__(self, lock: Lock, on_failure: Callable[[Failure], object] | None) -> None:
        self.lock = lock
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
            if pending.waiters is not None:
                pending.waiters.notify_all()
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
            with self.lock:
                self._wait(pending, timeout_s)
        if pending.outcome is None:
            raise TimeoutError(
                f"the entry of {pending.counter!r} has no outcome after {timeout_s} s"
            )
        pending.reported = True
        return pending.outcome

    def _wait(self, pending: PendingEntry, timeout_s: float | None) -> None:
        if pending.waiters is None:
            pending.waiters = Waiters(self.lock)
        pending.reported = True  # the caller that waits gets it, so `flush` does not report it
        try:
            pending.waiters.wait_for(lambda: pending.done, timeout_s)
        finally:  # also if the wait was interrupted
            pending.reported = pending.done or pending.waiters.waiting > 0

    def call_when_done(
        self, pending: PendingEntry, callback: Callable[[PendingEntry], object]
    ) -> None:
        """Call a function once the outcome is known, or now if it is known already."""
        self.refuse_in_a_fork(pending)
        with self.lock:
            if pending.outcome is None:
                pending.callbacks = [*(pending.callbacks or ()), callback]
                return
        pending.reported = True
        _call(callback, pending)

    def refuse_in_a_fork(self, pending: PendingEntry) -> None:
        """Refuse to wait for an outcome that never arrives in this process."""
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
    except (KeyboardInterrupt, Interrupted):
        raise
    except BaseException:  # noqa: BLE001 - also of a cancelled future: it must not end a sender's thread
        _LOG.exception("a callback of a buffered producer failed")
