"""What the operations of compaction are tested with: tables in memory, and lists for services."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from countledger.compaction.compactor import Compactor
from countledger.compaction.dispatcher import Dispatcher, Work, parse_work
from countledger.compaction.due import DueIndex
from countledger.compaction.plan import AgeLimit
from countledger.compaction.report import CompactionReport, CompactionStep, RunOutcome
from countledger.compaction.schedules import Schedules
from countledger.compaction.worker import Worker
from countledger.infra.memory.stack import MemoryScheduler
from countledger.ledger import keys
from countledger.ledger.indexes import bucket_of
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.ledger.namespace import Kind, Namespace, Namespaces
from tests.unit.connections import UnitConnection, connection_on
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient

LEDGER = "ledger"
COUNTERS = "counters"
HOME = "home-1"


def limit_of(namespace: Namespace) -> AgeLimit:
    return AgeLimit(namespace.horizon_ms, 15 * MINUTE_MS, MINUTE_MS)


@dataclass
class WatchedScheduler(MemoryScheduler):
    """EventBridge Scheduler, beside which something else happens.

    Attributes:
        meanwhile: what somebody else does after the next trigger was created.
    """

    meanwhile: list[Callable[[], object]] = field(default_factory=list)

    @property
    def kept(self) -> dict[str, str]:
        """The expression of each namespace; it has one trigger."""
        triggers = self.schedules.values()
        found = {
            json.loads(one["Target"]["Input"])["namespace"]: one["ScheduleExpression"]
            for one in triggers
        }
        assert len(found) == len(triggers)
        return found

    def create_schedule(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        try:
            return super().create_schedule(**request)
        finally:
            if self.meanwhile:
                self.meanwhile.pop(0)()


@dataclass
class ListedQueue:
    """SQS: a queue in a list.

    Attributes:
        sent: what it took.
        waiting: how many messages it says are waiting.
        takes: how many it takes.
    """

    sent: list[Work] = field(default_factory=list)
    waiting: int = 0
    takes: int = 10**9

    def send_message_batch(
        self,
        QueueUrl: str,  # noqa: ARG002, N803 - of the API
        Entries: list[dict[str, str]],  # noqa: N803 - of the API
    ) -> dict[str, Any]:
        room = max(0, self.takes - len(self.sent))
        self.sent += [parse_work(one["MessageBody"]) for one in Entries[:room]]
        return {"Failed": [{"Id": one["Id"]} for one in Entries[room:]]}

    def get_queue_attributes(self, **_: object) -> dict[str, Any]:
        return {"Attributes": {"ApproximateNumberOfMessages": str(self.waiting)}}


@dataclass
class ScriptedCompactor:
    """Answers as told; it stands for the one that the simulation tests.

    Attributes:
        outcomes: by counter; the others are merged.
        compacted: what each head stands for then.
        calls: which counters were compacted.
        takes_ms: how long each takes.
    """

    clock: ManualClock
    outcomes: dict[str, RunOutcome] = field(default_factory=dict)
    compacted: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    takes_ms: int = 0
    meanwhile: Callable[[], object] = lambda: None

    def compact(
        self,
        counter: str,
        *,
        deadline_ms: int | None = None,
        on_step: Callable[[CompactionStep], None] = lambda _: None,
    ) -> CompactionReport:
        del deadline_ms, on_step
        self.calls.append(counter)
        self.clock.at_ms += self.takes_ms
        self.meanwhile()
        outcome = self.outcomes.get(counter, RunOutcome.MERGED)
        compacted = self.compacted.get(counter, 0)
        return CompactionReport(
            counter=counter, outcome=outcome, merged=compacted, compacted=compacted
        )

    def limit(self, namespace: Namespace) -> AgeLimit:
        return limit_of(namespace)


@dataclass
class Stack:
    """All parts on one client.

    Attributes:
        region: where its processes work.
    """

    region: str = HOME
    dynamo: MemoryClient = field(default_factory=MemoryClient)
    clock: ManualClock = field(default_factory=ManualClock)
    scheduler: WatchedScheduler = field(default_factory=WatchedScheduler)
    queue: ListedQueue = field(default_factory=ListedQueue)

    def __post_init__(self) -> None:
        self.connection = self.process(self.region)
        self.namespaces = Namespaces(self.connection)
        self.index = DueIndex(self.connection)
        self.schedules = Schedules(self.connection)
        self.compactor = ScriptedCompactor(self.clock)

    def process(self, region: str = HOME) -> UnitConnection:
        """A process of its own."""
        return connection_on(
            self.dynamo,
            self.clock,
            region=region,
            clients={"scheduler": self.scheduler, "sqs": self.queue},
            home_region=HOME,
            compaction_queue_url="queue",
            schedule_group="group",
            dispatcher_arn="target",
            scheduler_role_arn="role",
        )

    def namespace(self, name: str, kind: Kind = Kind.LEDGER) -> str:
        Namespaces(self.process()).create(name, kind=kind)
        return name

    def worker(self) -> Worker:
        compactor = cast("Compactor", self.compactor)
        return Worker(self.connection, compactor_for=lambda _: compactor)

    def total(self, counter: str, **attributes: object) -> dict[str, Any]:
        """Put a total, or change it; what is stored then."""
        stored = self.dynamo.tables.setdefault(COUNTERS, {})
        key = (counter, keys.TOTAL)
        fresh = {**keys.total_key(counter), "total": 1, "events": 1, "entries": 1, "version": 1}
        stored[key] = {**stored.get(key, fresh), **attributes}
        return stored[key]

    def due(self, counter: str, due_at: int = NOW_MS) -> None:
        """Put a total with five entries into the due index."""
        self.total(counter, entries=5, due_at=due_at, due_bucket=bucket_of(counter))

    @property
    def schedule(self) -> dict[str, Any]:
        return self.dynamo.tables[COUNTERS]["namespace#likes", "schedule"]


def dispatcher_in(stack: Stack, region: str = HOME) -> Dispatcher:
    return Dispatcher(stack.process(region))


def scheduled() -> Stack:
    """A stack with a schedule of the namespace `likes`, swept already."""
    stack = Stack()
    stack.namespace("likes")
    stack.schedules.create("likes", every_ms=HOUR_MS, min_entries=3)
    stack.schedule.pop("unswept_since")
    return stack
