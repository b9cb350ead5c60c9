"""A clock in the hand of a test."""

from dataclasses import dataclass, field

from countledger.ledger.clock import SystemClock


@dataclass
class HandClock:
    """It stands still until somebody sleeps or moves it.

    Attributes:
        at_ms: the time that it shows; at first the machine's.
        slept_ms: every sleep, in order.
    """

    at_ms: int = field(default_factory=SystemClock().now_ms)
    slept_ms: list[float] = field(default_factory=list)

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self.at_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Nobody waits: the clock moves."""
        self.slept_ms.append(duration_ms)
        self.at_ms += round(duration_ms)

    def move_ms(self, duration_ms: int) -> None:
        """Let time pass."""
        self.at_ms += duration_ms
