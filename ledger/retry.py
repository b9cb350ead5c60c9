"""Retries as data: a policy says how often and how long, the caller's loop says what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from countledger.ledger.clock import Clock


@dataclass(frozen=True, slots=True)
class Backoff:
    """Capped exponential back-off with full jitter.

    Attributes:
        attempts: how many times in all.
        base_ms: the longest first wait.
        cap_ms: the longest wait of all.
    """

    attempts: int = 8
    base_ms: float = 50
    cap_ms: float = 5_000

    def waits_ms(self, random: Random) -> Iterator[float]:
        """The wait before each attempt but the first, drawn evenly from zero to its ceiling."""
        for attempt in range(self.attempts - 1):
            yield random.uniform(0, min(self.cap_ms, self.base_ms * 2**attempt))

    def tries(self, clock: Clock, random: Random) -> Iterator[None]:
        """Once for each attempt, when it is its turn: the first at once, the others after waits."""
        yield
        for wait_ms in self.waits_ms(random):
            clock.sleep_ms(wait_ms)
            yield
