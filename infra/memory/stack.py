"""A whole stack in memory: for tests of apps, see `countledger.testing`."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final

from botocore.exceptions import ClientError

import countledger
from countledger.client import CountLedger
from countledger.infra.memory.client import client_of, sdk_call
from countledger.infra.memory.faults import Missing, RefusingClient, refuse
from countledger.infra.memory.functions import StackFunctions
from countledger.infra.memory.stream import StreamsClient
from countledger.infra.memory.tables import (
    ACCOUNT,
    COUNTERS,
    LEDGER,
    REGION,
    MemoryClock,
    MemoryTables,
)
from countledger.ledger.attempts import CallLimits
from countledger.ledger.connection import Connection, replaced_by
from countledger.ledger.dynamo import Meter
from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.ledger.settings import OUTPUTS, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from countledger.aio import AsyncCountLedger
    from countledger.compaction.report import CompactionReport
    from countledger.ledger.clock import Clock
    from countledger.ledger.connection import Retries
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.errors import CountledgerError


# The other services of a stack in memory: queues, an event bus, topics, schedules.
#
# Each client has the calls that the product makes, with their parameters and answers.


_MESSAGES_MAX: Final = 10
# Of the SDK, for a call of EventBridge Scheduler.
_ATTEMPTS: Final = 4
_BACK_OFF_MS: Final = 50


@dataclass(slots=True)
class StoredMessage:
    body: str
    hidden_until_ms: float = 0.0


@dataclass
class MemoryQueues:
    """SQS: a queue for each URL, created at its first use."""

    clock: Clock
    queues: dict[str, dict[str, StoredMessage]] = field(default_factory=lambda: defaultdict(dict))
    _numbers: Iterator[int] = field(default_factory=count)

    def bodies(self, url: str) -> list[str]:
        """The bodies of the messages of a queue, hidden or not."""
        return [one.body for one in self.queues[url].values()]

    def send_message(self, QueueUrl: str, MessageBody: str, **_: object) -> dict[str, Any]:  # noqa: N803 - of the API
        receipt = f"message-{next(self._numbers)}"
        self.queues[QueueUrl][receipt] = StoredMessage(MessageBody)
        return {"MessageId": receipt}

    def receive_message(
        self,
        QueueUrl: str,  # noqa: N803 - of the API
        VisibilityTimeout: int,  # noqa: N803 - of the API
        **_: object,
    ) -> dict[str, Any]:
        """Up to ten visible messages, which are hidden from then on."""
        now_ms, queue = self.clock.now_ms(), self.queues[QueueUrl]
        found = [name for name, one in queue.items() if one.hidden_until_ms <= now_ms]
        for name in found[:_MESSAGES_MAX]:
            queue[name].hidden_until_ms = now_ms + VisibilityTimeout * SECOND_MS
        shown = [
            {"MessageId": name, "ReceiptHandle": name, "Body": queue[name].body}
            for name in found[:_MESSAGES_MAX]
        ]
        return {"Messages": shown} if shown else {}

    def delete_message(self, QueueUrl: str, ReceiptHandle: str, **_: object) -> dict[str, Any]:  # noqa: N803 - of the API
        self.queues[QueueUrl].pop(ReceiptHandle, None)
        return {}

    def change_message_visibility(
        self,
        QueueUrl: str,  # noqa: N803 - of the API
        ReceiptHandle: str,  # noqa: N803 - of the API
        VisibilityTimeout: int,  # noqa: N803 - of the API
        **_: object,
    ) -> dict[str, Any]:
        """Hide a message for so many seconds from now."""
        if (message := self.queues[QueueUrl].get(ReceiptHandle)) is not None:
            message.hidden_until_ms = self.clock.now_ms() + VisibilityTimeout * SECOND_MS
        return {}


@dataclass(frozen=True, slots=True)
class Notification:
    """An alert that the event bus or a topic accepted.

    Attributes:
        target: `bus`, or the ARN of the topic.
        subject: of the notification of a topic; None: it went to the bus.
    """

    target: str
    alert: dict[str, Any]
    subject: str | None = None


@dataclass
class MemoryTargets:
    """EventBridge and SNS: they accept everything."""

    published: list[Notification] = field(default_factory=list)

    def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - of the API
        self.published += [Notification("bus", json.loads(one["Detail"])) for one in Entries]
        return {"Entries": [{"EventId": one["EventBusName"]} for one in Entries]}

    def publish_batch(
        self,
        TopicArn: str,  # noqa: N803 - of the API
        PublishBatchRequestEntries: list[dict[str, Any]],  # noqa: N803 - of the API
    ) -> dict[str, Any]:
        for one in PublishBatchRequestEntries:
            alert = json.loads(one["Message"])
            self.published.append(Notification(TopicArn, alert, one["Subject"]))
        return {"Successful": [{"Id": one["Id"]} for one in PublishBatchRequestEntries]}

    def describe_event_bus(self, **_: object) -> dict[str, Any]:
        return {}

    def get_topic_attributes(self, **_: object) -> dict[str, Any]:
        return {}


@dataclass
class MemoryScheduler:
    """EventBridge Scheduler: it stores schedules, and starts nothing."""

    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)

    def create_schedule(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        if request["Name"] in self.schedules:
            raise _refusal("ConflictException", "CreateSchedule")
        self.schedules[request["Name"]] = request
        return {"ScheduleArn": request["Name"]}

    def get_schedule(self, Name: str, **_: object) -> dict[str, Any]:  # noqa: N803 - of the API
        if Name not in self.schedules:
            raise _refusal("ResourceNotFoundException", "GetSchedule")
        return self.schedules[Name]

    def delete_schedule(self, Name: str, **_: object) -> dict[str, Any]:  # noqa: N803 - of the API
        self.get_schedule(Name=Name)
        del self.schedules[Name]
        return {}


@dataclass(frozen=True, slots=True)
class AppScheduler:
    """EventBridge Scheduler as the app calls it: its calls meet planned faults."""

    scheduler: MemoryScheduler
    memory: MemoryTables

    def create_schedule(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        return self._sent(partial(self.scheduler.create_schedule, **request), writes=True)

    def get_schedule(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        return self._sent(partial(self.scheduler.get_schedule, **request), writes=False)

    def delete_schedule(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        return self._sent(partial(self.scheduler.delete_schedule, **request), writes=True)

    def _sent(self, request: Callable[[], dict[str, Any]], *, writes: bool) -> dict[str, Any]:
        def send() -> dict[str, Any]:
            with self.memory.lock:
                return self.memory.faults.meet(request, writes=writes)

        def wait(attempt: int) -> None:
            self.memory.clock.sleep_ms(_BACK_OFF_MS * 2**attempt)

        return sdk_call(_ATTEMPTS, send, wait, self.memory.faults.announce)


def _refusal(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)


# The connection to a stack in memory; what the stack does not have is refused by name.


_ATTEMPTS_BY_RETRIES: Final = {"none": 1, "standard": 4}
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
    """A connection to a stack in memory; without `after_write` one of the stack's own functions."""

    makes_requests: ClassVar[bool] = False
    memory: MemoryTables
    queues_of: MemoryQueues
    targets: MemoryTargets = field(default_factory=MemoryTargets)
    schedules: MemoryScheduler = field(default_factory=MemoryScheduler)
    after_write: Callable[[], object] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse to be pickled: another process would use a stack of AWS."""
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
        """Empty: the settings name everything."""
        return {}

    def setting(self, name: str) -> str:
        value: str | None = getattr(self.settings, name)
        if not value:
            refuse(_SETTINGS.get(name, Missing.STACK), name)
        return value

    def in_region(self, region: str) -> Connection:
        if region != REGION:
            refuse(Missing.REGIONS, region)
        return self

    def dynamo(self, retries: Retries, *, region: str | None = None) -> DynamoClient:
        self.in_region(region or REGION)
        limits = CallLimits(self.settings.call_timeout_ms, self.settings.max_attempts)
        return client_of(
            self.memory,
            _ATTEMPTS_BY_RETRIES[retries],
            self.after_write,
            meter=self.meter,
            limits=limits,
            random=self.random,
            workers=self.workers,
        )

    def _scheduler(self) -> MemoryScheduler | AppScheduler:
        """The stack's own functions meet no planned faults."""
        of_functions = self.after_write is None
        return self.schedules if of_functions else AppScheduler(self.schedules, self.memory)

    def account(self) -> str:
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


