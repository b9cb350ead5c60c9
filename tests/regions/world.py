"""A stack in several regions: the product's own code in each, and a replicator between them."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final
from uuid import uuid4

import boto3
from mypy_boto3_dynamodb import DynamoDBClient

from countledger.compaction.compactor import Compactor
from countledger.compaction.report import Retire
from countledger.consumers.materializer import Materializer
from countledger.consumers.record import ShardName, counts
from countledger.consumers.totals import TotalsReader
from countledger.infra.local.replication import Copy, Replicator
from countledger.infra.template import table_schemas
from countledger.ledger import keys
from countledger.ledger.connection import Connection
from countledger.ledger.exact import ExactReader
from countledger.ledger.limits import DAY_MS
from countledger.ledger.namespace import Namespaces
from countledger.ledger.settings import Settings
from countledger.producers.event import Event
from countledger.producers.recorder import Recorder
from tests.engines.clock import HandClock
from tests.engines.running import local_session
from tests.engines.store import KeptRecords

HOME: Final = "us-east-1"
OTHERS: Final = ("eu-west-1", "ap-southeast-2")


@dataclass
class World:
    """The regions of one stack; the first one is home.

    Attributes:
        connections: by region.
        replicator: between the regions' ledgers.
        records: by region the stream records so far, in order.
        clients: of DynamoDB by region, whose calls nobody watches.
        random: of this test.
        made: how many entries were recorded; the n-th adds 2^n, so that a sum names its entries.
        replica_status: what the table says of its replicas.
    """

    connections: dict[str, Connection]
    replicator: Replicator
    clients: dict[str, DynamoDBClient]
    random: Random
    counter: str = field(default_factory=lambda: f"n{uuid4().hex[:8]}:counter")
    made: int = 0
    records: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    replica_status: dict[str, str] = field(default_factory=dict)
    _delivered: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def regions(self) -> list[str]:
        """Home first."""
        return list(self.connections)

    def recorder(self, region: str) -> Recorder:
        """A recorder there, of a process that knows no namespace yet."""
        return Recorder(replace(self.connections[region], clock=HandClock(), _shared={}))

    def namespaces(self, region: str) -> Namespaces:
        """The namespaces as a process sees them there."""
        return Namespaces(replace(self.connections[region], _shared={}))

    def record(self, region: str) -> int:
        """Record the next entry there; its bit in every sum."""
        bit = 1 << self.made
        self.made += 1
        receipt = self.recorder(region).record(Event(self.counter, bit))
        assert receipt.status == "recorded"
        return bit

    def compactor(self, *, retire: Retire) -> Compactor:
        """A compactor at home, two days later; while it waits, versions arrive."""
        connection = replace(
            self.connections[HOME], clock=_Impatient(self), random=self.random, _shared={}
        )
        return Compactor(connection, retire, covers_max=4, workers=1)

    def exact(self, region: str) -> int:
        """The exact sum there."""
        connection = self.connections[region]
        total = ExactReader(connection).read(self.counter).value
        assert isinstance(total, int)
        return total

    def total(self, region: str) -> int:
        """The total there, once its stream has been handled."""
        self.replicator.note(region)
        copy, records = self.replicator.copies[region], self.records[region]
        new = [one for one in records[self._delivered[region] :] if counts(one)]
        self._delivered[region] = len(records)
        connection = self.connections[region]
        if new:
            quarantine = KeptRecords()
            outcome = Materializer(connection, quarantine).apply(
                new, ShardName(copy.stream_arn, "0")
            )
            assert not outcome.failed
            assert not quarantine.kept
        total = TotalsReader(connection, of_ledgers=True).read(self.counter, consistent=True).value
        assert isinstance(total, int)
        return total

    def cut(self, *regions: str) -> None:
        """Cut these regions off from all others."""
        for one in self.regions:
            for other in self.regions:
                if one != other and (one in regions) != (other in regions):
                    self.replicator.cut.add((one, other))


@dataclass
class _Impatient(HandClock):
    """Two days from now; whoever sleeps lets one version arrive."""

    world: World | None = None

    def __init__(self, world: World) -> None:
        super().__init__()
        self.at_ms += 2 * DAY_MS
        self.world = world

    def sleep_ms(self, duration_ms: float) -> None:
        """Time passes, and something arrives."""
        super().sleep_ms(duration_ms)
        if self.world is not None:
            self.world.replicator.step()


@contextmanager
def open_world(url: str, count: int, seed: int) -> Iterator[World]:
    """A stack in so many regions of the engine at an address."""
    names = [HOME, *OTHERS][:count]
    tables = {room: f"regions-{uuid4().hex[:12]}-{room}" for room in ("ledger", "counters")}
    clients = {
        name: local_session(region=name).client("dynamodb", endpoint_url=url) for name in names
    }
    copies = {name: _make(url, name, clients[name], tables) for name in names}
    random = Random(seed)  # noqa: S311 - a test's
    world = World({}, Replicator(copies, random), clients, random)
    world.replicator.on_records = lambda region, new: world.records[region].extend(new)
    world.replica_status = dict.fromkeys(names, "ACTIVE")
    for region in names:
        settings = Settings(
            ledger_table=tables["ledger"], counters_table=tables["counters"], home_region=HOME
        )
        session = local_session(region=region)
        _watch(session, world)
        world.connections[region] = Connection.open(settings, session=session, endpoint_url=url)
    world.namespaces(HOME).create(keys.namespace_of(world.counter))
    world.replicator.catch_up()
    try:
        yield world
    finally:
        world.replicator.stop()
        for client in clients.values():
            for table in tables.values():
                client.delete_table(TableName=table)


def _make(url: str, region: str, client: DynamoDBClient, tables: dict[str, str]) -> Copy:
    arns = {}
    for room, schema in table_schemas().items():
        made = client.create_table(TableName=tables[room], **schema.create_table)
        arns[room] = made["TableDescription"]["LatestStreamArn"]
    return Copy(region, url, tables["ledger"], arns["ledger"])


def _watch(session: boto3.Session, world: World) -> None:
    """Note every write where it happened.

    The engine knows no replicas that lag: those of the test are put into what it says of the table.
    """

    def after(context: dict[str, Any], parsed: dict[str, Any], model: Any, **_: object) -> None:  # noqa: ANN401 - botocore's
        region = context["client_region"]
        if model.name in _WRITES:
            world.replicator.note(region)
        if model.name == "DescribeTable" and "Table" in parsed:
            parsed["Table"]["Replicas"] = [
                {"RegionName": name, "ReplicaStatus": status}
                for name, status in world.replica_status.items()
                if name != region
            ]

    session.events.register("after-call.dynamodb", after)


_WRITES: Final = frozenset(
    {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"}
)
