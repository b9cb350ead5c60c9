"""The product's dynamo, over simulated tables: the same interface, and anything may happen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

from countledger.infra.memory.client import TableClient
from countledger.infra.memory.tables import Table, Transactions, holds
from countledger.ledger.attributes import Item
from countledger.ledger.errors import Reason, TransactionCancelled, Unclear
from countledger.ledger.keys import MEMBER_PREFIX
from countledger.ledger.operations import AllOf, Delete, Page, Put, Query, Scan, Update, Write
from tests.simulation.faults import Fault
from tests.simulation.process import SDK_ATTEMPTS, Process
from tests.simulation.strong import StrongTable
from tests.simulation.table import SimulatedTable

T = TypeVar("T")

# For how long a read that is not consistent may show what was there before, and how often.
STALE_MS: Final = 1_000
_STALE: Final = 0.3
# The index of memberships; and what the one of due counters has of an item.
_MEMBERS: Final = "members"
_DUE: Final = "due_at"
_LISTED: Final = ("counter", "part", "due_bucket", _DUE)
# How often two items of a page are of different moments.
_APART: Final = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedClient(TableClient):
    """A client to one region.

    Attributes:
        process: whose client it is.
        region: where it leads.
        attempts: how often its SDK sends a call.
        salvages: whether the tables of a lost region answer again.
    """

    process: Process
    region: str
    attempts: int = SDK_ATTEMPTS
    salvages: bool = False

    def table(self, name: str) -> SimulatedTable:
        """One of the region's."""
        world = self.process.world
        if self.region in world.gone and not self.salvages:
            self.process.sleep_ms(world.latency_ms())
            raise Unclear(f"{self.region} does not answer")
        return world.copies[self.region][name]

    def transactions(self) -> Transactions:
        """Those of the region."""
        return self.process.world.transactions[self.region]

    def read(self, what: str, request: Callable[[], T]) -> T:
        """As the process carries it out."""
        return self.process.read(what, request, attempts=self.attempts)

    def written(self, what: str, request: Callable[[], T]) -> T:
        """As the process carries it out."""
        return self.process.write(what, request, attempts=self.attempts)

    @property
    def page_items(self) -> int:
        """As the seed drew it."""
        return self.process.world.shape.page_items

    def page(self, read: Query | Scan) -> Page:
        """A page is no snapshot: each item is as of its own moment."""
        self.read(type(read).__name__, lambda: None)
        return self.page_of(self.table(read.table), read)

    def page_of(self, table: Table, read: Query | Scan) -> Page:
        """What a page shows; of an index a little late."""
        if not isinstance(read, Query) or read.index is None:
            return TableClient.page_of(self, table, read)
        if not isinstance(table, SimulatedTable):
            raise TypeError(f"no table of the simulation: {table!r}")
        if read.index == _MEMBERS:
            found = self._memberships(table, read)
        else:
            found = self._listed(table, read)
        return Page(found, None, len(found))

    def between_items(self) -> None:
        """Others may write."""
        world = self.process.world
        if world.random.random() < _APART:
            self.process.sleep_ms(world.latency_ms())

    def write_one(self, what: str, write: Put | Update | Delete) -> Item | None:
        """One write; of a table with strong consistency in all regions."""
        copy, random = self.table(write.table), self.process.world.random
        if isinstance(copy, StrongTable):
            there, region = copy, self.region
            return self.written(what, lambda: there.write_from(region, write, random))
        return self.written(what, lambda: copy.write(write))

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """All or nothing; each item changes at its own moment."""
        world, process = self.process.world, self.process
        service = world.transactions[self.region]
        self.check_transaction(writes)

        def request() -> tuple[bool, float]:
            if world.faults.strikes(Fault.CONFLICT, process.acting):
                raise TransactionCancelled(tuple(_conflict(n) for n in range(len(writes))))
            return service.begin(writes, token)

        fresh, takes_ms = self.written("TransactWriteItems", request)
        if takes_ms:
            process.sleep_ms(takes_ms)
        return fresh

    def store_batch(self, table: Table, items: Sequence[Item]) -> list[Item]:
        """Some may be left."""
        world, operation = self.process.world, self.process.acting
        left: list[Item] = []
        for item in items:
            if world.faults.strikes(Fault.UNPROCESSED, operation):
                left.append(item)
            else:
                TableClient.store_batch(self, table, [item])
        return left

    def describe(self, table: str) -> TableDescriptionTypeDef:
        """The other regions, and whether they are in service."""
        self.read("DescribeTable", lambda: None)
        members = self.process.world.members
        others = [name for name in members if name != self.region and self.region in members]
        replicas = [{"RegionName": name, "ReplicaStatus": members[name]} for name in others]
        found: Any = {"TableName": table, "TableStatus": "ACTIVE"}
        return cast("TableDescriptionTypeDef", found | ({"Replicas": replicas} if others else {}))

    def seen(self, table: Table, key: tuple[str, str], *, consistent: bool) -> Item | None:
        """What is there; or, of a read that is not consistent, what was there a moment ago."""
        if isinstance(table, StrongTable):
            table.check_answers(self.region)
        item = table.items.get(key)
        if not consistent and isinstance(table, SimulatedTable) and key in table.earlier:
            changed_ms, before = table.earlier[key]
            world = self.process.world
            fresh = world.schedule.now_ms - changed_ms > STALE_MS
            if not fresh and world.random.random() < _STALE:
                item = before
        return None if item is None else dict(item)

    def _listed(self, copy: SimulatedTable, read: Query) -> list[Item]:
        """What the index of due counters lists, in its order: its own attributes, a little late."""
        if not isinstance(read.condition, AllOf):
            raise TypeError(f"no simulation of {read!r}")
        indexed = [
            key
            for key, item in copy.items.items()
            if _DUE in item or _DUE in (copy.earlier[key][1] or {})
        ]
        items = (self.seen(copy, key, consistent=False) or {} for key in indexed)
        found = [
            {name: item[name] for name in _LISTED} for item in items if holds(read.condition, item)
        ]
        return sorted(found, key=lambda item: item[_DUE])

    def _memberships(self, copy: SimulatedTable, read: Query) -> list[Item]:
        """What the index of memberships lists: their keys, a little late."""
        wanted = [key for key in sorted(copy.earlier) if key[1].startswith(MEMBER_PREFIX)]
        items = (self.seen(copy, key, consistent=False) or {} for key in wanted)
        return [
            {name: item[name] for name in ("counter", copy.sort, "member")}
            for item in items
            if holds(read.condition, item)
        ]


def _conflict(number: int) -> Reason:
    return Reason("TransactionConflict" if number == 0 else "None")
