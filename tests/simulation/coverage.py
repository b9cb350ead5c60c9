"""Which faults have met which operations: each cell is hit, impossible, or named as missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.accidents import ACCIDENTS
from tests.simulation.faults import CALLS, DELIVERIES, READS, Fault
from tests.simulation.operations import OPERATIONS
from tests.simulation.region_accidents import ACCIDENTS as REGION_ACCIDENTS
from tests.simulation.simulation import Simulation
from tests.simulation.threads import SENDER

FUNCTIONS: Final = (
    "materializer",
    "evaluator",
    "dispatcher",
    "compaction worker",
    SENDER,
    "ingest",
)
# Those that make no call at all: hands that edit what is stored, somebody else's producer, and
# whoever leaves the calls to a sender's thread.
SILENT: Final = (
    "spoil a total",
    "malformed",
    "mend malformed",
    "kinesis junk",
    "buffer add",
    "buffer flush",
    "buffer close",
    "deletion rest",
    "async add",
    "async flush",
    "async close",
)
# Only where a focus leads that no seed draws by itself.
APART: Final = ("copy",)
# Only where something is sent in batches, or by transactions, can a part of it be left or meet.
_BATCHING: Final = (
    "record batch",
    "dispatcher",
    "evaluator",
    "alert resend",
    "alert create",
    "alert now",
    SENDER,
    "kinesis send",
    "kinesis resend",
    "kinesis forge",
    "ingest",
)
_TRANSACTING: Final = (
    "alert create",
    "alert set",
    "alert now",
    "alert delete",
    "strict request_token",
    "strict marker",
    "strict sharded",
    "strict bounds",
    "strict remake",
    "joint transfer",
    "claim take",
    "claim change",
    "quota keyed",
    "quota reserve",
    "quota resolve",
    "quota limit",
    "compact",
    "compaction worker",
    "deletion call",
    "deletion as found",
    "deletion lose",
    "open holds delete",
)


@dataclass
class Coverage:
    """What happened in many simulations.

    Attributes:
        struck: how often each operation met each fault.
        met: how many calls each operation made.
        accidents: how often each accident happened.
        unmoved: how many seeds there were in which no region changed, though one could.
    """

    struck: Counter[tuple[str, Fault]] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    accidents: Counter[str] = field(default_factory=Counter)
    unmoved: int = 0

    def add(self, simulation: Simulation) -> None:
        """One more simulation."""
        self.struck += simulation.world.faults.struck
        self.met += simulation.world.faults.met
        self.accidents += simulation.happened
        could = not simulation.regions.stays
        self.unmoved += could and not any(simulation.happened[name] for name in REGION_ACCIDENTS)

    def merge(self, other: Coverage) -> None:
        """Those of another process."""
        self.struck += other.struck
        self.met += other.met
        self.accidents += other.accidents
        self.unmoved += other.unmoved

    def missing(self) -> list[str]:
        """Every cell that should have been hit, and was not."""
        cells = [f"{name} x {fault}" for name, fault in expected() if not self.struck[name, fault]]
        return cells + [name for name in ACCIDENTS if not self.accidents[name]]


def expected() -> Iterable[tuple[str, Fault]]:
    """Every operation with every fault that can meet it."""
    for operation in OPERATIONS:
        if operation.name not in SILENT:
            yield from ((operation.name, fault) for fault in of_operation(operation.name))
    for function in FUNCTIONS:
        yield from ((function, fault) for fault in of_operation(function))


def of_operation(name: str) -> list[Fault]:
    """The faults that can meet an operation."""
    if name in {one.name for one in OPERATIONS if one.reads}:
        return list(READS)
    faults = list(CALLS)
    if name in _BATCHING:
        faults.append(Fault.UNPROCESSED)
    if name in _TRANSACTING:
        faults.append(Fault.CONFLICT)
    if name in {"materializer", "evaluator", "ingest"}:
        faults += DELIVERIES
    if name == SENDER:
        faults.append(Fault.DISK)
    if name == "dispatcher":
        faults.append(Fault.DUPLICATE)
    if name == "compaction worker":
        faults += [Fault.FAILED, Fault.DUPLICATE]
    return faults
