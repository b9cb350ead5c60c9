"""What happens to calls and deliveries: kinds of faults, each at a rate that the seed draws anew.

Every fault that strikes is noted with what it struck: so a run of many seeds can tell which faults
no operation has met yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final


class Fault(StrEnum):
    """What can happen."""

    BEFORE = "no answer, not applied"
    AFTER = "no answer, applied"
    LATE = "no answer, applied later"
    THROTTLE = "throttled"
    FROZEN = "stands still before it is sent"
    HELD = "held on its way"
    CRASH_BEFORE = "crash before a call"
    CRASH_AFTER = "crash after a call"
    CRASH_LATE = "crash, the call lands later"
    UNPROCESSED = "left unprocessed"
    CONFLICT = "conflict of transactions"
    DISK = "the disk is full"
    # Of deliveries, by mapping and queue.
    FAILED = "invocation fails unheard"
    DUPLICATE = "delivered twice"
    ZOMBIE = "goes on after it was given up"


CALLS: Final = (
    Fault.BEFORE,
    Fault.AFTER,
    Fault.LATE,
    Fault.THROTTLE,
    Fault.FROZEN,
    Fault.HELD,
    Fault.CRASH_BEFORE,
    Fault.CRASH_AFTER,
    Fault.CRASH_LATE,
)
# Reading changes nothing, so nothing of it can be applied without an answer.
READS: Final = (Fault.BEFORE, Fault.THROTTLE, Fault.FROZEN, Fault.CRASH_BEFORE)
DELIVERIES: Final = (Fault.FAILED, Fault.DUPLICATE, Fault.ZOMBIE)

# From which each seed draws one: none at all as often as not, so that the others come further.
_RATES: Final[dict[Fault, tuple[float, ...]]] = {
    Fault.BEFORE: (0, 0, 0.01, 0.05, 0.3),
    Fault.AFTER: (0, 0, 0.01, 0.05, 0.3),
    Fault.LATE: (0, 0, 0.02, 0.1),
    Fault.THROTTLE: (0, 0, 0.02, 0.1),
    Fault.FROZEN: (0, 0, 0.003, 0.02),
    Fault.HELD: (0, 0, 0.01, 0.05),
    Fault.CRASH_BEFORE: (0, 0, 0.003, 0.02),
    Fault.CRASH_AFTER: (0, 0, 0.003, 0.02),
    Fault.CRASH_LATE: (0, 0, 0.003, 0.02),
    Fault.UNPROCESSED: (0, 0.1, 0.5),
    Fault.CONFLICT: (0, 0, 0.05, 0.2),
    Fault.DISK: (0, 0, 0.05),
    Fault.FAILED: (0, 0.05, 0.3),
    Fault.DUPLICATE: (0, 0.1, 0.5),
    Fault.ZOMBIE: (0, 0, 0.05, 0.2),
}
_STORM_RATE: Final = 0.7


@dataclass
class Faults:
    """The faults of one simulation.

    Attributes:
        random: decides which strike.
        rates: of each, for one call or delivery.
        calm: none strikes any more.
        storm: throttles rain.
        struck: how often each operation met each fault.
        met: how often each operation made a call at all.
    """

    random: Random
    rates: dict[Fault, float]
    calm: bool = False
    storm: bool = False
    struck: Counter[tuple[str, Fault]] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)

    @classmethod
    def drawn(
        cls, random: Random, given: Mapping[str, float], without: Iterable[str] = ()
    ) -> Faults:
        """Rates of a seed; what is given or left out is drawn all the same, so the rest stays."""
        drawn = {fault: random.choice(rates) for fault, rates in _RATES.items()}
        left = {f: rate for f, rate in drawn.items() if f.name not in set(without)}
        return cls(random, {f: given.get(f.name, rate) for f, rate in left.items()})

    def strikes(self, fault: Fault, operation: str) -> bool:
        """Whether this one strikes now."""
        rate = self.rates.get(fault, 0)
        if self.calm or not rate or self.random.random() >= rate:
            return False
        self.struck[operation, fault] += 1
        return True

    def of_call(self, operation: str, *, writes: bool, mortal: bool) -> Fault | None:
        """What strikes a call, if anything does."""
        self.met[operation] += 1
        if self.calm:
            return None
        draw = self.random.random()
        if self.storm and draw < _STORM_RATE:
            self.struck[operation, Fault.THROTTLE] += 1
            return Fault.THROTTLE
        for fault in CALLS if writes else READS:
            draw -= self.rates.get(fault, 0)
            if draw < 0:
                if not mortal and fault in _DEADLY:
                    return None
                self.struck[operation, fault] += 1
                return fault
        return None


_DEADLY: Final = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_LATE)
