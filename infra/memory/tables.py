"""All that requests to a stack in memory work on: tables, streams, transactions, time, one lock.

Waiting moves the clock, and takes no time. A transaction is all writes or none, at one moment; its
token is remembered for ten minutes after its first request. Whether a cancelled transaction names
every failed condition, or the first one only, is documented nowhere; here it names all by default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import TYPE_CHECKING, Final

from countledger.infra.memory.faults import FaultPlan
from countledger.infra.memory.stream import Stream
from countledger.infra.memory.table import Conflict, StoredTable
from countledger.ledger.clock import SystemClock, to_datetime, to_ms
from countledger.ledger.errors import (
    BadSetting,
    BadTime,
    ConditionFailed,
    Reason,
    TableNotFound,
    TokenMismatch,
    TransactionCancelled,
)
from countledger.ledger.limits import SECOND_MS, TOKEN_LIFE_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from countledger.infra.memory.table import Key, Table
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write

REGION: Final = "us-east-1"
ACCOUNT: Final = "000000000000"
LEDGER: Final = "memory-ledger"
COUNTERS: Final = "memory-counters"
_SHARDS: Final = 1


@dataclass
class Transactions:
    """The transactions of one region.

    Attributes:
        tables: by name.
        now_ms: the time.
        names_all: whether a cancelled transaction names every failed condition.
        known: what was written under each token, and when that was completed.
    """

    tables: Mapping[str, Table]
    now_ms: Callable[[], float]
    names_all: bool = True
    known: dict[str, tuple[str, float]] = field(default_factory=dict)

    def begin(self, writes: Sequence[Write], token: str) -> tuple[bool, float]:
        """Carry out a transaction; whether this request did, and how long that takes in ms.

        Raises:
            TransactionCancelled: with a reason for each write.
            TokenMismatch: the token stands for other writes.
        """
        body = repr(writes)
        known, ended_ms = self.known.get(token, ("", 0.0))
        if known and self.now_ms() - ended_ms <= TOKEN_LIFE_MS:
            if known != body:
                raise TokenMismatch("IdempotentParameterMismatch")
            return False, 0
        self._check(writes)
        tables = [self.tables[write.table] for write in writes]
        changes = [
            (table, table.written_key(write), table.after(write))
            for table, write in zip(tables, writes, strict=True)
        ]
        takes_ms = self._apply(changes, token)
        self.known[token] = body, self.now_ms() + takes_ms
        return True, takes_ms

    def get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        """Items as of one moment."""
        items = self.tables[table].items
        return [dict(items[key]) if key in items else None for key in keys]

    def _check(self, writes: Sequence[Write]) -> None:
        reasons: list[Reason] = []
        failed = False
        for write in writes:
            table = self.tables[write.table]
            try:
                if failed and not self.names_all:
                    reasons.append(Reason("None"))
                    continue
                table.check(table.written_key(write), write.condition)
            except Conflict:
                reasons.append(Reason("TransactionConflict"))
            except ConditionFailed as error:
                failed = True
                reasons.append(Reason("ConditionalCheckFailed", error.item))
            else:
                reasons.append(Reason("None"))
        if any(reason.code != "None" for reason in reasons):
            raise TransactionCancelled(tuple(reasons))

    def _apply(self, changes: list[tuple[Table, Key, Item | None]], token: str) -> float:  # noqa: ARG002 - of others
        """Store the items, all at this moment; how long it takes in ms."""
        for table, key, after in changes:
            table.store(key, after)
        return 0


class MemoryClock:
    """A clock that follows the machine's, ahead of it by all waits; or one that starts fixed."""

    def __init__(self, at: datetime | None = None) -> None:
        """Start the clock.

        Args:
            at: the time that it shows until somebody waits; None: it follows the machine's clock.

        Raises:
            BadTime: the time is naive.
        """
        self._fixed_ms = None if at is None else to_ms(at)
        self._machine = SystemClock()
        self._ahead_ms = 0.0
        self._lock = Lock()

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        base_ms = self._machine.now_ms() if self._fixed_ms is None else self._fixed_ms
        return base_ms + int(self._ahead_ms)

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return to_datetime(self.now_ms())

    def sleep_ms(self, duration_ms: float) -> None:
        """Move the clock; return at once.

        Raises:
            BadTime: the duration is negative.
        """
        if duration_ms < 0:
            raise BadTime(f"time cannot move back: give at least 0 ms, not {duration_ms!r}")
        with self._lock:
            self._ahead_ms += duration_ms


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
    faults: FaultPlan = field(init=False)
    lock: RLock = field(default_factory=RLock)
    tables: dict[str, StoredTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Two empty tables, each with a stream."""
        self.faults = FaultPlan(self.clock.now_ms)
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
