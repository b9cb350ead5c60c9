"""Tables in memory behind the client's own interface: our conditions and updates, judged here.

The engines' contract suite holds the real dynamo to the same behaviour. Values pass through their
stored form, so that nothing can be kept here that the service would not take.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from countledger.ledger.attributes import Item, Key, decode, encode
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import ConditionFailed, RequestRejected
from countledger.ledger.limits import EXPRESSION_MAX_BYTES, EXPRESSION_OPERATORS_MAX
from countledger.ledger.operations import Delete, Page, Put, Query, Scan, Update
from tests.simulation.judgement import changed, holds
from tests.simulation.judgement import key_of as _key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

    from countledger.ledger.expressions import Condition
    from countledger.ledger.operations import Write

# Below so many clauses an expression cannot be too long.
_FEW: Final = 50
_SORT_KEYS: Final = ("entry", "part")
_PLAIN: Final = cast("TableDescriptionTypeDef", {"TableStatus": "ACTIVE"})


@dataclass(frozen=True, slots=True)
class Fault:
    """What one call meets instead of an answer.

    Attributes:
        error: what it raises.
        applied: whether the call took effect before it was lost.
    """

    error: Exception
    applied: bool = False


@dataclass(frozen=True, slots=True)
class MemoryClient(DynamoClient):
    """A client whose tables are dicts.

    Attributes:
        tables: table name -> key -> item.
        faults: what the coming writes meet, one each; None lets one through.
        calls: the kind of every call, in order.
        description: what it says of every table, or fails with.
    """

    client: DynamoDBClient = field(default_factory=lambda: cast("DynamoDBClient", None))
    tables: dict[str, dict[tuple[str, str], Item]] = field(default_factory=dict)
    faults: list[Fault | None] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    description: TableDescriptionTypeDef | Exception = field(default_factory=lambda: _PLAIN)

    def items(self, table: str) -> list[Item]:
        """Everything in a table, in key order."""
        stored = self.tables.get(table, {})
        return [stored[key] for key in sorted(stored)]

    def get(self, table: str, key: Key, *, consistent: bool = False) -> Item | None:
        """One item."""
        self.calls.append("get")
        self.meter.read([{"CapacityUnits": 1.0 if consistent else 0.5}])
        found = self.tables.get(table, {}).get(_key(key))
        return dict(found) if found else None

    def get_many(self, table: str, keys: Sequence[Key], *, consistent: bool = False) -> list[Item]:
        """Those that exist."""
        return [found for key in keys if (found := self.get(table, key, consistent=consistent))]

    def pages(self, read: Query | Scan) -> Iterator[list[Item]]:
        """What matches, in pages."""
        self.calls.append(type(read).__name__.lower())
        condition = read.condition if isinstance(read, Query) else read.where
        found = [i for i in self.items(read.table) if condition is None or holds(condition, i)]
        if isinstance(read, Scan):
            found = [item for item in found if _is_in(item, read)]
            found = [{name: item[name] for name in read.only or item} for item in found]
        if isinstance(read, Query) and not read.forward:
            found.reverse()
        size = read.page_size or len(found) or 1
        for start in range(0, len(found) or 1, size):
            yield found[start : start + size]

    def page(self, read: Query | Scan) -> Page:
        """The first page behind `after`: so many items are read, and those that match come."""
        self.calls.append(type(read).__name__.lower())
        condition = read.condition if isinstance(read, Query) else read.where
        after = _key(read.after) if read.after else ("", "")
        left = [item for item in self.items(read.table) if _key(item) > after]
        if isinstance(read, Query) and not read.forward:
            # The service reads from the end of what the condition is about.
            left = [item for item in reversed(left) if holds(read.condition, item)]
        taken = left[: read.page_size or len(left)]
        found = [item for item in taken if condition is None or holds(condition, item)]
        if isinstance(read, Scan):
            found = [item for item in found if _is_in(item, read)]
        names = ("counter", next(name for name in _SORT_KEYS if name in taken[-1])) if taken else ()
        last = {name: taken[-1][name] for name in names}
        return Page([dict(item) for item in found], last if len(left) > len(taken) else None)

    def put(self, write: Put) -> None:
        """Write one item."""
        self.calls.append("put")
        with_fault = self._next_fault()
        if with_fault and not with_fault.applied:
            raise with_fault.error
        stored = self._judged(write.table, write.item, write.condition)
        stored[_key(write.item)] = _as_stored(write.item)
        if with_fault:
            raise with_fault.error

    def update(self, write: Update) -> Item | None:
        """Change one item."""
        self.calls.append("update")
        fault = self._next_fault()
        if fault and not fault.applied:
            raise fault.error
        _refuse_long(write)
        stored = self._judged(write.table, write.key, write.condition)
        item = changed(stored.get(_key(write.key), dict(write.key)), write.clauses)
        stored[_key(write.key)] = _as_stored(item)
        if fault:
            raise fault.error
        return dict(stored[_key(write.key)]) if write.returning == "ALL_NEW" else None

    def delete(self, write: Delete) -> None:
        """Remove one item."""
        self.calls.append("delete")
        fault = self._next_fault()
        if fault and not fault.applied:
            raise fault.error
        self._judged(write.table, write.key, write.condition).pop(_key(write.key), None)
        if fault:
            raise fault.error

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """As a table that takes no transactions."""
        raise RequestRejected(f"no transactions here: {len(writes)} writes under {token}")

    def transact_get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        """The same."""
        raise RequestRejected(f"no transactions on {table}: {len(keys)} items")

    def describe(self, table: str) -> TableDescriptionTypeDef:
        """What it was told to say of every table."""
        self.calls.append("describe")
        if isinstance(self.description, Exception):
            raise self.description
        return {**self.description, "TableName": table}

    def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
        """Write several items without condition."""
        self.calls.append("put_batch")
        fault = self._next_fault()
        if fault and not fault.applied:
            raise fault.error
        stored = self.tables.setdefault(table, {})
        stored.update({_key(item): _as_stored(item) for item in items})
        if fault:
            raise fault.error
        return []

    def _judged(
        self, table: str, key: Mapping[str, Any], condition: Condition | None
    ) -> dict[tuple[str, str], Item]:
        stored = self.tables.setdefault(table, {})
        there = stored.get(_key(key))
        if condition is not None and not holds(condition, there or {}):
            raise ConditionFailed(dict(there) if there else None)
        return stored

    def _next_fault(self) -> Fault | None:
        return self.faults.pop(0) if self.faults else None


def _refuse_long(write: Update) -> None:
    """As the service does: an expression has 4 KB and 300 operators at the most."""
    if len(write.clauses) < _FEW:
        return
    arguments = write.arguments()
    for name in ("UpdateExpression", "ConditionExpression"):
        text = arguments.get(name, "")
        # Each comparison is one, and so is what joins two of them.
        operators = text.count(" = :") + text.count(" AND ") if name.startswith("C") else 0
        if len(text) > EXPRESSION_MAX_BYTES or operators > EXPRESSION_OPERATORS_MAX:
            raise RequestRejected(f"{name} of {len(text)} bytes and {operators} operators")


@dataclass(frozen=True, slots=True)
class HesitantDoor(MemoryClient):
    """Its queries begin with a page without items, although some follow."""

    def pages(self, read: Query | Scan) -> Iterator[list[Item]]:
        """What matches, behind an empty page."""
        yield []
        yield from MemoryClient.pages(self, read)

    def page(self, read: Query | Scan) -> Page:
        """The empty one."""
        if isinstance(read, Query) and read.after is None:
            return Page([], {"counter": "", "entry": ""})
        return MemoryClient.page(self, read)


def _is_in(item: Item, read: Scan) -> bool:
    """Whether an item lies in the segment, behind the key where the scan begins."""
    if sum(item["counter"].encode()) % read.segments != read.segment:
        return False
    return read.after is None or _key(item) > _key(read.after)


def _as_stored(item: Item) -> Item:
    return decode(encode(item))
