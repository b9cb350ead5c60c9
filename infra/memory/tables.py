"""All that requests to a stack in memory work on: tables, streams, transactions, time, one lock.

Waiting moves the clock, and takes no time. A transaction is all writes or none, at one moment; its
token is remembered for ten minutes after its first request. Whether a cancelled transaction names
every failed condition, or the first one only, is documented nowhere; here it names all by default.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from operator import eq, ge, gt, le, lt, ne
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from countledger.infra.memory.faults import FaultPlan
from countledger.infra.memory.stream import Stream
from countledger.ledger import amount
from countledger.ledger.attributes import decode, encode
from countledger.ledger.clock import SystemClock, to_datetime, to_ms
from countledger.ledger.errors import (
    BadSetting,
    BadTime,
    ConditionFailed,
    Reason,
    RequestRejected,
    SumOverflow,
    TableNotFound,
    Throttled,
    TokenMismatch,
    TransactionCancelled,
)
from countledger.ledger.limits import (
    EXPRESSION_MAX_BYTES,
    EXPRESSION_OPERATORS_MAX,
    ITEM_MAX_BYTES,
    NUMBER_MAX_DIGITS,
    SECOND_MS,
    TOKEN_LIFE_MS,
)
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    BeginsWith,
    Between,
    Check,
    Compare,
    Condition,
    Delete,
    Lacks,
    Page,
    Put,
    SizeAtMost,
    Update,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Clause, Query, Write


# What DynamoDB makes of items: conditions, updates, indexes, sizes and units. Pure.
#
# Sizes and units follow the rules of DynamoDB's guide, which gives the size of a number as
# approximate: one byte for two significant digits, and one.


_RELATIONS: Final[dict[str, Any]] = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_LIMIT: Final = 10**NUMBER_MAX_DIGITS
_SORT_KEYS: Final = ("entry", "part")
_WRITE_BYTES: Final = 1_024
_READ_BYTES: Final = 4 * 1_024
# What a list or map adds, and each of its elements.
_NESTED: Final = 3


def key_of(item: Mapping[str, Any]) -> tuple[str, str]:
    sort = next(name for name in _SORT_KEYS if name in item)
    return item["counter"], item[sort]


def holds(condition: Condition, item: Item) -> bool:
    """Whether a condition is true of an item; an item that does not exist has no attributes."""
    if isinstance(condition, AllOf):
        return all(holds(one, item) for one in condition.conditions)
    if isinstance(condition, AnyOf):
        return any(holds(one, item) for one in condition.conditions)
    return _is_true_of(condition, item)


def _is_true_of(condition: Condition, item: Item) -> bool:  # noqa: PLR0911 - one for each kind
    if isinstance(condition, Absent):
        return condition.name not in item
    if isinstance(condition, Compare):
        if condition.operator == "<>":
            return bool(item.get(condition.name) != condition.value)
        relation = _RELATIONS[condition.operator]
        return condition.name in item and relation(item[condition.name], condition.value)
    if isinstance(condition, Lacks):
        return condition.value not in cast("set[str]", item.get(condition.name, set()))
    if isinstance(condition, SizeAtMost):
        return condition.name in item and len(item[condition.name]) <= condition.size
    if isinstance(condition, BeginsWith):
        return str(item.get(condition.name, "")).startswith(condition.prefix)
    if isinstance(condition, Between):
        value: Any = item.get(condition.name)
        low: Any = condition.low
        high: Any = condition.high
        return value is not None and low <= value <= high
    raise TypeError(f"no rule evaluates {condition!r}")


def changed(item: Item, clauses: Iterable[Clause]) -> Item:
    """The item after an update."""
    after = dict(item)
    for clause in clauses:
        if isinstance(clause, Assign):
            if isinstance(clause.value, int | Decimal) and not _is_storable(clause.value):
                raise SumOverflow("the number needs more than 38 digits")
            after[clause.name] = clause.value
        elif isinstance(clause, AssignOnce):
            after.setdefault(clause.name, clause.value)
        elif isinstance(clause, Add):
            after[clause.name] = _added(after.get(clause.name), clause.value)
        else:
            after.pop(clause.name, None)
    return after


def _is_storable(total: int | Decimal) -> bool:
    """Whether DynamoDB can store a number: it has at most 38 significant digits."""
    if isinstance(total, int) and -_LIMIT < total < _LIMIT:
        return True
    digits = "".join(map(str, Decimal(total).as_tuple().digits)).strip("0")
    return len(digits) <= NUMBER_MAX_DIGITS


def _added(stored: Any, added: Any) -> Any:  # noqa: ANN401 - a number or a set
    if isinstance(added, set):
        return (stored or set()) | added
    stored = 0 if stored is None else stored
    if not isinstance(stored, int | Decimal):
        raise RequestRejected(f"{stored!r} is not a number")
    total = amount.add(stored, added)
    if not _is_storable(total):
        raise SumOverflow("the number needs more than 38 digits")
    return total


def item_bytes(item: Mapping[str, Any] | None) -> int:
    """The size of names and values; 0 of an item that does not exist."""
    if item is None:
        return 0
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(value: Any) -> int:  # noqa: ANN401, PLR0911 - one for each type
    if isinstance(value, str):
        return len(value.encode())
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, int | Decimal):
        return _number_bytes(value)
    if isinstance(value, set | frozenset):
        return sum(map(value_bytes, value))
    if isinstance(value, dict):
        inner = sum(len(name.encode()) + value_bytes(one) + 1 for name, one in value.items())
        return _NESTED + inner
    if isinstance(value, list | tuple):
        return _NESTED + sum(value_bytes(one) + 1 for one in value)
    return len(bytes(value))


def _number_bytes(value: int | Decimal) -> int:
    if isinstance(value, int):
        whole = str(abs(value))
    else:
        whole = "".join(map(str, value.as_tuple().digits))
    digits = len(whole.strip("0"))
    return (digits + 1) // 2 + (2 if value < 0 else 1)


def read_units(size: int, *, consistent: bool) -> float:
    """The units of one read of so many bytes."""
    return max(1, -(-size // _READ_BYTES)) * (1.0 if consistent else 0.5)


def write_units(*sizes: int) -> float:
    """The units of one write: of the larger of the items before and after it."""
    return float(max(1, -(-max(sizes) // _WRITE_BYTES)))


@dataclass(frozen=True, slots=True)
class Index:
    """An index; an item without both keys is not in it. A `whole` one has all attributes."""

    partition: str
    sort: str
    whole: bool = False

    def entry(self, table: Table, item: Item | None) -> Item | None:
        """What the index stores of an item; None: the item is not in it."""
        if item is None or self.partition not in item or self.sort not in item:
            return None
        if self.whole:
            return item
        names = {self.partition: 0, self.sort: 0, table.partition: 0, table.sort: 0}
        return {name: item[name] for name in names if name in item}


# As the template of the stack defines them; the names are unique over both tables.
INDEXES: Final = {
    "namespaces": Index("directory", "counter", whole=True),
    "due": Index("due_bucket", "due_at"),
    "members": Index("member", "counter"),
    "ranks": Index("ranked", "total"),
    "group_ranks": Index("ranked_group", "total"),
}


def index_page(table: Table, read: Query, page_items: int) -> Page:
    """A page of an index: its items in the order of its sort key, then of the table's keys."""
    index = INDEXES[str(read.index)]

    def place(item: Mapping[str, Any]) -> tuple[Any, ...]:
        return (item[index.sort], *table.key_of(item))

    entries = (index.entry(table, item) for item in table.items.values())
    found = [one for one in entries if one is not None and holds(read.condition, one)]
    found.sort(key=place, reverse=not read.forward)
    if read.after is not None:
        last = place(read.after)
        found = [one for one in found if (place(one) > last) == read.forward and place(one) != last]
    size = read.page_size or page_items
    shown = [dict(one) for one in found[:size]]
    if len(found) <= size:
        return Page(shown, None, len(shown))
    names = {index.partition: 0, index.sort: 0, table.partition: 0, table.sort: 0}
    return Page(shown, {name: shown[-1][name] for name in names}, len(shown))


