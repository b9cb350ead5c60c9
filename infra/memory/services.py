"""The other services of a stack in memory: queues, an event bus, topics, schedules.

Each client has the calls that the product makes, with their parameters and answers.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from countledger.infra.memory.client import sdk_call
from countledger.ledger.limits import SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.infra.memory.tables import MemoryTables
    from countledger.ledger.clock import Clock

_MESSAGES_MAX: Final = 10
# Of the SDK, for a call of EventBridge Scheduler.
_ATTEMPTS: Final = 4
_BACK_OFF_MS: Final = 50


@dataclass(slots=True)
class StoredMessage:
    """A message in a queue.

    Attributes:
        body: of the message.
        hidden_until_ms: until when it is hidden from readers.
    """

    body: str
    hidden_until_ms: float = 0.0


@dataclass
class MemoryQueues:
    """SQS: a queue for each URL, created at its first use.

    Attributes:
        clock: the time.
        queues: the messages of each queue, by receipt.
    """

    clock: Clock
    queues: dict[str, dict[str, StoredMessage]] = field(default_factory=lambda: defaultdict(dict))
    _numbers: Iterator[int] = field(default_factory=count)

    def bodies(self, url: str) -> list[str]:
        """The bodies of the messages of a queue, hidden or not."""
        return [one.body for one in self.queues[url].values()]

    def send_message(self, QueueUrl: str, MessageBody: str, **_: object) -> dict[str, Any]:  # noqa: N803 - of the API
        """Add a message."""
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
        """Delete a message, if it exists."""
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
        alert: the message, as docs/alert-message.schema.json describes it.
        subject: of the notification of a topic; None: it went to the bus.
    """

    target: str
    alert: dict[str, Any]
    subject: str | None = None


@dataclass
class MemoryTargets:
    """EventBridge and SNS: they accept everything.

    Attributes:
        published: what they accepted, in order.
    """

    published: list[Notification] = field(default_factory=list)

    def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - of the API
        """Accept events."""
        self.published += [Notification("bus", json.loads(one["Detail"])) for one in Entries]
        return {"Entries": [{"EventId": one["EventBusName"]} for one in Entries]}

    def publish_batch(
        self,
        TopicArn: str,  # noqa: N803 - of the API
        PublishBatchRequestEntries: list[dict[str, Any]],  # noqa: N803 - of the API
    ) -> dict[str, Any]:
        """Accept notifications."""
        for one in PublishBatchRequestEntries:
            alert = json.loads(one["Message"])
            self.published.append(Notification(TopicArn, alert, one["Subject"]))
        return {"Successful": [{"Id": one["Id"]} for one in PublishBatchRequestEntries]}

    def describe_event_bus(self, **_: object) -> dict[str, Any]:
        """The bus exists."""
        return {}

    def get_topic_attributes(self, **_: object) -> dict[str, Any]:
        """Each topic exists."""
        return {}


@dataclass
class MemoryScheduler:
    """EventBridge Scheduler: it stores schedules, and starts nothing.

    Attributes:
        schedules: their requests, by name.
    """

    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)

    def create_schedule(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Store a new schedule."""
        if request["Name"] in self.schedules:
            raise _refusal("ConflictException", "CreateSchedule")
        self.schedules[request["Name"]] = request
        return {"ScheduleArn": request["Name"]}

    def get_schedule(self, Name: str, **_: object) -> dict[str, Any]:  # noqa: N803 - of the API
        """A schedule."""
        if Name not in self.schedules:
            raise _refusal("ResourceNotFoundException", "GetSchedule")
        return self.schedules[Name]

    def delete_schedule(self, Name: str, **_: object) -> dict[str, Any]:  # noqa: N803 - of the API
        """Delete a schedule."""
        self.get_schedule(Name=Name)
        del self.schedules[Name]
        return {}


@dataclass(frozen=True, slots=True)
class AppScheduler:
    """EventBridge Scheduler as the app calls it: its calls meet planned faults.

    Attributes:
        scheduler: of the stack.
        memory: the stack's tables, with their faults.
    """

    scheduler: MemoryScheduler
    memory: MemoryTables

    def create_schedule(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Store a new schedule."""
        return self._sent(partial(self.scheduler.create_schedule, **request), writes=True)

    def get_schedule(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """A schedule."""
        return self._sent(partial(self.scheduler.get_schedule, **request), writes=False)

    def delete_schedule(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of the API
        """Delete a schedule."""
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
