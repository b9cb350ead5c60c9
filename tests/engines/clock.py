"""A clock in the hand of a test."""

from dataclasses import dataclass, field

from countledger.ledger.clock import SystemClock
from tests.unit.ledger.clocks import ManualClock


@dataclass
class HandClock(ManualClock):
    """It begins with the machine's time, and stands still until somebody sleeps or moves it."""

    at_ms: int = field(default_factory=SystemClock().now_ms)

    def move_ms(self, duration_ms: int) -> None:
        """Let time pass."""
        self.at_ms += duration_ms
