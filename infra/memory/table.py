"""A table in memory: items in key order, conditions, and what a write makes of an item.

Nothing in this module waits or takes a lock: when a write happens, and what a reader sees of the
writes of others, is decided by the client. `StoredTable` also stores values as DynamoDB does, and
refuses what DynamoDB refuses.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from countledger.infra.memory.items import changed, holds, item_bytes
from countledger.ledger.attributes import decode, encode
from countledger.ledger.errors import ConditionFailed, RequestRejected, Throttled
from countledger.ledger.limits import (
    EXPRESSION_MAX_BYTES,
    EXPRESSION_OPERATORS_MAX,
    ITEM_MAX_BYTES,
    NUMBER_MAX_DIGITS,
)
from countledger.ledger.operations import Check, Delete, Put, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Condition, Write


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
    """A change of one item by one write.

    Attributes:
        table: the table of the item.
        key: the key of the item.
        before: the item before, or None.
        after: the item after, or None.
        local: whether it was written here, and not replicated from another region.
    """

    table: Table
    key: Key
    before: Item | None
    after: Item | None
    local: bool


@dataclass(eq=False)
class Table:
    """The items of one table.

    Attributes:
        name: of the table.
        sort: the name of its sort key; empty: it has none.
        partition: the name of its partition key.
        region: the region of this copy.
        items: by key.
        partitions: the sort keys of each partition, in order.
        watchers: called with every change, after it.
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
        """The key of an item, or of what names its key."""
        return item[self.partition], item[self.sort] if self.sort else ""

    def key_in(self, key: Key) -> dict[str, Any]:
        """The attributes of a key."""
        return {self.partition: key[0], **({self.sort: key[1]} if self.sort else {})}

    def written_key(self, write: Write) -> Key:
        """The key of the item of a write."""
        return self.key_of(write.item if isinstance(write, Put) else write.key)

    def check(self, key: Key, condition: Condition | None) -> None:
        """Evaluate the condition of a write.

        Raises:
            ConditionFailed: with the existing item.
        """
        there = self.items.get(key)
        if condition is not None and not holds(condition, there or {}):
            raise ConditionFailed(dict(there) if there is not None else None)

    def write(self, write: Write) -> Item | None:
        """Carry out a write; the item after it.

        Raises:
            ConditionFailed: as `check`.
            RequestRejected, SumOverflow: DynamoDB refuses the write as invalid.
        """
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
        """The key of an item.

        Raises:
            RequestRejected: a key is absent, empty, too long or of a type that no key has.
        """
        for name, most in zip((self.partition, self.sort), _KEY_MAX_BYTES, strict=True):
            if name:
                check_key_value(self.name, name, item.get(name), most)
        return super().key_of(item)

    def after(self, write: Write) -> Item | None:
        """What a write makes of its item.

        Raises:
            RequestRejected: the item is larger than 400 KB, or an expression is too long.
        """
        if isinstance(write, Update) and len(write.clauses) > _FEW:
            check_expressions(write.arguments())
        return self.stored(Table.after(self, write))

    def stored(self, item: Item | None) -> Item | None:
        """An item as the service stores it.

        Raises:
            RequestRejected: the item is larger than 400 KB.
        """
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
    """Check the value of a key attribute.

    Raises:
        RequestRejected: naming the table, the attribute and the rule.
    """
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
    """Check the length of the expressions of a request.

    Raises:
        RequestRejected: one has more than 4 KB or 300 operators.
    """
    for name in ("UpdateExpression", "ConditionExpression"):
        text = arguments.get(name, "")
        # Each comparison is an operator, and so is what joins two of them.
        operators = text.count(" = :") + text.count(" AND ") if name.startswith("C") else 0
        if len(text) > EXPRESSION_MAX_BYTES or operators > EXPRESSION_OPERATORS_MAX:
            raise RequestRejected(f"{name} of {len(text)} bytes and {operators} operators")
