"""The settings of a buffered producer, its statistics, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from countledger.ledger.errors import (
    BadInput,
    BadSetting,
    CountledgerError,
    ServiceFailed,
    SetupError,
    shown,
)
from countledger.ledger.limits import BATCH_WRITE_ITEMS, DAY_MS, HORIZON_MIN_MS, SECOND_MS
from countledger.producers.event import Receipt, Status

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from countledger.ledger.entry import Entry
    from countledger.producers.buffer.settings import PendingEntry
    from countledger.producers.recorder import Outcome


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
        """Check the values."""
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

    Attributes:
        timeout_s: the time-out in seconds, or None.
        patience_s: the patience in seconds.
        since_s: the start of the wait.
    """

    timeout_s: float | None
    patience_s: float
    since_s: float

    def left_s(self, now_s: float, progress_s: float) -> float:
        """The seconds that are left; 0 or less if the wait is over.

        Args:
            now_s: the time, on the clock of `since_s`.
            progress_s: the time of the last outcome, on the same clock.
        """
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
    """Entries failed, and no caller got their errors before.

    Attributes:
        failures: each entry with its error.
    """

    def __init__(self, failures: tuple[Failure, ...]) -> None:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        super().__init__(f"not recorded: {failures[0].error}{more}")
        self.failures = failures
