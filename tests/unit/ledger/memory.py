"""The client of a stack in memory over the tables of a unit test, with faults that a test plans.

What an operation does is `countledger.infra.memory.client.TableClient`, for a stack in memory as
for this client; the contract suite compares it with every engine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Lock
from typing import Any, Final, TypeAlias, TypeVar, cast

from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

from countledger.infra.memory.client import TableClient
from countledger.infra.memory.tables import Key as ItemKey
from countledger.infra.memory.tables import StoredTable, Table, Transactions, key_of
from countledger.ledger.attributes import Item, Key
from countledger.ledger.departure import leave
from countledger.ledger.errors import ConditionFailed, TransactionCancelled, Unclear
from countledger.ledger.operations import Delete, Page, Put, Query, Scan, Update, Write

_T = TypeVar("_T")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryClient(TableClient):
    """A client of which no answer is late, unless a plan says so.

    Attributes:
        tables: table name -> key -> item; a test may change them by hand.
        plans: what happens around each call, the first one outermost.
        faults: what the coming single writes and batches meet, one each; None lets one through.
        hesitant: whether a read begins with an empty page, although items follow.
        page_items: the most items of a page.
        calls: the kind of every call, in order.
        description: of every table, or the error that a description fails with.
    """

    tables: dict[str, dict[ItemKey, Item]] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)
    faults: list[Fault | None] = field(default_factory=list)
    hesitant: bool = False
    page_items: int = 1_000_000
    calls: list[str] = field(default_factory=list)
    description: TableDescriptionTypeDef | Exception = field(default_factory=lambda: _PLAIN)
    # What was written under each token; they are kept for ever.
    _tokens: dict[str, tuple[str, float]] = field(default_factory=dict)

    def items(self, table: str) -> list[Item]:
        """Everything in a table, in key order."""
        stored = self.tables.get(table, {})
        return [stored[key] for key in sorted(stored)]

    def table(self, name: str) -> Table:
        return _Stored(name, tables=self.tables)

    def transactions(self) -> Transactions:
        return Transactions(_ByName(self.table), lambda: 0.0, known=self._tokens)

    def read(self, what: str, request: Callable[[], _T]) -> _T:  # noqa: ARG002 - planned by the calls
        return request()

    def written(self, what: str, request: Callable[[], _T]) -> _T:  # noqa: ARG002 - as `read`
        return request()

    # ---- each call with its plans ----

    def get(self, table: str, key: Key, *, consistent: bool = False) -> Item | None:
        def request() -> Item | None:
            self.meter.read([{"CapacityUnits": 1.0 if consistent else 0.5}])
            return TableClient.get(self, table, key, consistent=consistent)

        item: Item | None = self._call("get", Get(table, key, consistent), request)
        return item

    def get_many(self, table: str, keys: Sequence[Key], *, consistent: bool = False) -> list[Item]:
        return [found for key in keys if (found := self.get(table, key, consistent=consistent))]

    def transact_get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        return [self.get(table, key, consistent=True) for key in keys]

    def page(self, read: Query | Scan) -> Page:
        if self.hesitant and read.after is None:
            return Page([], dict(_START), 0)
        if read.after == _START:
            read = replace(read, after=None)
        kind, request = type(read).__name__.lower(), partial(TableClient.page, self, read)
        page: Page = self._call(kind, read, request)
        return page

    def put(self, write: Put) -> None:
        self._call("put", write, partial(TableClient.put, self, write))

    def update(self, write: Update) -> Item | None:
        item: Item | None = self._call("update", write, partial(TableClient.update, self, write))
        return item

    def delete(self, write: Delete) -> None:
        self._call("delete", write, partial(TableClient.delete, self, write))

    def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
        left: list[Item] = self._call(
            "put_batch", items, partial(TableClient.put_batch, self, table, items)
        )
        return left

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """All or nothing; two units for each write."""

        def request() -> bool:
            if token not in self._tokens:
                self.meter.written([{"CapacityUnits": 2.0 * len(writes)}])
            return TableClient.transact(self, writes, token)

        return bool(self._call("transact", writes, request))

    def describe(self, table: str) -> TableDescriptionTypeDef:
        def request() -> TableDescriptionTypeDef:
            if isinstance(self.description, Exception):
                raise self.description
            return {**self.description, "TableName": table}

        description: TableDescriptionTypeDef = self._call("describe", table, request)
        return description

    def _call(self, kind: str, what: object, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        def sent() -> Any:  # noqa: ANN401
            leave()
            self.calls.append(kind)
            single = kind in WRITES and kind != "transact"
            fault = self.faults.pop(0) if single and self.faults else None
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
    """A table over dicts, which a test may change by hand: its order is that of the moment."""

    def __init__(self, name: str, tables: dict[str, dict[ItemKey, Item]]) -> None:
        items = tables.get(name, {})
        one = next(iter(items.values()), {})
        super().__init__(name, "entry" if "entry" in one else "part", items=items)
        self._tables = tables

    def key_of(self, item: Mapping[str, Any]) -> ItemKey:
        """Of either table, whatever its name."""
        return key_of(item)

    def store(self, key: ItemKey, after: Item | None, *, local: bool = True) -> bool:  # noqa: ARG002
        """Keep no order and tell nobody."""
        if after is None:
            return self.items.pop(key, None) is not None
        self._tables.setdefault(self.name, self.items)[key] = after
        return True

    def next_sort_key(self, partition: object, after: object, *, forward: bool) -> Any:  # noqa: ANN401
        if not self.partitions:
            for counter, sort in sorted(self.items):
                self.partitions.setdefault(counter, []).append(sort)
        return super().next_sort_key(partition, after, forward=forward)

    def keys_after(self, after: ItemKey | None) -> Iterator[ItemKey]:
        return (key for key in sorted(self.items) if after is None or key > after)


class _ByName(dict[str, Table]):
    """The tables of a transaction."""

    def __init__(self, table: Callable[[str], Table]) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, name: str) -> Table:
        return self._table(name)
