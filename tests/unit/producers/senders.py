"""A recorder over tables in memory."""

from __future__ import annotations

from random import Random

from countledger.ledger.namespace import Namespaces
from countledger.producers.recorder import Recorder
from countledger.producers.sender import Sender
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryDoor

TABLE = "ledger"
REGION = "eu-west-1"


def sender_on(door: MemoryDoor, clock: ManualClock) -> Sender:
    """A sender whose namespaces lie behind a door of their own, so that faults hit entries only."""
    namespaces = Namespaces(MemoryDoor(tables=door.tables), TABLE, REGION, REGION)
    return Sender(door, TABLE, namespaces, clock, Random(7))  # noqa: S311 - jitter


def recorder_on(door: MemoryDoor, clock: ManualClock | None = None) -> Recorder:
    """A recorder at the home region."""
    clock = clock or ManualClock()
    return Recorder(sender_on(door, clock), REGION, clock)


def entries_in(door: MemoryDoor) -> list[object]:
    """The deltas of the entries in the table."""
    return [item["delta"] for item in door.items(TABLE) if item["entry"].startswith("e#")]
