"""Tables in memory with the client's own interface, and with faults that a test plans.

The tables and transactions are those of the simulation, which the contract suite compares with
every engine (`tests/engines/test_simulated_table.py`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock
from typing import Any, Final, TypeAlias, cast

from mypy_boto3_dynamodb import DynamoDBClient
from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

from countledger.infra.memory.tables import Key as ItemKey
from countledger.infra.memory.tables import StoredTable, Transactions, holds, key_of
from countledger.ledger.attributes import Item, Key
from countledger.ledger.departure import leave
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import (
    ConditionFailed,
    RequestRejected,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.limits import BATCH_WRITE_ITEMS
from countledger.ledger.operations import Delete, Page, Put, Query, Scan, Update, Write

_PLAIN: Final = cast("TableDescriptionTypeDef", {"TableStatus": "ACTIVE"})
# Where a client that is `hesitant` says that its second page begins.
_START: Final = {"counter": "", "entry": ""}
WRITES: Final = ("put", "update", "delete", "put_batch", "transact")
LOST: Final = Unclear("the answer was lost")

# What happens around a call: its kind ("get", "query", "scan", "describe", or one of `WRITES`),
# its argument (`Get`, a read, a write, items or writes), and what carries it out. A plan carries it
# out once, twice, later or never, does something before and after it, and returns the answer or
# raises what the caller gets.
Plan: TypeAlias = "Callable[[str, Any, Callable[[], Any]], Any]"


@dataclass(frozen=True, slots=True)
class Fault:
    """What one call meets instead of an answer.

    Attributes:
        error: what it raises.
        applied: whether the call took effect before its answer was lost.
    """

    error: BaseException
    applied: bool = False


@dataclass(frozen=True, slots=True)
class Get:
    """The argument of a read of one item."""

    table: str
    key: Key
    consistent: bool


def at(
    plan: Plan,
    *kinds: str,
    times: float = float("inf"),
    where: Callable[[Any], bool] = lambda _: True,
) -> Plan:
    """A plan for the first calls of these kinds whose argument fits; all writes if none is named.

    Args:
        plan: what happens around such a call.
        kinds: of calls.
        times: for how many calls.
        where: whether the argument fits.
    """
    left, lock = [times], Lock()

    def planned(kind: str, what: Any, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        if kind not in (kinds or WRITES) or not where(what):
            return request()
        with lock:
            left[0] -= 1
            due = left[0] >= 0
        return plan(kind, what, request) if due else request()

    return planned


def meanwhile(act: Callable[[], object], *kinds: str, times: float = 1, **which: Any) -> Plan:  # noqa: ANN401 - of `at`
    """Something happens before the next such call leaves."""

    def planned(_kind: str, _what: object, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        act()
        return request()

    return at(planned, *kinds, times=times, **which)


def afterwards(act: Callable[[], object], *kinds: str, times: float = 1, **which: Any) -> Plan:  # noqa: ANN401 - of `at`
    """Something happens after the next such call took effect, before its answer arrives."""

    def planned(_kind: str, _what: object, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        answer = request()
        act()
        return answer

    return at(planned, *kinds, times=times, **which)


def _raise(error: BaseException) -> Any:  # noqa: ANN401 - never
    raise error


def refuses(error: BaseException, *kinds: str, times: float = 1, **which: Any) -> Plan:  # noqa: ANN401 - of `at`
    """The next such call raises an error, and has no effect."""
    return meanwhile(partial(_raise, error), *kinds, times=times, **which)


def applied_then_lost(
    *kinds: str,
    error: BaseException = LOST,
    times: float = 1,
    **which: Any,  # noqa: ANN401 - of `at`
) -> Plan:
    """The next such call is applied, and its answer is lost."""
    return afterwards(partial(_raise, error), *kinds, times=times, **which)


def sent_twice(
    *kinds: str,
    between: Callable[[], object] = lambda: None,
    times: float = float("inf"),
    **which: Any,  # noqa: ANN401 - of `at`
) -> Plan:
    """Such calls are applied, and sent again by the SDK, which has lost their answers."""

    def planned(_kind: str, _what: object, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        request()
        between()
        try:
            return request()
        except (ConditionFailed, TransactionCancelled) as refused:
            refused.maybe_applied = True
            raise

    return at(planned, *kinds, times=times, **which)


def held_back(into: list[Callable[[], Any]], *kinds: str, times: float = 1, **which: Any) -> Plan:  # noqa: ANN401 - of `at`
    """The next such call is kept in a list instead of being sent, and its answer is lost."""

    def planned(_kind: str, _what: object, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        into.append(request)
        raise LOST

    return at(planned, *kinds, times=times, **which)


def waits_for(gate: Event, *kinds: str, times: float = float("inf"), **which: Any) -> Plan:  # noqa: ANN401 - of `at`
    """Such calls wait until somebody opens the gate."""

    def wait() -> None:
        assert gate.wait(20)

    return meanwhile(wait, *kinds, times=times, **which)


@dataclass(frozen=True, slots=True)
class MemoryClient(DynamoClient):
    """A client to simulated tables of which no answer is late, unless a plan says so.

    Attributes:
        tables: table name -> key -> item.
        plans: what happens around each call, the first one outermost.
        faults: what the coming single writes and batches meet, one each; None lets one through.
        transact_faults: the same of transactions.
        hesitant: whether a read begins with an empty page, although items follow.
        page_items: the most items of a page, or None for all.
        calls: the kind of every call, in order.
        tokens: what was written under each token; they are kept for ever.
        description: of every table, or the error that a description fails with.
    """

    client: DynamoDBClient = field(default_factory=lambda: cast("DynamoDBClient", None))
    tables: dict[str, dict[ItemKey, Item]] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)
    faults: list[Fault | None] = field(default_factory=list)
    transact_faults: list[Fault | None] = field(default_factory=list)
    hesitant: bool = False
    page_items: int | None = None
    calls: list[str] = field(default_factory=list)
    tokens: dict[str, tuple[str, float]] = field(default_factory=dict)
    description: TableDescriptionTypeDef | Exception = field(default_factory=lambda: _PLAIN)

    def items(self, table: str) -> list[Item]:
        """Everything in a table, in key order."""
        stored = self.tables.get(table, {})
        return [stored[key] for key in sorted(stored)]

    def get(self, table: str, key: Key, *, consistent: bool = False) -> Item | None:
        def request() -> Item | None:
            self.meter.read([{"CapacityUnits": 1.0 if consistent else 0.5}])
            found = self.tables.get(table, {}).get(key_of(key))
            return dict(found) if found else None

        item: Item | None = self._call("get", Get(table, key, consistent), request)
        return item

    def get_many(self, table: str, keys: Sequence[Key], *, consistent: bool = False) -> list[Item]:
        return [found for key in keys if (found := self.get(table, key, consistent=consistent))]

    def transact_get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        return [self.get(table, key, consistent=True) for key in keys]

    def page(self, read: Query | Scan) -> Page:
        if self.hesitant and read.after is None:
            return Page([], dict(_START), 0)
        page: Page = self._call(type(read).__name__.lower(), read, partial(self._page, read))
        return page

    def _page(self, read: Query | Scan) -> Page:
        rows = sorted(self.tables.get(read.table, {}).items())
        forward, where = True, None
        if isinstance(read, Query):
            rows = [row for row in rows if holds(read.condition, row[1])]
            forward = read.forward
        else:
            rows = [row for row in rows if sum(row[0][0].encode()) % read.segments == read.segment]
            where = read.where
        if not forward:
            rows.reverse()
        if read.after and read.after != _START:
            after = key_of(read.after)
            rows = [(k, item) for k, item in rows if k != after and (k > after) == forward]
        size = read.page_size or self.page_items or len(rows)
        found = [item for _, item in rows[:size] if where is None or holds(where, item)]
        only = () if isinstance(read, Query) else read.only
        shown = [{name: item[name] for name in only or item if name in item} for item in found]
        return Page(shown, _key_in(rows[size - 1][1]) if len(rows) > size else None, len(shown))

    def put(self, write: Put) -> None:
        self._call("put", write, partial(self._table(write.table).write, write))

    def update(self, write: Update) -> Item | None:
        request = partial(self._table(write.table).write, write)
        item: Item | None = self._call("update", write, request)
        return dict(item) if item is not None and write.returning == "ALL_NEW" else None

    def delete(self, write: Delete) -> None:
        self._call("delete", write, partial(self._table(write.table).write, write))

    def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
        def request() -> list[Item]:
            written = {key_of(item): item for item in items}
            if not 0 < len(items) == len(written) <= BATCH_WRITE_ITEMS:
                raise RequestRejected(f"{len(items)} items with {len(written)} keys")
            for key, item in written.items():
                stored = self._table(table)
                stored.store(key, stored.stored(item))
            return []

        left: list[Item] = self._call("put_batch", items, request)
        return left

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """All or nothing; two units for each write."""

        def request() -> bool:
            tables = {write.table: self._table(write.table) for write in writes}
            if token not in self.tokens:
                self.meter.written([{"CapacityUnits": 2.0 * len(writes)}])
            transactions = Transactions(tables, lambda: 0.0, known=self.tokens)
            return transactions.begin(list(writes), token)[0]

        return bool(self._call("transact", writes, request))

    def describe(self, table: str) -> TableDescriptionTypeDef:
        def request() -> TableDescriptionTypeDef:
            if isinstance(self.description, Exception):
                raise self.description
            return {**self.description, "TableName": table}

        description: TableDescriptionTypeDef = self._call("describe", table, request)
        return description

    def _table(self, name: str) -> StoredTable:
        return _Stored(name, "", items=self.tables.setdefault(name, {}))

    def _call(self, kind: str, what: object, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        def sent() -> Any:  # noqa: ANN401
            leave()
            self.calls.append(kind)
            faults = self.transact_faults if kind == "transact" else self.faults
            fault = faults.pop(0) if faults and kind in WRITES else None
            if fault and not fault.applied:
                raise fault.error
            answer = request()
            if fault:
                raise fault.error
            return answer

        for plan in reversed(self.plans):
            sent = partial(plan, kind, what, sent)
        return sent()


class _Stored(StoredTable):
    """A table over a dict, which a test may change by hand."""

    def key_of(self, item: Mapping[str, Any]) -> ItemKey:
        """Of either table, whatever its name."""
        return key_of(item)

    def store(self, key: ItemKey, after: Item | None, *, local: bool = True) -> bool:  # noqa: ARG002
        """Keep no order and tell nobody."""
        if after is None:
            return self.items.pop(key, None) is not None
        self.items[key] = after
        return True


def _key_in(item: Item) -> Key:
    names: Iterable[str] = ("counter", "entry" if "entry" in item else "part")
    return {name: item[name] for name in names}
