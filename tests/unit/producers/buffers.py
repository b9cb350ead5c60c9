"""Buffered producers over tables in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.producers.buffer.buffering import Buffering
from countledger.producers.buffer.delivery import BatchDelivery, EntryMaker
from countledger.producers.buffer.producer import BufferedProducer
from tests.unit.ledger.clocks import ManualClock
from tests.unit.producers.senders import REGION, sender_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.producers.buffer.errors import Failure
    from tests.unit.ledger.memory import MemoryClient

# Longer than any test: what is sent is sent for another reason than its age.
PATIENT_MS = 30_000


def producer_on(
    dynamo: MemoryClient,
    buffering: Buffering | None = None,
    *,
    clock: ManualClock | None = None,
    on_failure: Callable[[Failure], object] | None = None,
    ledger: str = "in memory",
) -> BufferedProducer:
    """A producer at the home region; its waits between attempts are none."""
    buffering = buffering or Buffering(linger_ms=PATIENT_MS)
    clock = clock or ManualClock()

    def make_delivery() -> BatchDelivery:
        return BatchDelivery(sender_on(dynamo, clock), buffering.attempts)

    return BufferedProducer(
        buffering, make_delivery, EntryMaker(REGION, clock), ledger=ledger, on_failure=on_failure
    )
