"""The connection of a simulated process: its clients meet the faults of the world."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from countledger.ledger.connection import Connection, Retries
from countledger.ledger.ids import Ids
from countledger.ledger.settings import Settings
from tests.simulation.objects import ObjectsClient
from tests.simulation.queue import QueueClient, SchedulerClient
from tests.simulation.shape import COUNTERS, LEDGER, STRICT, are_used
from tests.simulation.stream import SimulatedStreamsClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import boto3

    from countledger.ledger.dynamo import DynamoClient
    from tests.simulation.process import Process


@dataclass(frozen=True, kw_only=True)
class ProcessConnection(Connection):
    """A connection of a simulated process.

    Attributes:
        process: which one.
        client: of DynamoDB, for all calls; None: one that retries, and one that does not.
        clients: of other services, by their names, where they are not those of the compaction.
    """

    makes_requests: ClassVar[bool] = False
    process: Process
    client: DynamoClient | None = None
    clients: Mapping[str, Any] = field(default_factory=dict)

    @property
    def home_region(self) -> str:
        """It may have moved."""
        return self.process.world.home

    @property
    def late_write_ms(self) -> int:
        """By the time limit of the simulated function."""
        return self.process.world.shape.late_ms

    @property
    def outputs(self) -> Mapping[str, str]:
        """None: the settings name everything."""
        return {}

    def in_region(self, region: str) -> ProcessConnection:
        """The same process, with the tables of another region."""
        return self if region == self.region else connection_of(self.process, region)

    def dynamo(self, retries: Retries, *, region: str | None = None) -> DynamoClient:
        """A client of the simulated service."""
        if self.client is not None:
            return self.client
        region = region or self.region
        return self.process.world.dynamo(self.process, retries=retries != "none", region=region)

    def _client(
        self,
        service: str,
        retries: Retries = "standard",  # noqa: ARG002 - of `Connection`
        region: str | None = None,  # noqa: ARG002 - of `Connection`
    ) -> Any:  # noqa: ANN401 - as of `Connection`
        if service in self.clients:
            return self.clients[service]
        world = self.process.world
        clients: dict[str, Callable[[], Any]] = {
            "dynamodbstreams": lambda: SimulatedStreamsClient(
                world.streams[self.region], process=self.process
            ),
            "scheduler": lambda: SchedulerClient(world.scheduler, self.process),
            "sqs": lambda: QueueClient(world.queue, self.process),
            "s3": lambda: ObjectsClient(world.bucket, self.process),
        }
        return clients[service]()


def connection_of(process: Process, region: str | None = None) -> ProcessConnection:
    """The connection of a process; it reads and writes the tables of a region, or of its own."""
    world = process.world
    settings = Settings(
        ledger_table=LEDGER,
        counters_table=COUNTERS,
        strict_table=STRICT if are_used(world.shape.weights) else None,
        ledger_stream_arn=world.streams[region or process.region].arn,
        home_region=world.home,
        clock_skew_ms=world.shape.skew_ms,
        replication_bound_ms=world.shape.replication_ms,
        compaction_queue_url="queue",
        schedule_group="group",
        dispatcher_arn="dispatcher",
        scheduler_role_arn="role",
    )
    return ProcessConnection(
        settings=settings,
        session=cast("boto3.Session", None),
        elsewhere=region or process.region,
        clock=process,
        random=world.random,
        ids=Ids(world.new_id, world.new_ids, partial(world.new_id, 0)),
        request_life_ms=world.shape.life_ms,
        process=process,
    )
