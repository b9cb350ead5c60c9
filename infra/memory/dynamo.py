"""The DynamoDB client of a stack in memory: faults, units, and a delivery after each write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from countledger.infra.memory.client import TableClient, sdk_call
from countledger.infra.memory.faults import Missing, RefusingClient
from countledger.infra.memory.tables import REGION, index_units, item_bytes, read_units, write_units
from countledger.ledger.departure import leave
from countledger.ledger.errors import (
    ConditionFailed,
    TransactionCancelled,
)
from countledger.ledger.operations import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.infra.memory.tables import Key as TableKey
    from countledger.infra.memory.tables import MemoryTables, StoredTable, Table, Transactions
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.operations import Delete, Page, Put, Scan, Update, Write

_T = TypeVar("_T")
# The longest first wait between two attempts of the SDK.
_BACK_OFF_MS: Final = 100
# DynamoDB ends a page after a megabyte.
_PAGE_ITEMS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDynamo(TableClient):
    """A client to the tables of a stack.

    Attributes:
        memory: the tables.
        attempts: how often the SDK of the client sends a request.
        after_write: called after each write outside of the lock; None: this client is one of the
            stack's own functions, which meet no planned faults.
    """

    memory: MemoryTables
    attempts: int = 1
    after_write: Callable[[], object] | None = None

    def table(self, name: str) -> StoredTable:
        """A table of the stack."""
        return self.memory.table(name)

    def transactions(self) -> Transactions:
        """Those of the stack."""
        return self.memory.transactions

    @property
    def page_items(self) -> int:
        """The most items of one page."""
        return _PAGE_ITEMS

    def read(self, what: str, request: Callable[[], _T]) -> _T:  # noqa: ARG002 - of others
        """Carry out a request that changes nothing."""
        return self._sent(request, writes=False)

    def written(self, what: str, request: Callable[[], _T]) -> _T:  # noqa: ARG002 - of others
        """Carry out a request that writes, then deliver."""
        try:
            return self._sent(request, writes=True)
        finally:
            if self.after_write is not None:
                self.after_write()

    def _sent(self, request: Callable[[], _T], *, writes: bool) -> _T:
        """The SDK's own attempts: after a throttle or no answer, not after a conflict."""

        def announce() -> None:
            if self.after_write is not None:
                self.memory.faults.announce()

        def send() -> _T:
            leave()
            with self.memory.lock:
                if self.after_write is None:
                    return request()
                return self.memory.faults.meet(request, writes=writes)

        def wait(attempt: int) -> None:
            self.clock.sleep_ms(self.random.random() * _BACK_OFF_MS * 2**attempt)

        return sdk_call(self.attempts, send, wait, announce)

    # ---- units ----

    def get(self, table: str, key: Key, *, consistent: bool = False) -> Item | None:
        """One item."""
        found = TableClient.get(self, table, key, consistent=consistent)
        self._count_reads([item_bytes(found)], consistent=consistent)
        return found

    def get_many(self, table: str, keys: Sequence[Key], *, consistent: bool = False) -> list[Item]:
        """Those that exist."""
        found = TableClient.get_many(self, table, keys, consistent=consistent)
        absent = [0] * (len(keys) - len(found))
        self._count_reads([*map(item_bytes, found), *absent], consistent=consistent)
        return found

    def transact_get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        """Items as of one moment."""
        found = TableClient.transact_get(self, table, keys)
        self._count_reads([*map(item_bytes, found)] * 2, consistent=True)
        return found

    def page(self, read: Query | Scan) -> Page:
        """One page."""
        page = TableClient.page(self, read)
        if isinstance(read, Query):
            size = sum(map(item_bytes, page.items))
            self._count_reads([size], consistent=read.consistent)
        return page

    def scanned(self, table: Table, read: Scan) -> tuple[list[Item], TableKey | None]:
        """The items that a page of a scan reads, before its filter."""
        found, last = TableClient.scanned(self, table, read)
        self._count_reads([sum(map(item_bytes, found))], consistent=False)
        return found, last

    def write_one(self, what: str, write: Put | Update | Delete) -> Item | None:
        """Carry out a write of one item."""
        table = self.table(write.table)

        def request() -> Item | None:
            before = table.items.get(table.written_key(write))
            try:
                after = table.write(write)
            except ConditionFailed:
                self.meter.refused()
                raise
            self._count_writes(table, before, after)
            return after

        return self.written(what, request)

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """All or nothing."""
        self.check_transaction(writes)
        tables = [self.table(write.table) for write in writes]
        places = [(table, table.written_key(w)) for table, w in zip(tables, writes, strict=True)]

        def request() -> bool:
            before = [table.items.get(key) for table, key in places]
            try:
                fresh, _ = self.transactions().begin(writes, token)
            except TransactionCancelled:
                self.meter.refused(2.0 * len(writes))
                raise
            for (table, key), item in zip(places, before, strict=True):
                if fresh:
                    self._count_writes(table, item, table.items.get(key), factor=2)
                else:
                    self._count_reads([item_bytes(item)] * 2, consistent=True)
            return fresh

        return self.written("TransactWriteItems", request)

    def store_batch(self, table: Table, items: Sequence[Item]) -> list[Item]:
        """Store items in the form in which the service stores them."""
        for item in items:
            key = table.key_of(item)
            before = table.items.get(key)
            after = self.table(table.name).stored(
                {name: value for name, value in item.items() if value is not None}
            )
            table.store(key, after)
            self._count_writes(table, before, after)
        return []

    def _count_reads(self, sizes: Sequence[int], *, consistent: bool) -> None:
        units = sum(read_units(size, consistent=consistent) for size in sizes)
        self.meter.read([{"CapacityUnits": units}])

    def _count_writes(
        self, table: Table, before: Item | None, after: Item | None, factor: int = 1
    ) -> None:
        units = factor * write_units(item_bytes(before), item_bytes(after))
        self.meter.written([{"CapacityUnits": units + index_units(table, before, after)}])


def client_of(
    memory: MemoryTables,
    attempts: int,
    after_write: Callable[[], object] | None,
    **of: Any,  # noqa: ANN401 - of `DynamoClient`
) -> MemoryDynamo:
    """A client whose waits pass in the time of the stack."""
    nobody: Any = RefusingClient(Missing.CLIENT, REGION)
    return MemoryDynamo(
        client=nobody,
        memory=memory,
        attempts=attempts,
        after_write=after_write,
        clock=memory.clock,
        **of,
    )
