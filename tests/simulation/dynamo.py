"""The product's dynamo, over simulated tables: the same interface, and anything may happen."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import Reason, RequestRejected, TransactionCancelled, Unclear
from countledger.ledger.expressions import AllOf, Compare
from countledger.ledger.keys import MEMBER_PREFIX
from countledger.ledger.limits import BATCH_GET_KEYS, BATCH_WRITE_ITEMS, TRANSACTION_ACTIONS
from countledger.ledger.operations import Page, Query
from tests.simulation.faults import Fault
from tests.simulation.judgement import holds, key_of
from tests.simulation.process import SDK_ATTEMPTS
from tests.simulation.strong import StrongTable
from tests.simulation.table import written_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.operations import Delete, Put, PutBatch, Scan, Update, Write
    from tests.simulation.process import Process
    from tests.simulation.table import Table

# For how long a read that is not consistent may show what was there before, and how often.
_STALE_MS: Final = 1_000
_STALE: Final = 0.3
# The index of memberships; and what the one of due counters has of an item.
_MEMBERS: Final = "members"
_DUE: Final = "due_at"
_LISTED: Final = ("counter", "part", "due_bucket", _DUE)
# How often two items of a page are of different moments.
_APART: Final = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedClient(DynamoClient):
    """A client to one region.

    Attributes:
        process: whose client it is.
        region: where it leads.
        attempts: how often its SDK sends a call.
        salvages: whether the tables of a lost region answer again.
    """

    client: DynamoDBClient = field(default_factory=lambda: cast("DynamoDBClient", None))
    process: Process
    region: str
    attempts: int = SDK_ATTEMPTS
    salvages: bool = False

    def get(self, table: str, key: Key, *, consistent: bool = False) -> Item | None:
        """One item."""
        copy = self._copy(table)
        return self.process.read(
            "GetItem",
            lambda: self._see(copy, key_of(key), consistent=consistent),
            attempts=self.attempts,
        )

    def get_many(self, table: str, keys: Sequence[Key], *, consistent: bool = False) -> list[Item]:
        """Those that exist, each as of its own moment."""
        copy = self._copy(table)
        for start in range(0, len(keys), BATCH_GET_KEYS):
            _refuse_unfit(
                [key_of(key) for key in keys[start : start + BATCH_GET_KEYS]], BATCH_GET_KEYS
            )

        def look() -> list[Item]:
            found = (self._see(copy, key_of(key), consistent=consistent) for key in keys)
            return [item for item in found if item is not None]

        return self.process.read("BatchGetItem", look, attempts=self.attempts) if keys else []

    def page(self, read: Query | Scan) -> Page:
        """A page is no snapshot: each item is as of its own moment."""
        what = type(read).__name__
        self.process.read(what, lambda: None, attempts=self.attempts)
        copy = self._copy(read.table)
        if not isinstance(read, Query):
            return self._scan(copy, read)
        if read.index == _MEMBERS:
            return Page(self._memberships(copy, read), None)
        if read.index is not None:
            return Page(self._listed(copy, read), None)
        return self._query(copy, read)

    def put(self, write: Put) -> None:
        """Write one item."""
        self._write("PutItem", write)

    def update(self, write: Update) -> Item | None:
        """Change one item."""
        after = self._write("UpdateItem", write)
        return dict(after) if after is not None and write.returning == "ALL_NEW" else None

    def delete(self, write: Delete) -> None:
        """Remove one item."""
        self._write("DeleteItem", write)

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """All or nothing; each item changes at its own moment."""
        world, process = self.process.world, self.process
        service = world.transactions[self.region]
        _refuse_unfit([(write.table, written_key(write)) for write in writes], TRANSACTION_ACTIONS)

        def request() -> tuple[bool, float]:
            if world.faults.strikes(Fault.CONFLICT, process.acting):
                raise TransactionCancelled(tuple(_conflict(n) for n in range(len(writes))))
            return service.begin(writes, token)

        fresh, takes_ms = process.write("TransactWriteItems", request, attempts=self.attempts)
        if takes_ms:
            process.sleep_ms(takes_ms)
        return fresh

    def transact_get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        """Items as of one moment."""
        service = self.process.world.transactions[self.region]
        wanted = [key_of(key) for key in keys]
        _refuse_unfit(wanted, TRANSACTION_ACTIONS)
        return self.process.read(
            "TransactGetItems", lambda: service.get(table, wanted), attempts=self.attempts
        )

    def put_entries(self, batch: PutBatch) -> list[Item]:
        """Write several entries."""
        return self.put_batch(batch.table, batch.items)

    def put_batch(self, table: str, items: Sequence[Item]) -> list[Item]:
        """Write several items without condition; some may be left."""
        copy, world, operation = self._copy(table), self.process.world, self.process.acting
        _refuse_unfit([key_of(item) for item in items], BATCH_WRITE_ITEMS)

        def request() -> list[Item]:
            left: list[Item] = []
            for item in items:
                if world.faults.strikes(Fault.UNPROCESSED, operation):
                    left.append(item)
                else:
                    copy.store(key_of(item), {n: v for n, v in item.items() if v is not None})
            return left

        return self.process.write("BatchWriteItem", request, attempts=self.attempts)

    def describe(self, table: str) -> TableDescriptionTypeDef:
        """The other regions, and whether they are in service."""
        self.process.read("DescribeTable", lambda: None, attempts=self.attempts)
        members = self.process.world.members
        others = [name for name in members if name != self.region and self.region in members]
        replicas = [{"RegionName": name, "ReplicaStatus": members[name]} for name in others]
        found: Any = {"TableName": table, "TableStatus": "ACTIVE"}
        return cast("TableDescriptionTypeDef", found | ({"Replicas": replicas} if others else {}))

    def _copy(self, table: str) -> Table:
        world = self.process.world
        if self.region in world.gone and not self.salvages:
            self.process.sleep_ms(world.latency_ms())
            raise Unclear(f"{self.region} does not answer")
        return self.process.world.copies[self.region][table]

    def _write(self, what: str, write: Put | Update | Delete) -> Item | None:
        copy, random = self._copy(write.table), self.process.world.random
        if isinstance(copy, StrongTable):
            there, region = copy, self.region
            return self.process.write(
                what, lambda: there.write_from(region, write, random), attempts=self.attempts
            )
        return self.process.write(what, lambda: copy.write(write), attempts=self.attempts)

    def _see(self, copy: Table, key: tuple[str, str], *, consistent: bool) -> Item | None:
        if isinstance(copy, StrongTable):
            copy.check_answers(self.region)
        item = copy.items.get(key)
        if not consistent and key in copy.earlier:
            changed_ms, before = copy.earlier[key]
            world = self.process.world
            fresh = world.schedule.now_ms - changed_ms > _STALE_MS
            if not fresh and world.random.random() < _STALE:
                item = before
        return None if item is None else dict(item)

    def _query(self, copy: Table, read: Query) -> Page:
        world = self.process.world
        partition, range_ = _parted(read)
        size = read.page_size or world.shape.page_items
        after = read.after[copy.sort] if read.after else None
        items: list[Item] = []
        while (key := _next(copy, partition, after, forward=read.forward)) is not None:
            after = key
            if range_ is not None and not holds(range_, {copy.sort: key}):
                continue
            if world.random.random() < _APART:
                self.process.sleep_ms(world.latency_ms())
            # It may have gone meanwhile.
            if item := copy.items.get((partition, key)):
                items.append(dict(item))
            if len(items) == size:
                return Page(items, {"counter": partition, copy.sort: key})
        return Page(items, None)

    def _listed(self, copy: Table, read: Query) -> list[Item]:
        """What the index of due counters lists, in its order: its own attributes, a little late."""
        if not isinstance(read.condition, AllOf):
            raise TypeError(f"no simulation of {read!r}")
        indexed = [
            key
            for key, item in copy.items.items()
            if _DUE in item or _DUE in (copy.earlier[key][1] or {})
        ]
        items = (self._see(copy, key, consistent=False) or {} for key in indexed)
        found = [
            {name: item[name] for name in _LISTED} for item in items if holds(read.condition, item)
        ]
        return sorted(found, key=lambda item: item[_DUE])

    def _memberships(self, copy: Table, read: Query) -> list[Item]:
        """What the index of memberships lists: their keys, a little late."""
        wanted = [key for key in sorted(copy.earlier) if key[1].startswith(MEMBER_PREFIX)]
        items = (self._see(copy, key, consistent=False) or {} for key in wanted)
        return [
            {name: item[name] for name in ("counter", copy.sort, "member")}
            for item in items
            if holds(read.condition, item)
        ]

    def _scan(self, copy: Table, read: Scan) -> Page:
        size = read.page_size or self.process.world.shape.page_items
        mine = sorted(k for k in copy.items if sum(k[0].encode()) % read.segments == read.segment)
        after = key_of(read.after) if read.after else ("", "")
        left = [key for key in mine if key > after]
        found = [copy.items[key] for key in left[:size]]
        if read.where is not None:
            found = [item for item in found if holds(read.where, item)]
        shown = [{n: item[n] for n in read.only or item if n in item} for item in found]
        if len(left) <= size:
            return Page(shown, None)
        last = left[size - 1]
        return Page(shown, {"counter": last[0], copy.sort: last[1]})


def _refuse_unfit(keys: Sequence[object], most: int) -> None:
    """A call of several items names some, not too many, and each once."""
    if not 0 < len(keys) <= most or len(set(keys)) < len(keys):
        raise RequestRejected(f"no such call is valid: {keys}")


def _conflict(number: int) -> Reason:
    return Reason("TransactionConflict" if number == 0 else "None")


def _parted(read: Query) -> tuple[str, Any]:
    """The partition of a query, and the range of sort keys in it."""
    match read.condition:
        case Compare("counter", "=", str() as partition):
            return partition, None
        case AllOf() as both:
            first, second = both.conditions
            if isinstance(first, Compare):
                return str(first.value), second
    raise TypeError(f"no simulation of {read!r}")


def _next(copy: Table, partition: str, after: str | None, *, forward: bool) -> str | None:
    order = copy.partitions.get(partition, [])
    if forward:
        at = 0 if after is None else bisect_right(order, after)
        return order[at] if at < len(order) else None
    at = (len(order) if after is None else bisect_left(order, after)) - 1
    return order[at] if at >= 0 else None
