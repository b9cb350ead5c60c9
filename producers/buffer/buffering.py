"""The settings of a buffered producer, its counts, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from countledger.ledger.errors import BadSetting, shown
from countledger.ledger.limits import BATCH_WRITE_ITEMS, DAY_MS, HORIZON_MIN_MS, SECOND_MS
from countledger.producers.event import Receipt, Status

if TYPE_CHECKING:
    from pathlib import Path

    from countledger.producers.sender import Outcome

_LINGER_MS: Final = 100
_COALESCING_LINGER_MS: Final = SECOND_MS
# Beyond a million entries a process holds gigabytes; beyond 64 senders it fights for its lock.
_ENTRIES_MAX: Final = 1_000_000
_SENDERS_MAX: Final = 64
_ATTEMPTS_MAX: Final = 100
_MB: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffering:
    """How a buffered producer buffers; valid at birth.

    Attributes:
        coalesce: whether events of one counter become one entry with their sum and their number.
            Those with a key, a note or a business time never do.
        linger_ms: for how long an event may wait for others; None is 100, or 1,000 if coalescing.
        window_events: if coalescing, how many events are gathered at the most before they go.
        max_entries: how many entries may wait for their acknowledgement; at least 25.
        max_bytes: how large they may be in all, by rough reckoning.
        when_full: whether `add` then waits (`block`) or raises `BufferFull` (`error`).
        senders: how many batches are on their way at once, at the most; throttling lowers it.
        attempts: how often an entry is sent before it is handed back.
        patience_ms: for how long `flush`, `close` and the end of the `with` block wait though no
            entry is acknowledged or refused; as long as there is progress, they wait.
        spool: a file that keeps what is not acknowledged across a crash of the process.
        fsync: whether what is spooled also survives a crash of the machine; `add` then takes
            as long as the disk does.

    Raises:
        BadSetting: naming the value and the rule that it breaks.
    """

    coalesce: bool = False
    linger_ms: int | None = None
    window_events: int = 10_000
    max_entries: int = 50_000
    max_bytes: int = 64 * _MB
    when_full: Literal["block", "error"] = "block"
    senders: int = 8
    attempts: int = 12
    patience_ms: int = 30 * SECOND_MS
    spool: str | Path | None = None
    fsync: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        # What waits longer than the least horizon could expire without ever being sent.
        self._check("linger_ms", self.lingers_ms, 0, HORIZON_MIN_MS // 2)
        self._check("window_events", self.window_events, 1, _ENTRIES_MAX)
        self._check("max_entries", self.max_entries, BATCH_WRITE_ITEMS, _ENTRIES_MAX)
        self._check("max_bytes", self.max_bytes, _MB, 1_024 * _MB)
        self._check("senders", self.senders, 1, _SENDERS_MAX)
        self._check("attempts", self.attempts, 1, _ATTEMPTS_MAX)
        self._check("patience_ms", self.patience_ms, 1, DAY_MS)
        if self.when_full not in ("block", "error"):
            raise BadSetting(f"when_full {shown(self.when_full)} is neither 'block' nor 'error'")
        if self.fsync and self.spool is None:
            raise BadSetting("fsync=True without a spool: there is nothing to bring to the disk")

    @property
    def lingers_ms(self) -> int:
        """For how long an event may wait for others."""
        if self.linger_ms is not None:
            return self.linger_ms
        return _COALESCING_LINGER_MS if self.coalesce else _LINGER_MS

    @staticmethod
    def _check(name: str, value: object, least: int, most: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise BadSetting(f"{name} {shown(value)} is no whole number from {least} to {most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferStatistics:
    """One moment of one process's buffer; entries are what is written, events what was added.

    Attributes:
        events: added.
        waiting: entries that wait to be sent, or are on their way.
        under_way: those of them that are on their way.
        recorded: entries acknowledged as new.
        duplicates: entries acknowledged as recorded before.
        failed: entries that came back with an error.
        batches: requests' worth of entries that came to their end.
        waits: attempts that were throttled or not answered, and made again.
        senders: batches that may be on their way at once, now.
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
    """How many entries came to which end."""

    recorded: int = 0
    duplicates: int = 0
    failed: int = 0

    def count(self, outcome: Outcome) -> None:
        """One more."""
        if not isinstance(outcome, Receipt):
            self.failed += 1
        elif outcome.status is Status.RECORDED:
            self.recorded += 1
        else:
            self.duplicates += 1

    @property
    def ended(self) -> int:
        """How many came to any end: it grows as long as there is progress."""
        return self.recorded + self.duplicates + self.failed


@dataclass(slots=True)
class Wait:
    """For how long somebody waits until a buffer is empty.

    With a time-out: so long and no longer, whatever happens. Without one: as long as there is
    progress, that is, until nothing was acknowledged or refused for as long as the patience.

    Attributes:
        timeout_s: the time-out, or None.
        patience_s: the patience.
        since_s: when the time that counts began; the last progress, where there is no time-out.
        ended: how many entries had come to an end by then.
    """

    timeout_s: float | None
    patience_s: float
    since_s: float
    ended: int

    def left_s(self, now_s: float, ended: int) -> float:
        """How long it may still take; not above 0 where the wait is over.

        Args:
            now_s: the time, on the clock of `since_s`.
            ended: how many entries came to an end by now.
        """
        if self.timeout_s is not None:
            return self.since_s + self.timeout_s - now_s
        if ended != self.ended:
            self.since_s, self.ended = now_s, ended
        return self.since_s + self.patience_s - now_s
