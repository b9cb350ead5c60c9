"""Delivery: alerts to the stack's event bus or to a topic, ten in a call.

    1  publish; what fails is sent again, a bounded number of times
    2  alerts that the target did not take go to the dead letters
    3  the alert log records both

After these steps the alerts count as published. After a crash before the end of step 3 they are
published again, with the same ids. So a target that fails delays nothing: only if the dead letters
or the log cannot be written is the firing tried again, for its counter and rule alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.alerts.alert import FailedAlert
from countledger.consumers.alerts.alert_log import plan_log
from countledger.consumers.alerts.dead_letters import DeadLetter
from countledger.consumers.alerts.message import bus_entry, topic_entry
from countledger.consumers.alerts.rule import Bus
from countledger.ledger.attempts import (
    Again,
    Attempts,
    Backoff,
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

    from countledger.consumers.alerts.alert import Alert, Firing, Publisher
    from countledger.consumers.alerts.dead_letters import DeadLetters
    from countledger.consumers.alerts.rule import Target, Topic
    from countledger.ledger.attempts import Answer
    from countledger.ledger.dynamo import DynamoClient

# A throttled burst is over within a second or two.
_BACKOFF: Final = Backoff(attempts=5, base_ms=100, cap_ms=1_000)
# An attempt that takes so long got no answer; it waits for up to ten seconds.
_SILENCE_MS: Final = 2 * SECOND_MS
_SILENCES_MAX: Final = 2
_LOGGED_REASON_MAX_CHARACTERS: Final = 200


class AlertsNotTaken(CountledgerError):
    """The target did not take these alerts; `final`: no other attempt can help."""

    def __init__(self, failed: list[FailedAlert], *, final: bool = False) -> None:
        super().__init__(failed[0].reason)
        self.failed, self.final = failed, final
        self.silent = failed[0].silent


@dataclass(frozen=True, slots=True)
class _Batch:
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
        backoff: the number of attempts, and the waits between them.
    """

    events: EventBridgeClient
    topics: SNSClient
    bus: str
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    backoff: Backoff = _BACKOFF

    def publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        """Send alerts in order: one call for each ten, and one for each further attempt.

        After a target did not answer, the rest is not sent: ten silences exceed the time limit of
        the function.

        Raises:
            CorruptItem: an alert has no valid message.
        """
        failed: list[FailedAlert] = []
        for batch in _batches(alerts):
            silence = next((one.reason for one in failed if one.silent), None)
            if silence is None:
                failed += self._publish_batch(batch, target)
            else:
                failed += [FailedAlert(alert, silence, silent=True) for alert in batch]
        return failed

    def _publish_batch(self, alerts: list[Alert], target: Target) -> list[FailedAlert]:
        def request(batch: _Batch) -> Send:
            return Send(batch.alerts)

        def perform(step: Step) -> Answer:
            if isinstance(step, Pause):
                return self.clock.sleep_ms(step.wait_ms)
            return self._send(step.operation, target)

        attempts = Attempts(self.clock, self.random, self.backoff)
        return run(attempt(_Batch(alerts), request, _interpret, _failed, attempts), perform)

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


def _batches(alerts: Iterable[Alert]) -> Iterator[list[Alert]]:
    feed = iter(alerts)
    while batch := list(islice(feed, CALL_MESSAGES)):
        yield batch


@dataclass(frozen=True, slots=True)
class Notifier:
    """Publishes the alerts of one batch of records.

    Attributes:
        publisher: sends alerts to their targets.
        dead_letters: stores alerts that were not taken.
        dynamo: a DynamoDB client; its SDK may retry.
        table: the table `counters`, which has the log.
        clock: the time.
        silent: targets that did not answer, and the reason: they are not tried again.
    """

    publisher: Publisher
    dead_letters: DeadLetters
    dynamo: DynamoClient
    table: str
    clock: Clock
    silent: dict[Target, str] = field(default_factory=dict)

    def publish(self, firing: Firing) -> int:
        """Publish all alerts of a firing. One call for each ten, and two write units.

        Returns:
            How many of them went to the dead letters.

        Raises:
            CountledgerError: the dead letters or the log could not be written; publish it again.
        """
        alerts = firing.alerts
        failed = self._send(alerts, firing.target)
        for one in failed:
            self.dead_letters.put(
                DeadLetter(one.alert, firing.target, one.reason, self.clock.now_ms())
            )
        dead = {
            alerts.index(one.alert): one.reason[:_LOGGED_REASON_MAX_CHARACTERS] for one in failed
        }
        for put in plan_log(self.table, firing, self.clock.now_ms(), dead):
            self.dynamo.put(put)
        return len(failed)

    def _send(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        silence = self.silent.get(target)
        if silence is not None:
            return [FailedAlert(alert, silence, silent=True) for alert in alerts]
        failed = self.publisher.publish(alerts, target)
        for one in failed:
            if one.silent:
                self.silent[target] = one.reason
        return failed
