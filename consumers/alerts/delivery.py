"""Publishing: alerts to the stack's event bus or to a topic, ten in a call.

A call that succeeds may carry entries that failed; those are sent again, a bounded number of times.
What is sent twice carries the same id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.consumers.alerts.alert_log import plan_log
from countledger.consumers.alerts.dead_letters import DeadLetter
from countledger.consumers.alerts.message import DETAIL_TYPE, SOURCE, body_of
from countledger.consumers.alerts.rule import Bus
from countledger.ledger.attempts import Backoff
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import (
    CorruptItem,
    CountledgerError,
    SetupError,
    Unclear,
    Unreachable,
)
from countledger.ledger.limits import CALL_MESSAGES, SECOND_MS
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_sns import SNSClient

    from countledger.consumers.alerts.alert import Alert, Firing
    from countledger.consumers.alerts.dead_letters import DeadLetters
    from countledger.consumers.alerts.rule import Target, Topic
    from countledger.ledger.clock import Clock
    from countledger.ledger.dynamo import DynamoClient


# A burst that is throttled is over within a second or two.
_TRIES: Final = Backoff(attempts=5, base_ms=100, cap_ms=1_000)
# An attempt that takes so long got no answer; it waits for up to ten seconds.
_SILENCE_MS: Final = 2 * SECOND_MS
_SILENCES: Final = 2
_SUBJECT_MAX_CHARACTERS: Final = 99


@dataclass(frozen=True, slots=True)
class FailedAlert:
    """An alert that its target did not take.

    Attributes:
        alert: which one.
        reason: what the target said last.
        silent: whether it said nothing at all: then each further try may take as long.
    """

    alert: Alert
    reason: str
    silent: bool = False


class Publisher(Protocol):
    """Takes alerts to their targets."""

    def publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        """Send alerts in their order; those that the target did not take in the end."""


@dataclass(frozen=True, slots=True)
class ServicePublisher:
    """Publishes to EventBridge and SNS, through clients whose SDK does not retry.

    Attributes:
        events: a client of EventBridge.
        topics: a client of SNS.
        bus: the name or ARN of the stack's event bus.
        clock: waits between tries.
        random: what the jitter is drawn from.
        backoff: how often an alert is sent, and how long between.
    """

    events: EventBridgeClient
    topics: SNSClient
    bus: str
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    backoff: Backoff = _TRIES

    def publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        """Send alerts in their order: one call for each ten, and more for what is not taken.

        Behind a silence the rest is not sent: ten of them would outlast the function.

        Raises:
            CorruptItem: no message can tell of one of them.
        """
        refused: list[FailedAlert] = []
        for batch in _batches(alerts):
            silence = next((one.reason for one in refused if one.silent), None)
            if silence is None:
                refused += self._publish_batch(batch, target)
            else:
                refused += [FailedAlert(alert, silence, silent=True) for alert in batch]
        return refused

    def _publish_batch(self, batch: list[Alert], target: Target) -> list[FailedAlert]:
        left, refused, silences = batch, list[FailedAlert](), 0
        for _ in self.backoff.tries(self.clock, self.random):
            began_ms = self.clock.now_ms()
            try:
                refused = self._send(left, target)
            except CorruptItem:
                raise
            except CountledgerError as error:
                silent = self.clock.now_ms() - began_ms >= _SILENCE_MS
                refused = [FailedAlert(alert, str(error), silent) for alert in left]
                silences += silent
                # No such bus, no permission: the next try would find the same.
                hopeless = isinstance(error, SetupError) and not isinstance(error, Unreachable)
                if silences == _SILENCES or hopeless:
                    break
            left = [one.alert for one in refused]
            if not left:
                break
        return refused

    def _send(self, batch: list[Alert], target: Target) -> list[FailedAlert]:
        if isinstance(target, Bus):
            return self._send_to_bus(batch)
        return self._send_to_topic(batch, target)

    def _send_to_bus(self, batch: list[Alert]) -> list[FailedAlert]:
        entries: Any = [_bus_entry(alert, self.bus) for alert in batch]
        what = f"PutEvents on bus {self.bus}"
        with translated(what):
            answer: Any = self.events.put_events(Entries=entries)
        results = answer.get("Entries", [])
        if len(results) != len(batch):
            raise Unclear(f"{what}: no clear answer (it tells of {len(results)} entries)")
        return [
            FailedAlert(alert, f"{what}: {one.get('ErrorCode')}: {one.get('ErrorMessage', '')}")
            for alert, one in zip(batch, results, strict=True)
            if "EventId" not in one or one.get("ErrorCode")
        ]

    def _send_to_topic(self, batch: list[Alert], topic: Topic) -> list[FailedAlert]:
        entries: Any = [_topic_entry(alert, number) for number, alert in enumerate(batch)]
        what = f"PublishBatch on {topic}"
        with translated(what):
            answer: Any = self.topics.publish_batch(
                TopicArn=topic.arn, PublishBatchRequestEntries=entries
            )
        taken = {one["Id"] for one in answer.get("Successful", [])}
        reasons = {one["Id"]: one for one in answer.get("Failed", [])}
        if len(taken | set(reasons)) != len(batch):
            raise Unclear(f"{what}: no clear answer (it tells of {len(taken | set(reasons))})")
        return [
            FailedAlert(batch[int(name)], f"{what}: {one.get('Code')}: {one.get('Message', '')}")
            for name, one in reasons.items()
        ]


def _bus_entry(alert: Alert, bus: str) -> dict[str, Any]:
    return {
        "Source": SOURCE,
        "DetailType": DETAIL_TYPE,
        "Detail": body_of(alert),
        "EventBusName": bus,
        "Time": alert.at,
    }


def _topic_entry(alert: Alert, number: int) -> dict[str, Any]:
    told = {
        "id": alert.id,
        "dedup": alert.dedup,
        "rule": alert.rule,
        "counter": alert.counter,
        "direction": str(alert.direction),
    }
    return {
        "Id": str(number),
        "Message": body_of(alert),
        "Subject": subject_of(alert),
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value} for name, value in told.items()
        },
    }


def subject_of(alert: Alert) -> str:
    """The subject of a mail: ASCII, below a hundred characters, beginning with a letter."""
    trial = "test of " if alert.test else ""
    text = f"countledger: {trial}{alert.rule}: {alert.counter} {alert.direction}"
    plain = text.encode("ascii", "replace").decode()
    return plain[:_SUBJECT_MAX_CHARACTERS]


def _batches(alerts: Iterable[Alert]) -> Iterator[list[Alert]]:
    feed = iter(alerts)
    while batch := list(islice(feed, CALL_MESSAGES)):
        yield batch


_LOGGED_REASON_MAX_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Notifier:
    """Tells the alerts of one batch of records.

    Attributes:
        publisher: takes alerts to their targets.
        dead_letters: takes those that fail.
        dynamo: a DynamoDB client; the SDK may retry.
        table: the table `counters`, where the log is.
        clock: tells when.
        silent: the targets that gave no answer, and why: they are not waited for again.
    """

    publisher: Publisher
    dead_letters: DeadLetters
    dynamo: DynamoClient
    table: str
    clock: Clock
    silent: dict[Target, str] = field(default_factory=dict)

    def publish(self, firing: Firing) -> int:
        """PublishFiring all alerts of a firing. One call for each ten of them, and two write units.

        Returns:
            How many of them went to the dead letters.

        Raises:
            CountledgerError: the dead letters or the log took nothing; publish it again.
        """
        alerts = firing.alerts
        refused = self._publish(alerts, firing.target)
        for one in refused:
            letter = DeadLetter(one.alert, firing.target, one.reason, self.clock.now_ms())
            self.dead_letters.put(letter)
        dead = {
            alerts.index(one.alert): one.reason[:_LOGGED_REASON_MAX_CHARACTERS] for one in refused
        }
        for note in plan_log(self.table, firing, self.clock.now_ms(), dead):
            self.dynamo.put(note)
        return len(refused)

    def _publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        silence = self.silent.get(target)
        if silence is not None:
            return [FailedAlert(alert, silence, silent=True) for alert in alerts]
        refused = self.publisher.publish(alerts, target)
        for one in refused:
            if one.silent:
                self.silent[target] = one.reason
        return refused
