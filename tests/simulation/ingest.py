"""The way in through Kinesis: the stream, the ingest's function behind its mapping, its queues."""

import base64
from collections.abc import Mapping as Map
from dataclasses import dataclass, field, replace
from typing import Any, Final

from countledger.infra.local.shards import KinesisSource
from countledger.infra.local.shards import ShardSource as Shards
from countledger.infra.template import mapping_settings
from countledger.ledger import keys
from countledger.ledger.clock import Backoff
from countledger.ledger.errors import BadInput
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.quarantine import (
    QuarantineSource,
    QuarantineStore,
    decode_quarantined,
    quarantine_ids_in,
)
from countledger.producers.ingest.handler import answer_of, source_of
from countledger.producers.ingest.ingest import (
    Ingest,
    IngestOutcome,
    IngestQuarantine,
    IngestQueues,
)
from countledger.producers.ingest.redrive import ExpiredEntries
from countledger.producers.kinesis import (
    BrokenAggregate,
    KinesisProducer,
    decode,
    unpack_record,
)
from tests.simulation.client import Memory
from tests.simulation.connection import ProcessConnection, connection_of
from tests.simulation.kinesis_stream import KinesisClient, KinesisStream
from tests.simulation.mailbox import Mailbox, MailboxClient
from tests.simulation.mapping import Mapping
from tests.simulation.process import Process
from tests.simulation.product import Product
from tests.simulation.shape import COUNTERS
from tests.simulation.sums import Wrong
from tests.simulation.world import World

QUEUE: Final = "the ingest's quarantine"
EXPIRED: Final = "expired"
# As in reality, where half a minute and the life of a request fit into the bound of replication.
AGAIN_MS: Final = 5 * SECOND_MS
REPLICATION_MS: Final = 30 * SECOND_MS
# Many records of the simulation are longer, so what is done of one is stored.
PIECE: Final = 3
_ARN: Final = "arn:aws:kinesis:home:1:stream/ingest"


class IngestMapping(Mapping):
    """The ingest's own mapping: another kind of stream, and no window."""

    def _source(self) -> Shards:
        client: Any = KinesisClient(self.stream, self.world.service)  # type: ignore[arg-type]
        return KinesisSource(client, self.stream.arn)


@dataclass(eq=False)
class IngestWay:
    """All that lies between a producer and the ledger.

    Attributes:
        world: where it is.
        payloads: how many user records were done with.
    """

    world: World
    payloads: int = 0
    junk: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        """An open stream, and a mapping that reads it."""
        world = self.world
        shape = world.shape
        now_ms = lambda: world.schedule.now_ms  # noqa: E731 - a clock
        self.queues = {url: Mailbox() for url in (QUEUE, EXPIRED)}
        self.stream = KinesisStream.of(
            _ARN, world.random, now_ms, shape.stream_lag_ms, by_item=False
        )
        self.stream.open(shape.shards)
        settings = replace(mapping_settings("IngestMapping"), batch_size=shape.batch_size)
        self.mapping = IngestMapping(
            world, world.home, "ingest", self.stream, settings, lambda _record: True, self.invoke
        )

    def producer(self, connection: ProcessConnection) -> KinesisProducer:
        """The product's own, as a process has it."""
        return KinesisProducer(connection, Backoff(4, 50, 2_000), AGAIN_MS)

    def connection(self, process: Process) -> ProcessConnection:
        """The connection of a process to a stack with this stream."""
        made = connection_of(process)
        settings = replace(made.settings, ingest_stream_arn=_ARN, ingest_expired_queue_url=EXPIRED)
        clients = {
            "kinesis": KinesisClient(self.stream, process),
            "sqs": MailboxClient(self.queues[EXPIRED], process),
        }
        return replace(made, settings=settings, clients=clients)

    def invoke(self, event: dict[str, Any], process: Process) -> Map[str, Any]:
        """What the function does."""
        product = Product(process)
        store = QuarantineStore(product.connection)
        queues = IngestQueues(*(self._queue(url, process) for url in (QUEUE, EXPIRED)))
        quarantine = IngestQuarantine(store, queues)
        ingest = Ingest(product.connection, quarantine, PIECE)
        records = event.get("Records") or []
        stream, shard = source_of(records)
        outcome = ingest.apply(records, stream=stream, shard=shard)
        self._check(records, outcome)
        return answer_of(outcome, records)

    def expired(self, process: Process) -> ExpiredEntries:
        """What a person works off."""
        return ExpiredEntries(self.connection(process))

    def _queue(self, url: str, process: Process) -> MessageQueue:
        client: Any = MailboxClient(self.queues[url], process)
        return MessageQueue(client, url, url)

    def _check(self, records: list[Any], outcome: IngestOutcome) -> None:
        """Every user record of what is done with is counted in or out, once."""
        done = len(records) if outcome.retry_from is None else outcome.retry_from
        carried = [*map(_carried, records)]
        counted = outcome.accepted + outcome.duplicates + sum(outcome.quarantined.values())
        # A range, as a long record is done in pieces: earlier invocations may have done some of its
        # user records, and this one may do some of the first record that it reports as not done.
        least = sum(one for one in carried[:done] if one <= PIECE)
        most = sum(carried[:done]) + sum(one for one in carried[done : done + 1] if one > PIECE)
        if not (least <= outcome.payloads <= most and outcome.payloads == counted):
            raise Wrong(f"{carried} user records came, and the ingest tells of {outcome}")
        self.payloads += counted


def _carried(record: Map[str, Any]) -> int:
    try:
        return len(unpack_record(base64.b64decode(record["kinesis"]["data"])).messages)
    except BrokenAggregate:
        return 1


def check_ingest(world: World, memory: Memory) -> None:  # noqa: ARG001 - as the others
    """What is not in is in quarantine, and a queue tells of it until it is handled."""
    way = world.ingest
    if way is None:
        return
    table = world.copies[world.home][COUNTERS]
    partition = keys.QUARANTINE_PREFIX + QuarantineSource.KINESIS
    told = {
        name
        for queue in way.queues.values()
        for body in queue.bodies
        for name in quarantine_ids_in(body)
    }
    junk = set(way.junk)
    for sort in table.partitions.get(partition, []):
        copy = decode_quarantined(table.items[partition, sort])
        heard = copy.handled is not None or copy.id in told
        junk.discard(copy.content)
        try:
            entry = decode(copy.content, arrived_ms=copy.at_ms, origin=world.home)
        except BadInput:
            if not heard:
                raise Wrong(f"no queue tells of {copy}") from None
            continue
        # A zombie may have come to what was counted long ago, and died over it.
        if not heard and not world.auditor.events.holds(entry.counter, int(entry.delta)):
            raise Wrong(f"no queue tells of {copy}")
        world.auditor.events.report(entry.counter, int(entry.delta), copy.reason)
    if junk:
        raise Wrong(f"neither counted nor in quarantine: {junk}")
