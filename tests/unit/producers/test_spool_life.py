"""Any life of a producer with a spool: whatever `add` took is in the ledger once, in the end."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.ledger.errors import NoCredentials, Throttled, Unclear
from countledger.producers.buffer.settings import NotRecorded
from tests.unit.ledger.memory import Fault, MemoryClient
from tests.unit.producers.buffers import producer_on
from tests.unit.producers.senders import TABLE
from tests.unit.producers.test_spool import crash, spooling

if TYPE_CHECKING:
    from countledger.producers.buffer.producer import BufferedProducer

FAULTS = {
    "lost": Fault(Unclear("lost"), applied=True),
    "failed": Fault(Unclear("failed")),
    "throttled": Fault(Throttled("slow down")),
    "refused": Fault(NoCredentials("expired")),
}
STEPS = ["add", "add", "add", "add keyed", "flush", "crash", "close", *FAULTS]


def kill(producer: BufferedProducer) -> None:
    """Let it die as soon as no request of it is on its way."""
    buffer = producer._here()
    with buffer.lock:
        buffer.outcomes.abandon()
        buffer._headroom.wait_for(lambda: not buffer.queue.pending_under_way(), None)
    crash(producer)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=3, max_size=30),
    coalescing=st.lists(st.booleans(), min_size=31, max_size=31),
)
def test_p1_whatever_happens_each_event_counts_once(
    steps: list[str], coalescing: list[bool]
) -> None:
    dynamo = MemoryClient()
    with tempfile.TemporaryDirectory() as folder:
        path, lives, added = Path(folder), iter(coalescing), 0
        producer = producer_on(dynamo, spooling(path, coalesce=next(lives), attempts=1))
        for step in steps:
            if step in FAULTS:
                dynamo.faults.append(FAULTS[step])
            elif step == "flush":
                with suppress(NotRecorded):
                    producer.flush()
            elif step.startswith("add"):
                for number in range(3):
                    key = f"{added}" if "keyed" in step and number == 0 else None
                    producer.add("a:b", 1, key=key)
                    added += 1
            else:
                with suppress(NotRecorded):
                    kill(producer) if step == "crash" else producer.close()
                producer = producer_on(dynamo, spooling(path, coalesce=next(lives), attempts=1))
        kill(producer)
        dynamo.faults.clear()
        producer_on(dynamo, spooling(path)).close()

        items = [item for item in dynamo.items(TABLE) if item["entry"].startswith("e#")]
        assert sum(item["delta"] for item in items) == added
        assert sum(item.get("events", 1) for item in items) == added
