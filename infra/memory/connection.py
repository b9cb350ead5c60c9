"""The connection to a stack in memory; what the stack does not have is refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final

from countledger.infra.memory.client import client_of
from countledger.infra.memory.faults import Missing, RefusingClient, refuse
from countledger.infra.memory.services import (
    AppScheduler,
    MemoryQueues,
    MemoryScheduler,
    MemoryTargets,
)
from countledger.infra.memory.stream import StreamsClient
from countledger.infra.memory.tables import ACCOUNT, COUNTERS, LEDGER, REGION, MemoryTables
from countledger.ledger.attempts import CallLimits
from countledger.ledger.connection import Connection
from countledger.ledger.settings import OUTPUTS, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from countledger.ledger.connection import Retries
    from countledger.ledger.dynamo import DynamoClient

_ATTEMPTS: Final = {"none": 1, "standard": 4}
_SERVICES: Final = {
    "cloudformation": Missing.STACK,
    "cloudwatch": Missing.METRICS,
    "kinesis": Missing.KINESIS,
    "lambda": Missing.FUNCTIONS,
    "s3": Missing.ARCHIVE,
}
_SETTINGS: Final = {
    "ingest_stream_arn": Missing.KINESIS,
    "ingest_quarantine_queue_url": Missing.KINESIS,
    "ingest_expired_queue_url": Missing.KINESIS,
    "strict_table": Missing.REGIONS,
}


@dataclass(frozen=True, kw_only=True)
class MemoryConnection(Connection):
    """A connection to a stack in memory.

    Attributes:
        memory: the tables.
        queues_of: SQS.
        targets: EventBridge and SNS.
        schedules: EventBridge Scheduler.
        after_write: called after each write; None: a connection of the stack's own functions.
    """

    makes_requests: ClassVar[bool] = False
    memory: MemoryTables
    queues_of: MemoryQueues
    targets: MemoryTargets = field(default_factory=MemoryTargets)
    schedules: MemoryScheduler = field(default_factory=MemoryScheduler)
    after_write: Callable[[], object] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled: another process would use a stack of AWS.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "a client of a stack in memory cannot be pickled: the stack is in this process only; "
            "use threads, or `countledger up`"
        )

    @classmethod
    def to(cls, memory: MemoryTables) -> MemoryConnection:
        """The connection of the functions of a stack."""
        session: Any = RefusingClient(Missing.SESSION, REGION)
        return cls(
            settings_of(memory),
            session,
            clock=memory.clock,
            memory=memory,
            queues_of=MemoryQueues(memory.clock),
        )

    @property
    def outputs(self) -> Mapping[str, str]:
        """The stack's outputs: none, the settings name everything."""
        return {}

    def setting(self, name: str) -> str:
        """A setting.

        Raises:
            NotInMemory: a stack in memory does not have what it names.
        """
        value: str | None = getattr(self.settings, name)
        if not value:
            refuse(_SETTINGS.get(name, Missing.STACK), name)
        return value

    def in_region(self, region: str) -> Connection:
        """Itself.

        Raises:
            NotInMemory: it is another region.
        """
        if region != REGION:
            refuse(Missing.REGIONS, region)
        return self

    def dynamo(self, retries: Retries, *, region: str | None = None) -> DynamoClient:
        """A client to the tables in memory."""
        self.in_region(region or REGION)
        limits = CallLimits(self.settings.call_timeout_ms, self.settings.max_attempts)
        return client_of(
            self.memory,
            _ATTEMPTS[retries],
            self.after_write,
            meter=self.meter,
            limits=limits,
            random=self.random,
            workers=self.workers,
        )

    def _scheduler(self) -> MemoryScheduler | AppScheduler:
        """EventBridge Scheduler; the stack's own functions meet no planned faults."""
        of_functions = self.after_write is None
        return self.schedules if of_functions else AppScheduler(self.schedules, self.memory)

    def account(self) -> str:
        """The number of no account."""
        return ACCOUNT

    def _client(
        self,
        service: str,
        retries: Retries = "standard",  # noqa: ARG002 - of `Connection`
        region: str | None = None,  # noqa: ARG002 - of `Connection`
    ) -> Any:  # noqa: ANN401 - as of `Connection`
        clients = {
            "dynamodbstreams": StreamsClient(self.memory.ledger_stream),
            "sqs": self.queues_of,
            "events": self.targets,
            "sns": self.targets,
            "scheduler": self._scheduler(),
        }
        if service not in clients:
            refuse(_SERVICES.get(service, Missing.SERVICE), service)
        return clients[service]


def settings_of(memory: MemoryTables) -> Settings:
    """The settings of a stack in memory, whatever the environment says."""
    plain = {one.name: one.metadata["default"] for one in fields(Settings)}
    urls = {name: f"memory:{name}" for name in OUTPUTS if name.endswith("_queue_url")}
    named = {
        **urls,
        "stack_name": "memory",
        "ledger_table": LEDGER,
        "counters_table": COUNTERS,
        "ledger_stream_arn": memory.ledger_stream.arn,
        "counters_stream_arn": memory.counters_stream.arn,
        "dispatcher_arn": "memory:dispatcher",
        "schedule_group": "memory",
        "scheduler_role_arn": "memory:role",
        "home_region": REGION,
        "alert_bus": "memory",
        "alert_topic_arns": f"arn:aws:sns:{REGION}:{ACCOUNT}:*",
    }
    return Settings(**{**plain, **named, **dict.fromkeys(_SETTINGS)})
