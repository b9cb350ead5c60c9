"""The store under test: both tables of the template on one engine, and what is built on them."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import monotonic, sleep
from typing import Any, Final
from uuid import uuid4

import pytest
from mypy_boto3_dynamodb import DynamoDBClient
from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient

from countledger import CountLedger
from countledger.consumers.materializer import Materializer
from countledger.consumers.record import ShardName, label_of
from countledger.consumers.totals import TotalsReader
from countledger.infra.local.mappings import record_filter
from countledger.infra.local.shards import StreamShardReader, list_shards
from countledger.infra.template import mapping_settings, table_schemas
from countledger.ledger import keys
from countledger.ledger.attributes import Item, Key
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.connection import Connection
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.exact import ExactReader
from countledger.ledger.namespace import Namespaces
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Query
from countledger.ledger.settings import Settings
from countledger.producers.recorder import Recorder
from tests.engines.clock import HandClock
from tests.engines.differences import Difference, Engine
from tests.unit.connections import UnitConnection, connection_on
from tests.unit.producers.senders import of_entries

Record = Mapping[str, Any]

_STREAM_PATIENCE_S: Final = 30.0
_POLL_S: Final = 0.02
_DELETE_PATIENCE_S: Final = 60.0


@dataclass
class KeptRecords:
    """A quarantine that keeps its records in memory, with reason and shard."""

    kept: list[tuple[Record, str, str]] = field(default_factory=list)

    def put(self, record: Record, reason: str, shard: str) -> None:
        """Keep a record."""
        self.kept.append((record, reason, shard))

    def reasons(self) -> list[str]:
        """Why they are here."""
        return [reason for _, reason, _ in self.kept]


@dataclass(frozen=True)
class Store:
    """Both tables on an engine.

    Attributes:
        engine: where they are.
        connection: the product's own, with their names.
        stream_arn: the stream of `ledger`.
    """

    engine: Engine
    connection: Connection
    stream_arn: str
    _read: dict[ShardName, list[Record]] = field(default_factory=dict, repr=False)
    _readers: dict[str, StreamShardReader] = field(default_factory=dict, repr=False)

    @property
    def ledger(self) -> str:
        """The name of the table `ledger`."""
        return self.connection.setting("ledger_table")

    @property
    def counters(self) -> str:
        """The name of the table `counters`."""
        return self.connection.setting("counters_table")

    @property
    def region(self) -> str:
        """The engine's region, and the home region."""
        return self.connection.region

    def app(self) -> CountLedger:
        """The product as an app has it: a new process, with clients of its own."""
        engine, settings = self.engine, self.connection.settings
        return CountLedger(settings, session=engine.session, endpoint_url=engine.endpoint_url)

    def dynamo(self) -> DynamoClient:
        """A client with a meter of its own, whose SDK may retry."""
        return self.connection.dynamo("standard").metered()

    @cached_property
    def _own_dynamo(self) -> DynamoClient:
        """The client of the test itself; to make a client takes as long as twenty calls."""
        return self.dynamo()

    @cached_property
    def _streams(self) -> "DynamoDBStreamsClient":
        return self.connection.streams()

    def process(
        self,
        clock: Clock | None = None,
        *,
        region: str | None = None,
        dynamo: DynamoClient | None = None,
        writes: DynamoClient | None = None,
    ) -> UnitConnection:
        """A process that knows nothing yet, with a meter of its own.

        Args:
            clock: its clock; one that stands still unless given.
            region: where it is; the engine's unless given, which is the home region.
            dynamo: its client whose SDK retries.
            writes: its client whose SDK does not; the same one unless given.
        """
        retrying = dynamo or self._own_dynamo.metered()
        return connection_on(
            writes or retrying,
            clock or HandClock(),
            region=region or self.region,
            retrying=retrying,
            clients={"dynamodbstreams": self._streams},
            home_region=self.region,
            ledger_table=self.ledger,
            counters_table=self.counters,
            ledger_stream_arn=self.stream_arn,
        )

    def client(self) -> Any:  # noqa: ANN401 - for what the product never does
        """A plain client, to see and to corrupt what is stored."""
        return self._own_dynamo.client

    def namespaces(
        self, *, region: str | None = None, dynamo: DynamoClient | None = None
    ) -> Namespaces:
        """The namespaces, seen by a process that knows none yet."""
        return Namespaces(self.process(region=region, dynamo=dynamo))

    def recorder(
        self,
        *,
        clock: Clock | None = None,
        region: str | None = None,
    ) -> Recorder:
        """A recorder of a process that knows no namespace yet; the waits of its retries are none.

        Args:
            clock: its clock; one that stands still unless given.
            region: where it works; namespaces are made in the engine's.
        """
        writes = replace(self.connection.dynamo("none").metered(), limits=None)
        return Recorder(of_entries(self.process(clock, region=region, writes=writes)))

    def exact(self) -> ExactReader:
        """An exact reader."""
        return ExactReader(self.process())

    def totals(self) -> TotalsReader:
        """A reader of totals."""
        return TotalsReader(self.process())

    def materializer(
        self, *, quarantine: KeptRecords | None = None, clock: Clock | None = None
    ) -> Materializer:
        """A materializer."""
        process = self.process(clock or SystemClock(), dynamo=self.dynamo())
        return Materializer(process, quarantine or KeptRecords())

    def entry_items(self, counter: str) -> list[Item]:
        """What is stored of a counter's entries, as plain values."""
        entries = BeginsWith("entry", keys.ENTRY_PREFIX)
        condition = AllOf(Compare("counter", "=", counter), entries)
        query = Query(self.ledger, condition, consistent=True)
        return [item for page in self._own_dynamo.pages(query) for item in page]

    def item(self, table: str, key: Key) -> Item | None:
        """What is stored under a key, as plain values."""
        return self._own_dynamo.get(table, key, consistent=True)

    def records(self, counter: str, at_least: int) -> dict[ShardName, list[Record]]:
        """A counter's records that pass the mapping's filter, by shard, as Lambda delivers them.

        Args:
            counter: whose records.
            at_least: how many to wait for.
        """
        return self.stream_records(
            lambda record: record["dynamodb"]["Keys"]["counter"]["S"] == counter, at_least
        )

    def stream_records(
        self, wanted: Callable[[Record], bool], at_least: int
    ) -> dict[ShardName, list[Record]]:
        """The wanted ones among the records that pass the mapping's filter, by shard."""
        if self.engine.has(Difference.HAS_NO_STREAMS):
            pytest.skip(Difference.HAS_NO_STREAMS.value)
        deadline = monotonic() + _STREAM_PATIENCE_S
        while True:
            self._read_on()
            found = {s: [r for r in records if wanted(r)] for s, records in self._read.items()}
            found = {shard: records for shard, records in found.items() if records}
            count = sum(map(len, found.values()))
            if count >= at_least:
                return found
            if monotonic() > deadline:
                raise TimeoutError(f"the stream shows {count} records and not {at_least}")
            sleep(_POLL_S)

    def _read_on(self) -> None:
        streams = self._streams
        passes = record_filter(mapping_settings().filter_patterns)
        for shard in list_shards(streams, self.stream_arn):
            reader = self._readers.setdefault(
                shard.shard_id,
                StreamShardReader(
                    streams, self.stream_arn, shard.shard_id, start="TRIM_HORIZON", passes=passes
                ),
            )
            if self.engine.has(Difference.TRANSACTIONS_COPY_THEIR_TABLES):
                # An iterator goes on over the tables as they were before the last cancelled one.
                reader._iterator = None
            read = self._read.setdefault(ShardName(label_of(self.stream_arn), shard.shard_id), [])
            came = 1
            while came:
                came, records = reader.read()
                read += [json.loads(record.encoded) for record in records]