def index_units(table: Table, before: Item | None, after: Item | None) -> float:
    """What a write of an item consumes in the indexes of its table."""
    return sum(
        _entry_units(index, index.entry(table, before), index.entry(table, after))
        for index in indexes_of(table)
    )


def indexes_of(table: Table) -> Iterable[Index]:
    """The indexes of a table: `ledger` has one, the table with `part` as sort key the others."""
    if table.sort == "entry":
        return [INDEXES["namespaces"]]
    return [one for one in INDEXES.values() if not one.whole] if table.sort == "part" else []


def _entry_units(index: Index, before: Item | None, after: Item | None) -> float:
    """Nothing unless the entry changes; another key is a deletion and a write."""
    if before == after:
        return 0.0
    old, new = item_bytes(before), item_bytes(after)
    keys = (index.partition, index.sort)
    moved = before and after and [before[one] for one in keys] != [after[one] for one in keys]
    return write_units(old) + write_units(new) if moved else write_units(old, new)


# A table in memory: items in key order, conditions, and what a write makes of an item.
#
# Nothing of it waits or takes a lock: when a write happens, and what a reader sees of the
# writes of others, is decided by the client. `StoredTable` also stores values as DynamoDB does,
# and refuses what DynamoDB refuses.


# The values of partition key and sort key; texts in the tables of the product.
Key: TypeAlias = tuple[Any, Any]
# An expression with fewer clauses cannot be too long.
_FEW: Final = 50
_LONG: Final = 10**NUMBER_MAX_DIGITS
# The most bytes of a partition key and of a sort key.
_KEY_MAX_BYTES: Final = (2_048, 1_024)


