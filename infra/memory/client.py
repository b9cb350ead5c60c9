"""The product's DynamoDB client over tables in memory: the same operations, and no request leaves.

`TableClient` says what an operation does. What happens around a request (a lock, a fault, a wait)
is decided by the classes that derive from it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from countledger.infra.memory.faults import Missing, RefusingClient
from countledger.infra.memory.tables import (
    REGION,
    Conflict,
    holds,
    index_page,
    index_units,
    item_bytes,
    read_units,
    write_units,
)
from countledger.ledger.departure import leave
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import (
    ConditionFailed,
    LeaseEnded,
    RequestRejected,
    Throttled,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.limits import BATCH_GET_KEYS, BATCH_WRITE_ITEMS, TRANSACTION_ACTIONS
from countledger.ledger.operations import AllOf, Compare, Page, Query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

    from countledger.infra.memory.tables import Key as TableKey
    from countledger.infra.memory.tables import MemoryTables, StoredTable, Table, Transactions
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.entry import PutBatch
    from countledger.ledger.operations import Delete, Put, Scan, Update, Write


_T = TypeVar("_T")


def sdk_call(
    attempts: int,
    send: Callable[[], _T],
    wait: Callable[[int], object] = lambda _: None,
    before: Callable[[], object] = lambda: None,
) -> _T:
    """One call of the SDK: it sends again after a throttle or no answer, not after a conflict.

    `wait` gets the number of attempts that failed; what `before` raises, the call raises. The error
    is that of the last attempt, and notes an earlier one without a clear answer.
    """
    unclear = False
    for attempt in range(1, attempts + 1):
        before()
        try:
            return send()
        except (ConditionFailed, TransactionCancelled) as refused:
            refused.maybe_applied = unclear
            raise
        except (Throttled, Unclear) as error:
            unclear = unclear or isinstance(error, Unclear)
            if attempt == attempts or isinstance(error, Conflict):
                if unclear and not isinstance(error, Unclear):
                    raise Unclear(f"{error}; an earlier attempt got no clear answer") from error
                raise
            wait(attempt)
        except LeaseEnded as error:
            if unclear:
                raise Unclear(f"{error}; an earlier attempt got no clear answer") from error
            raise
    raise AssertionError("unreachable: the last attempt answers or raises")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableClient(DynamoClient):
    """A client whose operations are carried out on tables in memory.

    Values are kept as they are: see `StoredTable` for the form in which DynamoDB stores them.
    """

    client: DynamoDBClient = field(default_factory=lambda: cast("DynamoDBClient", None))

    # ---- what derived classes decide ----

    @abstractmethod
    def table(self, name: str) -> Table:
        """A table."""

    @abstractmethod
    def transactions(self) -> Transactions:
        """The transactions of its tables."""

    @abstractmethod
    def read(self, what: str, request: Callable[[], _T]) -> _T:
        """Carry out a request that changes nothing."""

    @abstractmethod
    def written(self, what: str, request: Callable[[], _T]) -> _T:
        """Carry out a request that writes."""

    @property
    @abstractmethod
    def page_items(self) -> int:
        """The most items of one page."""

    def seen(self, table: Table, key: TableKey, *, consistent: bool) -> Item | None:  # noqa: ARG002 - of others
        item = table.items.get(key)
        return None if item is None else dict(item)

    def between_items(self) -> None:
        """Called between two items of a page: a page is not a snapshot."""

    # ---- operations ----

    def get(self, table: str, key: Key, *, consistent: bool = False) -> Item | None:
        copy = self.table(table)
        return self.read(
            "GetItem", lambda: self.seen(copy, copy.key_of(key), consistent=consistent)
        )

    def get_many(self, table: str, keys: Sequence[Key], *, consistent: bool = False) -> list[Item]:
        """Those that exist, each as of its own moment."""
        copy = self.table(table)
        wanted = [copy.key_of(key) for key in keys]
        for start in range(0, len(keys), BATCH_GET_KEYS):
            check_batch(wanted[start : start + BATCH_GET_KEYS], BATCH_GET_KEYS)

        def request() -> list[Item]:
            found = (self.seen(copy, key, consistent=consistent) for key in wanted)
            return [item for item in found if item is not None]

        return self.read("BatchGetItem", request) if keys else []

    def page(self, read: Query | Scan) -> Page:
        """One page; each item is as of its own moment."""
        return self.read(type(read).__name__, lambda: self.page_of(self.table(read.table), read))

    def page_of(self, table: Table, read: Query | Scan) -> Page:
        if not isinstance(read, Query):
            return self._scan(table, read)
        if read.index is not None:
            return index_page(table, read, self.page_items)
        return self._query(table, read)

    def put(self, write: Put) -> None:
        self.write_one("PutItem", write)

    def update(self, write: Update) -> Item | None:
        after = self.write_one("UpdateItem", write)
        return dict(after) if after is not None and write.returning == "ALL_NEW" else None

    def delete(self, write: Delete) -> None:
        self.write_one("DeleteItem", write)

    def write_one(self, what: str, write: Put | Update | Delete) -> Item | None:
        """The item after the write."""
        copy = self.table(write.table)
        return self.written(what, lambda: copy.write(write))

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        self.check_transaction(writes)
        request = self.transactions().begin
        return self.written("TransactWriteItems", lambda: request(writes, token)[0])

    def check_transaction(self, writes: Sequence[Write]) -> None:
        """Refuse a transaction of no items, of too many, or of one item twice."""
        places = [(write.table, self.table(write.table).written_key(write)) for write in writes]
        check_batch(places, TRANSACTION_ACTIONS)

    def transact_get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        copy = self.table(table)
        wanted = [copy.key_of(key) for key in keys]
        check_batch(wanted, TRANSACTION_ACTIONS)
        request = self.transactions().get
        return self.read("TransactGetItems", lambda: request(table, wanted))

    def put_entries(self, batch: PutBatch) -> list[Item]:
        return self.put_batch(batch.table, batch.items)

    def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
        """The items that were not taken."""
        copy = self.table(table)
        check_batch([copy.key_of(item) for item in items], BATCH_WRITE_ITEMS)
        return self.written("BatchWriteItem", lambda: self.store_batch(copy, items))

    def store_batch(self, table: Table, items: Sequence[Item]) -> list[Item]:
        """The items that were not taken."""
        for item in items:
            values = {name: value for name, value in item.items() if value is not None}
            table.store(table.key_of(item), values)
        return []

    def describe(self, table: str) -> TableDescriptionTypeDef:
        """What the service says of a table: it is active, in this region only."""
        there = self.table(table)
        names = [name for name in (there.partition, there.sort) if name]
        found: Any = {
            "TableName": table,
            "TableStatus": "ACTIVE",
            "KeySchema": [{"AttributeName": name} for name in names],
        }
        return self.read("DescribeTable", lambda: cast("TableDescriptionTypeDef", found))

    def _query(self, table: Table, read: Query) -> Page:
        partition, range_ = _partition_of(table, read)
        size = read.page_size or self.page_items
        after = read.after[table.sort] if read.after else None
        items: list[Item] = []
        while (key := table.next_sort_key(partition, after, forward=read.forward)) is not None:
            after = key
            if range_ is not None and not holds(range_, {table.sort: key}):
                continue
            self.between_items()
            # It may have been deleted meanwhile.
            if item := table.items.get((partition, key)):
                items.append(dict(item))
            if len(items) == size:
                return Page(items, table.key_in((partition, key)), len(items))
        return Page(items, None, len(items))

    def _scan(self, table: Table, read: Scan) -> Page:
        scanned, last = self.scanned(table, read)
        found = [item for item in scanned if read.where is None or holds(read.where, item)]
        shown = [{n: item[n] for n in read.only or item if n in item} for item in found]
        return Page(shown, None if last is None else table.key_in(last), len(scanned))

    def scanned(self, table: Table, read: Scan) -> tuple[list[Item], TableKey | None]:
        """The items that a page of a scan reads, before its filter; the last key if more follow."""
        size = read.page_size or self.page_items
        after = table.key_of(read.after) if read.after else None
        mine = (
            key
            for key in table.keys_after(after)
            if read.segments == 1 or sum(key[0].encode()) % read.segments == read.segment
        )
        left = [*islice(mine, size + 1)]
        found = [table.items[key] for key in left[:size]]
        return found, left[size - 1] if len(left) > size else None


def check_batch(keys: Sequence[object], most: int) -> None:
    """Refuse a request of no items, of too many, or of one item twice."""
    if not 0 < len(keys) <= most:
        raise RequestRejected(f"{len(keys)} items in one request: give 1 to {most}")
    if len(set(keys)) < len(keys):
        raise RequestRejected(f"one request names an item twice: {keys!r}")


def _partition_of(table: Table, read: Query) -> tuple[Any, Any]:
    """The partition of a query, and the condition on the sort keys in it."""
    condition, range_ = read.condition, None
    if isinstance(condition, AllOf):
        condition, range_ = condition.conditions
    match condition:
        case Compare(name, "=", partition) if name == table.partition:
            return partition, range_
    raise RequestRejected(f"a query needs a partition key, and a range at most: {read!r}")


# The DynamoDB client of a stack in memory: faults, units, and a delivery after each write.


# The longest first wait between two attempts of the SDK.
_BACK_OFF_MS: Final = 100
# DynamoDB ends a page after a megabyte.
_PAGE_ITEMS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDynamo(TableClient):
    """A client to the tables of a stack.

    Attributes:
        after_write: called after each write outside of the lock; None: this client is one of the
            stack's own functions, which meet no planned faults.
    """

    memory: MemoryTables
    attempts: int = 1
    after_write: Callable[[], object] | None = None

    def table(self, name: str) -> StoredTable:
        return self.memory.table(name)

    def transactions(self) -> Transactions:
        return self.memory.transactions

    @property
    def page_items(self) -> int:
        return _PAGE_ITEMS

    def read(self, what: str, request: Callable[[], _T]) -> _T:  # noqa: ARG002 - of others
        return self._sent(request, writes=False)

    def written(self, what: str, request: Callable[[], _T]) -> _T:  # noqa: ARG002 - of others
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
        found = TableClient.get(self, table, key, consistent=consistent)
        self._count_reads([item_bytes(found)], consistent=consistent)
        return found

    def get_many(self, table: str, keys: Sequence[Key], *, consistent: bool = False) -> list[Item]:
        found = TableClient.get_many(self, table, keys, consistent=consistent)
        absent = [0] * (len(keys) - len(found))
        self._count_reads([*map(item_bytes, found), *absent], consistent=consistent)
        return found

    def transact_get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        found = TableClient.transact_get(self, table, keys)
        self._count_reads([*map(item_bytes, found)] * 2, consistent=True)
        return found

    def page(self, read: Query | Scan) -> Page:
        page = TableClient.page(self, read)
        if isinstance(read, Query):
            size = sum(map(item_bytes, page.items))
            self._count_reads([size], consistent=read.consistent)
        return page

    def scanned(self, table: Table, read: Scan) -> tuple[list[Item], TableKey | None]:
        found, last = TableClient.scanned(self, table, read)
        self._count_reads([sum(map(item_bytes, found))], consistent=False)
        return found, last

    def write_one(self, what: str, write: Put | Update | Delete) -> Item | None:
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
