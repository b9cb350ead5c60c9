"""A clock moved by hand, and moments as texts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

NOW_MS = 1_900_000_000_000


def ms(text: str) -> int:
    """The time in milliseconds; without an offset, of UTC."""
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1_000)


@dataclass(slots=True)
class ManualClock:
    """Only sleeps move the time.

    Attributes:
        at_ms: the time.
        slept_ms: every wait, in order.
        on_sleep: what the world does in the meantime; given the new time.
    """

    at_ms: int = NOW_MS
    slept_ms: list[float] = field(default_factory=list)
    on_sleep: Callable[[int], None] | None = None

    def now_ms(self) -> int:
        return self.at_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)
        self.at_ms += round(duration_ms)
        if self.on_sleep is not None:
            self.on_sleep(self.at_ms)
