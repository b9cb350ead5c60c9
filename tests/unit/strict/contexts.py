"""What strict counters, claims and sequences work with, over tables in memory."""

from itertools import count
from random import Random

from countledger.producers.strict.change import MethodContext
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient

_PROCESSES = count()


def context_on(dynamo: MemoryClient, clock: ManualClock | None = None) -> MethodContext:
    """A process of its own: its ids are those of no other one."""
    process, numbers = next(_PROCESSES), count()
    random = Random(1)  # noqa: S311 - jitter
    return MethodContext(
        dynamo,
        dynamo,
        "counters",
        clock or ManualClock(),
        random,
        lambda _ms: f"id-{process}-{next(numbers)}",
    )