@contextmanager
def fresh_store(engine: Engine) -> Iterator[Store]:
    """Make both tables under names of their own; delete them at the end, whatever happened."""
    name = f"countledger-test-{uuid4().hex[:12]}"
    client = engine.session.client("dynamodb", endpoint_url=engine.endpoint_url)
    names = {room: f"{name}-{room}" for room in table_schemas()}
    streams: dict[str, str] = {}
    with ExitStack() as made:
        for room, schema in table_schemas().items():
            request: dict[str, Any] = {**schema.create_table}
            if engine.has(Difference.HAS_NO_STREAMS):
                request.pop("StreamSpecification", None)
            # An error does not say that the table was not made.
            made.callback(_delete_table, client, names[room])
            answer = client.create_table(TableName=names[room], **request)
            streams[room] = answer["TableDescription"].get("LatestStreamArn", "")
        for table in names.values():
            client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1})
        yield Store(engine, _connection(engine, names), streams["ledger"])


def _delete_table(client: "DynamoDBClient", table: str) -> None:
    """Delete a table, also one that is still being made, or that never was."""
    deadline = monotonic() + _DELETE_PATIENCE_S
    while True:
        try:
            client.delete_table(TableName=table)
        except client.exceptions.ResourceNotFoundException:
            return
        except client.exceptions.ResourceInUseException:
            if monotonic() > deadline:
                raise
            sleep(1)
        else:
            return


def _connection(engine: Engine, names: Mapping[str, str]) -> Connection:
    settings = Settings(
        ledger_table=names["ledger"],
        counters_table=names["counters"],
        home_region=engine.session.region_name,
    )
    return Connection.open(settings, session=engine.session, endpoint_url=engine.endpoint_url)
