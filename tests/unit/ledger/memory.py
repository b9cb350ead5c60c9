"""Tables in memory with the client's own interface, and with faults that a test plans.

Conditions and updates are evaluated here; the contract suite of the engines holds the real client
to the same behaviour. Values pass through their stored form, so nothing is stored here that the
service would refuse.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never, cast

from countledger.ledger.attributes import Item, Key, decode, encode
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import (
    ConditionFailed,
    Reason,
    RequestRejected,
    TokenMismatch,
    TransactionCancelled,
)
from countledger.ledger.limits import EXPRESSION_MAX_BYTES, EXPRESSION_OPERATORS_MAX
from countledger.ledger.operations import Check, Delete, Page, Put, Query, Scan, Update, action
from tests.simulation.judgement import changed, holds
from tests.simulation.judgement import key_of as _key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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


# What happens around a request: its kind ("put", "update", "delete", "put_batch", "transact"), its
# write or writes, and what carries it out. A plan carries it out once, twice, later or never, does
# something before and after it, and returns the answer or raises what the caller gets.
Plan: TypeAlias = "Callable[[str, Any, Callable[[], Any]], Any]"


def _as_asked(_kind: str, _write: object, request: Callable[[], Any]) -> Any:  # noqa: ANN401
    return request()


@dataclass(frozen=True, slots=True)
class MemoryClient(DynamoClient):
    """A client whose tables are dicts. It takes transactions, and knows their tokens for ever.

    Attributes:
        tables: table name -> key -> item.
        faults: what the coming single writes meet, one each; None lets one through.
        transact_faults: the same of transactions.
        plan: what happens around each write and transaction.
        hesitant: whether a query begins with an empty page, although items follow.
        calls: the kind of every call, in order.
        tokens: what was written under each token.
        description: what it says of every table, or fails with.
    """

    client: DynamoDBClient = field(default_factory=lambda: cast("DynamoDBClient", None))
    tables: dict[str, dict[tuple[str, str], Item]] = field(default_factory=dict)
    faults: list[Fault | None] = field(default_factory=list)
    transact_faults: list[Fault | None] = field(default_factory=list)
    plan: Plan = _as_asked
    hesitant: bool = False
    calls: list[str] = field(default_factory=list)
    tokens: dict[str, list[object]] = field(default_factory=dict)
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
        if self.hesitant:
            yield []
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
        if self.hesitant and isinstance(read, Query) and read.after is None:
            return Page([], {"counter": "", "entry": ""})
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
        self._request("put", write, partial(self._put, write), self.faults)

    def update(self, write: Update) -> Item | None:
        """Change one item."""
        item: Item | None = self._request(
            "update", write, partial(self._update, write), self.faults
        )
        return item

    def delete(self, write: Delete) -> None:
        """Remove one item."""
        self._request("delete", write, partial(self._delete, write), self.faults)

    def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
        """Write several items without condition."""
        stored = self.tables.setdefault(table, {})
        written = {_key(item): _as_stored(item) for item in items}
        self._request("put_batch", items, partial(stored.update, written), self.faults)
        return []

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """All or nothing; two units for each write."""
        request = partial(self._transact, writes, token)
        return bool(self._request("transact", writes, request, self.transact_faults))

    def _request(
        self,
        kind: str,
        write: object,
        request: Callable[[], Any],
        faults: list[Fault | None],
    ) -> Any:  # noqa: ANN401 - of the request
        def carry_out() -> Any:  # noqa: ANN401
            self.calls.append(kind)
            fault = faults.pop(0) if faults else None
            if fault and not fault.applied:
                raise fault.error
            answer = request()
            if fault:
                raise fault.error
            return answer

        return self.plan(kind, write, carry_out)

    def _put(self, write: Put) -> None:
        stored = self._evaluated(write.table, write.item, write.condition)
        stored[_key(write.item)] = _as_stored(write.item)

    def _update(self, write: Update) -> Item | None:
        _refuse_long(write)
        stored = self._evaluated(write.table, write.key, write.condition)
        item = changed(stored.get(_key(write.key), dict(write.key)), write.clauses)
        stored[_key(write.key)] = _as_stored(item)
        return dict(stored[_key(write.key)]) if write.returning == "ALL_NEW" else None

    def _delete(self, write: Delete) -> None:
        self._evaluated(write.table, write.key, write.condition).pop(_key(write.key), None)

    def _transact(self, writes: Sequence[Write], token: str) -> bool:
        actions: list[object] = [action(write) for write in writes]
        if token in self.tokens:
            if self.tokens[token] != actions:
                raise TokenMismatch(token)
            return False
        self.meter.written([{"CapacityUnits": 2.0 * len(writes)}])
        before = deepcopy(self.tables)
        reasons = tuple(map(self._carried_out, writes))
        if any(reason.condition_failed for reason in reasons):
            self.tables.clear()
            self.tables.update(before)
            raise TransactionCancelled(reasons)
        self.tokens[token] = actions
        return True

    def _carried_out(self, write: Write) -> Reason:
        try:
            match write:
                case Put():
                    self._put(write)
                case Update():
                    self._update(write)
                case Delete():
                    self._delete(write)
                case Check():
                    self._evaluated(write.table, write.key, write.condition)
                case _:
                    assert_never(write)
        except ConditionFailed as failed:
            return Reason("ConditionalCheckFailed", failed.item)
        return Reason("None")

    def transact_get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        """Items as of one moment."""
        return [self.get(table, key, consistent=True) for key in keys]

    def describe(self, table: str) -> TableDescriptionTypeDef:
        """What it was told to say of every table."""
        self.calls.append("describe")
        if isinstance(self.description, Exception):
            raise self.description
        return {**self.description, "TableName": table}

    def _evaluated(
        self, table: str, key: Mapping[str, Any], condition: Condition | None
    ) -> dict[tuple[str, str], Item]:
        stored = self.tables.setdefault(table, {})
        there = stored.get(_key(key))
        if condition is not None and not holds(condition, there or {}):
            raise ConditionFailed(dict(there) if there else None)
        return stored


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


def _is_in(item: Item, read: Scan) -> bool:
    """Whether an item lies in the segment, behind the key where the scan begins."""
    if sum(item["counter"].encode()) % read.segments != read.segment:
        return False
    return read.after is None or _key(item) > _key(read.after)


def _as_stored(item: Item) -> Item:
    return decode(encode(item))