class Conflict(Throttled):
    """Another transaction is writing the item; the SDK does not retry this."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one item by one write; `local`: it was not replicated from another region."""

    table: Table
    key: Key
    before: Item | None
    after: Item | None
    local: bool


@dataclass(eq=False)
class Table:
    """The items of one table.

    Attributes:
        partitions: the sort keys of each partition, in order.
    """

    name: str
    sort: str
    partition: str = "counter"
    region: str = ""
    items: dict[Key, Item] = field(default_factory=dict)
    partitions: dict[Any, list[Any]] = field(default_factory=dict)
    watchers: list[Callable[[Change], None]] = field(default_factory=list)
    # The partition keys in order, as far as a scan has needed them; a partition is never removed.
    _order: list[Any] = field(default_factory=list)

    def key_of(self, item: Mapping[str, Any]) -> Key:
        return item[self.partition], item[self.sort] if self.sort else ""

    def key_in(self, key: Key) -> dict[str, Any]:
        return {self.partition: key[0], **({self.sort: key[1]} if self.sort else {})}

    def written_key(self, write: Write) -> Key:
        return self.key_of(write.item if isinstance(write, Put) else write.key)

    def check(self, key: Key, condition: Condition | None) -> None:
        """Raise `ConditionFailed`, with the existing item, if a condition is not met."""
        there = self.items.get(key)
        if condition is not None and not holds(condition, there or {}):
            raise ConditionFailed(dict(there) if there is not None else None)

    def write(self, write: Write) -> Item | None:
        """The item after the write; DynamoDB's refusals are raised as its client does."""
        key = self.written_key(write)
        self.check(key, write.condition)
        after = self.after(write)
        self.store(key, after)
        return after

    def after(self, write: Write) -> Item | None:
        """What a write makes of its item; nothing is stored."""
        match write:
            case Put():
                return {name: value for name, value in write.item.items() if value is not None}
            case Update():
                there = self.items.get(self.key_of(write.key))
                return changed(there if there is not None else dict(write.key), write.clauses)
            case Delete():
                return None
            case Check():
                return self.items.get(self.key_of(write.key))

    def store(self, key: Key, after: Item | None, *, local: bool = True) -> bool:
        """Store an item, or remove it; whether that changed anything."""
        before = self.items.get(key)
        if before == after:
            return False
        order = self.partitions.setdefault(key[0], [])
        if after is None:
            del self.items[key]
            del order[bisect_left(order, key[1])]
        else:
            self.items[key] = after
            if before is None:
                insort(order, key[1])
        self._changed(Change(self, key, before, after, local))
        return True

    def keys_after(self, after: Key | None) -> Iterator[Key]:
        """The keys of the items that follow another key (None: of all), in order."""
        if len(self._order) < len(self.partitions):
            # Sorting what is sorted but for the end takes little more than a pass over it.
            self._order += islice(self.partitions, len(self._order), None)
            self._order.sort()
        start = 0 if after is None else bisect_left(self._order, after[0])
        for partition in islice(self._order, start, None):
            order = self.partitions[partition]
            first = bisect_right(order, after[1]) if after and after[0] == partition else 0
            for sort in order[first:]:
                yield partition, sort

    def next_sort_key(self, partition: object, after: object, *, forward: bool) -> Any:  # noqa: ANN401 - of any key
        """The sort key that follows another one in a partition (None: the first); None: no more."""
        order: list[Any] = self.partitions.get(partition, [])
        if forward:
            at = 0 if after is None else bisect_right(order, after)
            return order[at] if at < len(order) else None
        at = (len(order) if after is None else bisect_left(order, after)) - 1
        return order[at] if at >= 0 else None

    def _changed(self, change: Change) -> None:
        for watcher in self.watchers:
            watcher(change)


