"""The ingest over tables in memory, and a quarantine that keeps what it is given."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from countledger.ledger.attributes import Item
from countledger.ledger.limits import INGEST_PIECE
from countledger.producers.ingest.ingest import Ingest, IngestOutcome, QuarantineMessage
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient
from tests.unit.producers.kinesis.streams import delivered
from tests.unit.producers.senders import TABLE, process_on


@dataclass(slots=True)
class MemoryQuarantine:
    """Two queues.

    Attributes:
        letters: what the one for the broken and refused has.
        expired: what the one for the expired has.
        faults: what the coming messages meet, one each.
    """

    letters: list[QuarantineMessage] = field(default_factory=list)
    expired: list[QuarantineMessage] = field(default_factory=list)
    faults: list[Exception | None] = field(default_factory=list)

    def put(self, letter: QuarantineMessage, *, expired: bool) -> None:
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            raise fault
        (self.expired if expired else self.letters).append(letter)

    def rejected(self) -> list[dict[str, Any]]:
        """All that was rejected, of both queues."""
        bodies = [json.loads(letter.body) for letter in self.letters + self.expired]
        return [one for body in bodies for one in body["rejected"]]


@dataclass(slots=True)
class World:
    """One ledger, one clock, one quarantine.

    Attributes:
        dynamo: writes the entries.
        reads: reads, and stores how far a long record has come; made if it is not given.
    """

    clock: ManualClock = field(default_factory=ManualClock)
    dynamo: MemoryClient = field(default_factory=MemoryClient)
    quarantine: MemoryQuarantine = field(default_factory=MemoryQuarantine)
    piece: int = INGEST_PIECE
    reads: MemoryClient = field(default_factory=MemoryClient)

    def __post_init__(self) -> None:
        """Both clients have the same tables."""
        self.reads = replace(self.reads, tables=self.dynamo.tables)

    @property
    def ingest(self) -> Ingest:
        process = process_on(self.dynamo, self.clock, reads=self.reads)
        return Ingest(process, self.quarantine, self.piece)

    def apply(self, *data: bytes, arrived_ms: int = NOW_MS) -> IngestOutcome:
        records = [
            delivered(one, sequence=number, arrived_s=arrived_ms / 1_000)
            for number, one in enumerate(data, start=1)
        ]
        return self.ingest.apply(records, stream="arn:stream", shard="shard-1")

    def items(self) -> list[Item]:
        return [item for item in self.dynamo.items(TABLE) if item["entry"][:2] == "e#"]

    def deltas(self) -> list[Any]:
        return [item["delta"] for item in self.items()]


def law_holds(outcome: IngestOutcome) -> bool:
    """Every payload is counted once: in = accepted + duplicates + quarantined."""
    out = sum(outcome.quarantined.values())
    return outcome.payloads == outcome.accepted + outcome.duplicates + out
