"""The clock of a stack in memory: waiting moves it, and takes no time."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from countledger.ledger.clock import SystemClock, to_datetime, to_ms
from countledger.ledger.errors import BadTime

if TYPE_CHECKING:
    from datetime import datetime


class MemoryClock:
    """A clock that follows the machine's, ahead of it by all waits; or one that starts fixed."""

    def __init__(self, at: datetime | None = None) -> None:
        """Start the clock.

        Args:
            at: the time that it shows until somebody waits; None: it follows the machine's clock.

        Raises:
            BadTime: the time is naive.
        """
        self._fixed_ms = None if at is None else to_ms(at)
        self._machine = SystemClock()
        self._ahead_ms = 0.0
        self._lock = Lock()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        base_ms = self._machine.now_ms() if self._fixed_ms is None else self._fixed_ms
        return base_ms + int(self._ahead_ms)

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return to_datetime(self.now_ms())

    def sleep_ms(self, duration_ms: float) -> None:
        """Move the clock; return at once.

        Raises:
            BadTime: the duration is negative.
        """
        if duration_ms < 0:
            raise BadTime(f"time cannot move back: give at least 0 ms, not {duration_ms!r}")
        with self._lock:
            self._ahead_ms += duration_ms
