"""A ledger counter that is compacted, deleted and used again: its tables and archive in memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

from countledger.compaction.archive import ArchiveLocation, S3Archive
from countledger.compaction.compactor import Compactor
from countledger.compaction.deletion import DeletionStage, RegionalTotals
from countledger.compaction.deletions import Deletions, LedgerDeleter
from countledger.compaction.report import CompactionReport
from countledger.consumers.groups import Groups
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.clock import Clock
from countledger.ledger.connection import Connection
from countledger.ledger.exact import ExactReader, Head, decode_head
from countledger.ledger.ids import Ids
from countledger.ledger.limits import DAY_MS, LEASE_MS
from countledger.ledger.operations import Delete, Put
from countledger.producers.event import Event
from countledger.producers.recorder import Recorder
from tests.simulation.objects import Bucket, ObjectsClient
from tests.unit.compaction.parts import COUNTERS, HOME, LEDGER, Stack
from tests.unit.connections import UnitConnection, connection_on
from tests.unit.ledger.memory import MemoryClient, meanwhile

COUNTER = "likes:post"
DELTAS = (1, 4, 16)


class Stopped(BaseException):
    """The process ends here."""


@dataclass
class World:
    """A namespace of ledger counters, one of which is compacted, deleted and used again.

    Attributes:
        hesitant: whether queries begin with an empty page.
        bucket: where the archive lies.
        unproven: why no total can be taken for final.
        tidied: up to which moment what lies beside a counter was deleted, call by call.
        lease_ms: how long the right to merge is.
        totals_in: the total of a region, if it is not that of the home.
        cleared: the regions and counters whose totals were cleared without a transaction.
        unproven_in: `unproven` of a region.
        copies: other copies of the ledger by region; others have that of the home.
    """

    hesitant: bool = False
    bucket: Bucket = field(default_factory=Bucket)
    unproven: str | None = None
    tidied: list[int] = field(default_factory=list)
    lease_ms: int = LEASE_MS
    cleared: list[tuple[str, str]] = field(default_factory=list)
    unproven_in: dict[str, str] = field(default_factory=dict)
    copies: dict[str, MemoryClient] = field(default_factory=dict)
    totals_in: dict[str, Item] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.description: dict[str, object] = {}
        table = cast("TableDescriptionTypeDef", self.description)
        self.dynamo = MemoryClient(description=table, hesitant=self.hesitant)
        self.stack = Stack(dynamo=self.dynamo)
        self.clock = self.stack.clock
        self.namespaces = self.stack.namespaces
        self.stack.namespace("likes")

    def later(self, duration_ms: int = 2 * DAY_MS) -> None:
        """Let time pass: two days, after which every entry is old enough."""
        self.clock.at_ms += duration_ms

    # ---- what somebody else does, once ----

    def before_write(self, act: Callable[[], object]) -> None:
        """Before the next put or transaction leaves."""
        self.dynamo.plans.append(meanwhile(act, "put", "transact"))

    def before_delete(self, part: str, act: Callable[[], object]) -> None:
        """Before an item of that sort key is deleted."""

        def fits(write: Delete) -> bool:
            return part in write.key.values()

        self.dynamo.plans.append(meanwhile(act, "delete", where=fits))

    def before_removal(self, part: str, act: Callable[[], object]) -> None:
        """Before a tombstone takes the place of an item of that sort key."""

        def fits(put: Put) -> bool:
            return part in put.item.values() and "removed" in put.item

        self.dynamo.plans.append(meanwhile(act, "put", where=fits))

    # ---- recording ----

    @property
    def recording(self) -> Connection:
        """A process that records, with ids as the product makes them."""
        return replace(self.stack.connection, ids=Ids())

    def use(self, *deltas: int, counter: str = COUNTER) -> None:
        """Entries, one millisecond after the other; no total has them."""
        recorder = Recorder(self.recording)
        for delta in deltas:
            self.later(1)
            receipt = recorder.record(Event(counter, delta))
            assert receipt.status == "recorded"

    def age(self, *deltas: int) -> None:
        """Entries that are old enough to be merged."""
        self.use(*deltas or DELTAS)
        self.later()

    def record(self, counter: str = COUNTER) -> None:
        """An entry, and the total that has it."""
        self.use(1, counter=counter)
        self.stack.total(counter, updated_at=self.clock.at_ms)

    # ---- what is stored ----

    def item(self, key: dict[str, str]) -> Item | None:
        return self.dynamo.get(LEDGER if "entry" in key else COUNTERS, key)

    @property
    def head(self) -> Head:
        return decode_head(self.item(keys.head_key(COUNTER)))

    @property
    def total(self) -> Item | None:
        return self.item(keys.total_key(COUNTER))

    def entries(self) -> list[Item]:
        return [one for one in self.dynamo.items(LEDGER) if one["entry"].startswith("e#")]

    def exact(self) -> int:
        return int(ExactReader(connection_on(self.dynamo, self.clock)).read(COUNTER).value)

    # ---- processes, each new ----

    def process(self, unique_id: Callable[[], str] | None = None) -> UnitConnection:
        return connection_on(
            self.dynamo,
            self.clock,
            region=HOME,
            unique_id=unique_id,
            copies=self.copies,
            home_region=HOME,
        )

    def compactor(
        self,
        new_run: Callable[[], str] | None = None,
        **settings: Any,  # noqa: ANN401 - of a compactor
    ) -> Compactor:
        return Compactor(self.process(new_run), workers=1, lease_ms=self.lease_ms, **settings)

    def compact(self, **settings: Any) -> CompactionReport:  # noqa: ANN401 - of a compactor
        return self.compactor(**settings).compact(COUNTER)

    @property
    def archive(self) -> S3Archive:
        """Where a compactor may store what it merges."""
        client: Any = ObjectsClient(self.bucket)
        return S3Archive(client, ArchiveLocation.parse("s3://archive/some/where"))

    def groups(self, clock: Clock | None = None) -> Groups:
        return Groups(connection_on(self.dynamo, clock or self.clock))

    def deleter(self, tidy: Callable[[str, int], Sequence[str]] | None = None) -> LedgerDeleter:
        return LedgerDeleter(
            self.process(),
            lambda region: RegionalTotals(
                lambda counter: self.totals_in.get(region) or self.item(keys.total_key(counter)),
                lambda _: self.unproven_in.get(region, self.unproven),
                lambda counter: self.cleared.append((region, counter)),
                tidy or self._tidy,
            ),
            self.compactor(),
        )

    def _tidy(self, _: str, before_ms: int) -> list[str]:
        self.tidied.append(before_ms)
        return []

    def deletions(self, deleter: LedgerDeleter, names: list[str]) -> Deletions:
        return Deletions(
            deleter, {}, lambda *_: None, lambda _: iter(names), lambda _: lambda: None
        )

    # ---- the calls of a deletion ----

    def delete(self, *stages: DeletionStage) -> None:
        """Call by call, two days after each other."""
        for stage in stages:
            assert self.deleter().delete(COUNTER).stage is stage
            self.later()

    def empty(self) -> None:
        self.stack.total(COUNTER, updated_at=self.clock.at_ms)
        self.delete(DeletionStage.MARKED, DeletionStage.DELETED)

    def forget(self) -> None:
        assert self.deleter().delete(COUNTER).stage is DeletionStage.FORGOTTEN