class MemoryStack:
    """A stack in this process: the product's own code over tables in memory.

    Each write is followed by its delivery: when `record` returns, `total` includes it, and the
    alerts that it raises are published. Waits take no time. The stack may be used by many threads;
    requests are carried out one after the other. Two stacks share nothing.

    Attributes:
        ledger: the client of the stack, for code that takes one.
    """

    def __init__(self, *, at: datetime | None = None) -> None:
        """Create an empty stack, in about a millisecond.

        Args:
            at: the time of the stack, which then passes by waits and `advance` only; None: it
                follows the machine's clock, ahead of it by all waits.

        Raises:
            BadTime: the time is naive.
        """
        self.clock = MemoryClock(at)
        self._memory = MemoryTables(self.clock)
        self._of_functions = MemoryConnection.to(self._memory)
        self._functions = StackFunctions(self._of_functions)
        self._held = False
        connection = replace(self._of_functions, meter=Meter(), after_write=self._after_write)
        self.ledger = CountLedger(connection.settings, session=connection.session)
        self.ledger.connection = connection

    @cached_property
    def async_ledger(self) -> AsyncCountLedger:
        """The client of the stack for event loops; use it by `async with`. Needs the extra `async`.

        Raises:
            SetupError: the extra is not installed.
        """
        from countledger.aio import AsyncCountLedger  # noqa: PLC0415 - of an extra

        to = self.ledger.connection
        made = AsyncCountLedger(to.settings, session=to.session)
        made._ledger.connection = to  # noqa: SLF001 - of this package
        return made

    # ---- what goes wrong ----

    def lose_next_answer(self) -> None:
        """Let the next write of the app be applied, and its answer be lost.

        The client tries again by itself where that is safe. Several calls plan several faults.
        """
        self._memory.faults.lose_next_answer()

    def delay_next(self) -> None:
        """Let the next write of the app be under way until `land`; the client gets no answer.

        The client tries again by itself where that is safe; then the same change is under way
        twice.
        """
        self._memory.faults.delay_next()

    def land(self) -> list[CountledgerError | None]:
        """Let the writes of `delay_next` arrive, in their order.

        A write that was sent longer ago than a signed request lives (15 minutes) is refused.

        Returns:
            For each write the error with which it was refused, or None: it was applied.
        """
        with self._memory.lock:
            landed = self._memory.faults.land()
        self._after_write()
        return landed

    def before_next_request(self, call: Callable[[], object], *, skip: int = 0) -> None:
        """Run another call just before the next request of the app leaves, read or write.

        Calls and faults are met in the order in which they were planned. The requests of `call`
        meet only faults that `call` itself plans.

        Args:
            call: what runs; what it raises, the app's call raises.
            skip: how many more requests leave before it.

        Raises:
            BadSetting: `skip` is negative.
        """
        self._memory.faults.before_next_request(call, skip=skip)

    def fail_next(self, error: CountledgerError | None = None) -> None:
        """Let the next write of the app fail before it is applied.

        Args:
            error: what the DynamoDB client raises; None: `Unclear`, as without an answer.

        Raises:
            BadSetting: `error` is not an error of countledger.
        """
        self._memory.faults.fail_next(error)

    def throttle(self, requests: int = 1) -> None:
        """Let the next requests of the app be throttled, reads and writes.

        Raises:
            BadSetting: the number is not at least 1.
        """
        self._memory.faults.throttle(requests)

    @property
    def planned_faults(self) -> int:
        """How many faults and calls no request has met yet, and how many writes have to `land`."""
        return self._memory.faults.pending

    # ---- delivery and time ----

    def hold_stream(self) -> None:
        """Deliver nothing until `deliver`: totals stay as they are, and no alert is published."""
        self._held = True

    def deliver(self) -> None:
        """Deliver everything that was written, and go on after each write.

        Raises:
            CountledgerError: one of the stack's functions failed; what it did not handle is
                delivered again with the next delivery.
        """
        self._held = False
        self._functions.deliver()

    def redeliver(self, batches: int = 1) -> int:
        """Deliver the last batches again, as Lambda may at any time; how many records that were.

        Args:
            batches: how many batches of each stream; without `hold_stream` each write is one.

        Raises:
            BadSetting: the number is not at least 1.
        """
        if batches < 1:
            raise BadSetting(f"redeliver {batches!r} batches: give at least 1")
        return self._functions.redeliver(batches)

    @property
    def failures(self) -> list[CountledgerError]:
        """What went wrong in deliveries after writes; it should be empty."""
        return list(self._functions.failures)

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> None:
        """Let time pass, then do what became due: times to live, expired holds, deliveries.

        Raises:
            BadTime: the sum is negative.
        """
        units = ((days, DAY_MS), (hours, HOUR_MS), (minutes, MINUTE_MS), (seconds, SECOND_MS))
        self.clock.sleep_ms(sum(number * unit_ms for number, unit_ms in units))
        self._memory.expire()
        self._functions.release_holds()
        self._after_write()

    def compact(self, counter: str) -> CompactionReport:
        """Compact a ledger counter, due or not, as the schedule of its namespace says.

        Entries can be merged once they are older than the horizon and what belongs to it: `advance`
        the clock by 25 hours first.

        Raises:
            CountledgerError: the compaction failed.
        """
        from countledger.compaction.worker import Worker  # noqa: PLC0415 - at first use

        report = Worker(self._of_functions).compact(counter)
        if report.error is not None:
            raise report.error
        self._after_write()
        return report

    # ---- what happened ----

    @property
    def notifications(self) -> list[Notification]:
        """The alerts that the event bus and topics accepted, with their target, in order."""
        return list(self._of_functions.targets.published)

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The messages of these alerts, as docs/alert-message.schema.json describes them."""
        return [one.alert for one in self.notifications]

    # ---- tables of the app ----

    def create_table(self, name: str, partition_key: str, sort_key: str | None = None) -> None:
        """Create a table of the app's own, for items that are written together with counters.

        Raises:
            BadSetting: the table exists.
        """
        self._memory.add(name, partition_key, sort_key)

    def items(self, table: str) -> list[dict[str, Any]]:
        """The items of a table, in key order.

        Raises:
            TableNotFound: it does not exist.
        """
        with self._memory.lock:
            stored = self._memory.table(table).items
            return [dict(stored[key]) for key in sorted(stored)]

    # ---- the default client ----

    @contextmanager
    def installed(self) -> Iterator[MemoryStack]:
        """Let `countledger.record`, `countledger.total` and each new `CountLedger()` use it.

        It is so in the whole process, in every thread, while the block runs. A `CountLedger` or
        `AsyncCountLedger` that was made before is not redirected, such as one that a module made
        when it was imported: it still works on its own stack, in AWS.

        Raises:
            SetupError: a stack is installed already.
        """
        with replaced_by(self.ledger.connection):
            countledger._default.cache_clear()  # noqa: SLF001 - the default client of this package
            try:
                yield self
            finally:
                countledger._default.cache_clear()  # noqa: SLF001 - as above

    def _after_write(self) -> None:
        if not self._held:
            self._functions.deliver_quietly()