@dataclass(eq=False)
class StoredTable(Table):
    """A table whose items have been encoded for the service and decoded again."""

    def key_of(self, item: Mapping[str, Any]) -> Key:
        for name, most in zip((self.partition, self.sort), _KEY_MAX_BYTES, strict=True):
            if name:
                check_key_value(self.name, name, item.get(name), most)
        return super().key_of(item)

    def after(self, write: Write) -> Item | None:
        if isinstance(write, Update) and len(write.clauses) > _FEW:
            check_expressions(write.arguments())
        return self.stored(Table.after(self, write))

    def stored(self, item: Item | None) -> Item | None:
        if item is None:
            return None
        if (size := item_bytes(item)) > ITEM_MAX_BYTES:
            raise RequestRejected(
                f"item size {size:,} bytes has exceeded the maximum allowed size of "
                f"{ITEM_MAX_BYTES:,} bytes"
            )
        return decode(encode({name: _few_digits(value) for name, value in item.items()}))


def _few_digits(value: object) -> object:
    """A long number without the zeroes at its end, which DynamoDB does not count as digits."""
    if not isinstance(value, int) or -_LONG < value < _LONG:
        return value
    sign, digits, _ = Decimal(value).as_tuple()
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    return Decimal((sign, tuple(map(int, kept)), len(text) - len(kept)))


def check_key_value(table: str, name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, str | bytes | int):
        raise RequestRejected(
            f"key {name!r} of table {table!r} is {value!r}: give a text or number"
        )
    if isinstance(value, str | bytes):
        size = len(value.encode() if isinstance(value, str) else value)
        if not 0 < size <= most:
            raise RequestRejected(
                f"key {name!r} of table {table!r} has {size} bytes: give 1 to {most}"
            )


def check_expressions(arguments: Mapping[str, Any]) -> None:
    """Refuse expressions of more than 4 KB or 300 operators."""
    for name in ("UpdateExpression", "ConditionExpression"):
        text = arguments.get(name, "")
        # Each comparison is an operator, and so is what joins two of them.
        operators = text.count(" = :") + text.count(" AND ") if name.startswith("C") else 0
        if len(text) > EXPRESSION_MAX_BYTES or operators > EXPRESSION_OPERATORS_MAX:
            raise RequestRejected(f"{name} of {len(text)} bytes and {operators} operators")


REGION: Final = "us-east-1"
ACCOUNT: Final = "000000000000"
LEDGER: Final = "memory-ledger"
COUNTERS: Final = "memory-counters"
_SHARDS: Final = 1


@dataclass
class Transactions:
    """The transactions of one region.

    Attributes:
        names_all: whether a cancelled transaction names every failed condition.
        known: what was written under each token, and when that was completed.
    """

    tables: Mapping[str, Table]
    now_ms: Callable[[], float]
    names_all: bool = True
    known: dict[str, tuple[str, float]] = field(default_factory=dict)

    def begin(self, writes: Sequence[Write], token: str) -> tuple[bool, float]:
        """Whether this request carried out the transaction, and how long that takes in ms."""
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
    """The tables of one stack, and those that an app adds."""

    clock: MemoryClock = field(default_factory=MemoryClock)
    faults: FaultPlan = field(init=False)
    lock: RLock = field(default_factory=RLock)
    tables: dict[str, StoredTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.faults = FaultPlan(self.clock.now_ms)
        self.add(LEDGER, "counter", "entry")
        self.add(COUNTERS, "counter", "part")
        self.ledger_stream = self._stream(LEDGER)
        self.counters_stream = self._stream(COUNTERS)
        self.transactions = Transactions(self.tables, lambda: float(self.clock.now_ms()))

    def add(self, name: str, partition: str, sort: str | None = None) -> StoredTable:
        with self.lock:
            if name in self.tables:
                raise BadSetting(f"table {name!r} exists already in this stack")
            self.tables[name] = StoredTable(name, sort or "", partition, REGION)
            return self.tables[name]

    def table(self, name: str) -> StoredTable:
        if name not in self.tables:
            raise TableNotFound(
                f"table {name!r} does not exist in this stack in memory: create an app's own table "
                "by `MemoryStack.create_table`"
            )
        return self.tables[name]

    def expire(self) -> int:
        """How many items of `counters` were deleted, because their time to live is over."""
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
