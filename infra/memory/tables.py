"""All that requests to a stack in memory work on: tables, streams, transactions, time, one lock."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Final

from countledger.infra.memory.clock import MemoryClock
from countledger.infra.memory.faults import FaultPlan
from countledger.infra.memory.stored_table import StoredTable
from countledger.infra.memory.stream import Stream
from countledger.infra.memory.transactions import Transactions
from countledger.ledger.errors import BadSetting, TableNotFound
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from countledger.infra.memory.table import Key

REGION: Final = "us-east-1"
ACCOUNT: Final = "000000000000"
LEDGER: Final = "memory-ledger"
COUNTERS: Final = "memory-counters"
_SHARDS: Final = 1


@dataclass(eq=False)
class MemoryTables:
    """The tables of one stack, and those that an app adds.

    Attributes:
        clock: the time of the stack.
        faults: what the next requests of the app meet.
        lock: held by each request; requests are carried out one after the other.
        tables: by name.
        ledger_stream: of the table `ledger`.
        counters_stream: of the table `counters`.
    """

    clock: MemoryClock = field(default_factory=MemoryClock)
    faults: FaultPlan = field(default_factory=FaultPlan)
    lock: RLock = field(default_factory=RLock)
    tables: dict[str, StoredTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Two empty tables, each with a stream."""
        self.add(LEDGER, "counter", "entry")
        self.add(COUNTERS, "counter", "part")
        self.ledger_stream = self._stream(LEDGER)
        self.counters_stream = self._stream(COUNTERS)
        self.transactions = Transactions(self.tables, lambda: float(self.clock.now_ms()))

    def add(self, name: str, partition: str, sort: str | None = None) -> StoredTable:
        """Create an empty table.

        Raises:
            BadSetting: it exists already.
        """
        with self.lock:
            if name in self.tables:
                raise BadSetting(f"table {name!r} exists already in this stack")
            self.tables[name] = StoredTable(name, sort or "", partition, REGION)
            return self.tables[name]

    def table(self, name: str) -> StoredTable:
        """A table.

        Raises:
            TableNotFound: it does not exist.
        """
        if name not in self.tables:
            raise TableNotFound(
                f"table {name!r} does not exist in this stack in memory: create an app's own table "
                "by `MemoryStack.create_table`"
            )
        return self.tables[name]

    def expire(self) -> int:
        """Delete the items of `counters` whose time to live is over; how many."""
        with self.lock:
            table = self.tables[COUNTERS]
            now_s = self.clock.now_ms() / SECOND_MS
            over: list[Key] = [
                key for key, item in table.items.items() if item.get("expires_at", now_s) < now_s
            ]
            for key in over:
                table.store(key, None)
            return len(over)

    def _stream(self, table: str) -> Stream:
        name = f"table/{table}/stream/2026-01-01T00:00:00.000"
        arn = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:{name}"
        stream = Stream(arn, lambda: float(self.clock.now_ms()))
        stream.open(_SHARDS)
        self.tables[table].watchers.append(stream.note)
        return stream
