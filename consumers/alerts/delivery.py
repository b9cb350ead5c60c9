"""Targets of alerts, the stack's event bus and topics: a check, and delivery, ten in a call."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.consumers.alerts.message import Alert, FailedAlert, body_of
from countledger.consumers.alerts.rule import Bus, Topic
from countledger.ledger.attempts import (
    Again,
    Attempts,
    Done,
    Exhausted,
    GiveUp,
    Pause,
    Reply,
    Send,
    Step,
    Verdict,
    attempt,
    run,
)
from countledger.ledger.clock import Backoff, Clock, SystemClock
from countledger.ledger.errors import (
    AccessDenied,
    BadRule,
    CorruptItem,
    CountledgerError,
    RequestRejected,
    ServiceFailed,
    SetupError,
    TableNotFound,
    TargetRefused,
    Throttled,
    Unclear,
    Unreachable,
)
from countledger.ledger.limits import CALL_MESSAGES, SECOND_MS
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_sns import SNSClient

    from countledger.consumers.alerts.rule import Target
    from countledger.ledger.attempts import Answer


SOURCE: Final = "countledger"
DETAIL_TYPE: Final = "Threshold crossed"
_SUBJECT_MAX_CHARACTERS: Final = 99
# A throttled burst is over within a second or two.
_BACKOFF: Final = Backoff(attempts=5, base_ms=100, cap_ms=1_000)
# An attempt that takes so long got no answer; it waits for up to ten seconds.
_SILENCE_MS: Final = 2 * SECOND_MS
_SILENCES_MAX: Final = 2


class AlertsNotTaken(CountledgerError):
    """The target did not take these alerts; `final`: no other attempt can help."""

    def __init__(self, failed: list[FailedAlert], *, final: bool = False) -> None:
        super().__init__(failed[0].reason)
        self.failed, self.final = failed, final
        self.silent = failed[0].silent


class _Batch(NamedTuple):
    """The alerts still to be sent, and how many attempts got no answer."""

    alerts: Sequence[Alert]
    silences: int = 0


@dataclass(frozen=True, slots=True)
class ServicePublisher:
    """Publishes to EventBridge and SNS, through clients whose SDK does not retry.

    Attributes:
        events: a client of EventBridge.
        topics: a client of SNS.
        bus: the name or ARN of the stack's event bus.
        clock: for the waits between attempts.
        random: for their jitter.
    """

    events: EventBridgeClient
    topics: SNSClient
    bus: str
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)

    def publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        """Send alerts in order: one call for each ten, and one for each further attempt.

        After a target did not answer, the rest is not sent: ten silences exceed the time limit of
        the function. An alert without a valid message is a `CorruptItem`.
        """
        failed: list[FailedAlert] = []
        for start in range(0, len(alerts), CALL_MESSAGES):
            batch = alerts[start : start + CALL_MESSAGES]
            silence = next((one.reason for one in failed if one.silent), None)
            if silence is None:
                failed += self._publish_batch(batch, target)
            else:
                failed += [FailedAlert(alert, silence, silent=True) for alert in batch]
        return failed

    def _publish_batch(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        def perform(step: Step) -> Answer:
            if isinstance(step, Pause):
                return self.clock.sleep_ms(step.wait_ms)
            return self._send(step.operation, target)

        attempts = Attempts(self.clock, self.random, _BACKOFF)
        steps = attempt(
            _Batch(alerts), lambda batch: Send(batch.alerts), _interpret, _failed, attempts
        )
        return run(steps, perform)

    def _send(self, alerts: Sequence[Alert], target: Target) -> None:
        began_ms = self.clock.now_ms()
        try:
            if isinstance(target, Bus):
                failed = self._send_to_bus(alerts)
            else:
                failed = self._send_to_topic(alerts, target)
        except CorruptItem:
            raise
        except CountledgerError as error:
            silent = self.clock.now_ms() - began_ms >= _SILENCE_MS
            failed = [FailedAlert(alert, str(error), silent) for alert in alerts]
            # A missing bus or permission stays missing.
            final = isinstance(error, SetupError) and not isinstance(error, Unreachable)
            raise AlertsNotTaken(failed, final=final) from error
        if failed:
            raise AlertsNotTaken(failed)

    def _send_to_bus(self, alerts: Sequence[Alert]) -> list[FailedAlert]:
        entries: Any = [bus_entry(alert, self.bus) for alert in alerts]
        what = f"PutEvents on bus {self.bus}"
        with translated(what):
            answer: Any = self.events.put_events(Entries=entries)
        results = answer.get("Entries", [])
        if len(results) != len(alerts):
            raise Unclear(f"{what}: {len(results)} results for {len(alerts)} entries")
        return [
            FailedAlert(alert, f"{what}: {one.get('ErrorCode')}: {one.get('ErrorMessage', '')}")
            for alert, one in zip(alerts, results, strict=True)
            if "EventId" not in one or one.get("ErrorCode")
        ]

    def _send_to_topic(self, alerts: Sequence[Alert], topic: Topic) -> list[FailedAlert]:
        entries: Any = [topic_entry(alert, number) for number, alert in enumerate(alerts)]
        what = f"PublishBatch on {topic}"
        with translated(what):
            answer: Any = self.topics.publish_batch(
                TopicArn=topic.arn, PublishBatchRequestEntries=entries
            )
        reasons = {one["Id"]: one for one in answer.get("Failed", [])}
        named = {one["Id"] for one in answer.get("Successful", [])} | set(reasons)
        if len(named) != len(alerts):
            raise Unclear(f"{what}: {len(named)} results for {len(alerts)} entries")
        return [
            FailedAlert(alerts[int(name)], f"{what}: {one.get('Code')}: {one.get('Message', '')}")
            for name, one in reasons.items()
        ]


def _interpret(reply: Reply[_Batch]) -> Verdict[_Batch, list[FailedAlert]]:
    """The answer table.

    all alerts taken            done
    some or all not taken       again, with these
    no answer for the 2nd time  failed
    no such target, denied      failed
    """
    error = reply.answer
    if error is None:
        return Done([])
    if not isinstance(error, AlertsNotTaken):
        raise error
    silences = reply.state.silences + error.silent
    if error.final or silences == _SILENCES_MAX:
        return GiveUp(error)
    return Again(_Batch([one.alert for one in error.failed], silences))


def _failed(exhausted: Exhausted[_Batch]) -> list[FailedAlert]:
    if not isinstance(exhausted.error, AlertsNotTaken):
        raise exhausted.error
    return exhausted.error.failed


def bus_entry(alert: Alert, bus: str) -> dict[str, Any]:
    """An entry of `PutEvents`."""
    return {
        "Source": SOURCE,
        "DetailType": DETAIL_TYPE,
        "Detail": body_of(alert),
        "EventBusName": bus,
        "Time": alert.at,
    }


def topic_entry(alert: Alert, number: int) -> dict[str, Any]:
    """An entry of `PublishBatch`; `number` is its id within the call."""
    filters = {
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
            name: {"DataType": "String", "StringValue": value} for name, value in filters.items()
        },
    }


def subject_of(alert: Alert) -> str:
    """The subject of a mail: ASCII, at most 99 characters, starting with a letter."""
    trial = "test of " if alert.test else ""
    text = f"countledger: {trial}{alert.rule}: {alert.counter} {alert.direction}"
    return text.encode("ascii", "replace").decode()[:_SUBJECT_MAX_CHARACTERS]


@dataclass(frozen=True, slots=True)
class Targets:
    """The targets to which the evaluator of a region may publish.

    Attributes:
        publisher: has the clients of the services.
        allowed: the ARNs of the topics that the evaluator may publish to; `*` matches any text.
        region: the region of the evaluator.
        partition: the partition of that region, such as `aws`.
    """

    publisher: ServicePublisher
    allowed: tuple[str, ...]
    region: str
    partition: str

    def check(self, target: Target) -> None:
        """Check that the target exists, and the evaluator may publish to it. One call, for free.

        Raises:
            BadRule: a topic of another region or partition, or one that the evaluator may not use.
            TargetRefused: the target does not exist, or refuses.
            ServiceFailed, Unreachable: the outcome is unknown.
        """
        to = self.publisher
        if isinstance(target, Topic):
            check_place(target, self.region, self.partition, self.allowed)
            with _refusing(), translated(f"topic {target.arn}"):
                to.topics.get_topic_attributes(TopicArn=target.arn)
        else:
            with _refusing(), translated(f"event bus {to.bus!r}"):
                to.events.describe_event_bus(Name=to.bus)


def check_place(topic: Topic, region: str, partition: str, allowed: Sequence[str]) -> None:
    """Raise `BadRule` if the evaluator of a region may not publish to a topic. Pure."""
    if topic.partition != partition:
        what = f"topic {topic.arn} is in partition {topic.partition!r}, and {region} in"
        raise BadRule(f"{what} {partition!r}: nothing crosses partitions")
    if topic.region != region:
        what = f"topic {topic.arn} is in {topic.region}, and the rule is evaluated in {region}"
        raise BadRule(f"{what}: give a topic in {region}")
    if not any(fnmatchcase(topic.arn, pattern) for pattern in allowed):
        known = ", ".join(allowed) or "none"
        raise BadRule(
            f"the evaluator may not publish to {topic.arn}: name it in the stack's parameter "
            f"AlertTopicArns (it names {known}), and deploy"
        )


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise `TargetRefused` for an answer that refuses, and other errors unchanged."""
    try:
        yield
    except (Throttled, Unclear):
        raise
    except (AccessDenied, RequestRejected, ServiceFailed, TableNotFound, TargetRefused) as error:
        # Without the advice, which is for tables.
        said, _, _ = str(error).partition("; ")
        raise TargetRefused(f"no alert would arrive: {said}") from error
