"""Targets of alerts, the stack's event bus and topics: a check, and delivery, ten in a call."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from countledger.consumers.alerts.message import (
    Alert,
    FailedAlert,
    alert_in,
    body_of,
    decode_firing,
    encode_firing,
    message_of,
)
from countledger.consumers.alerts.rule import Bus, Topic, target_of
from countledger.ledger import keys
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
from countledger.ledger.attributes import (
    Item,
    check_format,
    decoded,
    describe,
    require,
    require_time,
)
from countledger.ledger.clock import Backoff, Clock, SystemClock, to_datetime
from countledger.ledger.errors import (
    AccessDenied,
    BadInput,
    BadPayload,
    BadRule,
    BadSetting,
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
    shown,
)
from countledger.ledger.limits import (
    ALERT_LOG_LIFE_MS,
    CALL_MESSAGES,
    REASON_MAX_CHARACTERS,
    SECOND_MS,
)
from countledger.ledger.message_queue import MessageQueue
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Put, Query
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from typing import Self

    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient

    from countledger.consumers.alerts.message import Firing, Publisher
    from countledger.consumers.alerts.rule import Target
    from countledger.ledger.attempts import Answer
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.connection import Connection


# What became of alerts that were sent: the log of the published ones, and the dead letters.
#
# A dead letter is an alert that its target did not accept; it waits in a queue, and is sent again.


_FORMAT: Final = 1
# Longer than most runs of `resend` take.
_HIDDEN_S: Final = 600


@dataclass(frozen=True, slots=True)
class LoggedAlert:
    """A published alert.

    Attributes:
        alert: the alert.
        published_at_ms: when it was last published, milliseconds since the epoch.
        reason: why it became a dead letter; None: its target accepted it.
    """

    alert: Alert
    published_at_ms: int
    reason: str | None = None

    @property
    def published_at(self) -> datetime:
        """When it was last published, in UTC."""
        return to_datetime(self.published_at_ms)


def plan_log(
    table: str, firing: Firing, published_at_ms: int, dead: Mapping[int, str]
) -> tuple[Put, ...]:
    """The two items of a published firing: one write unit each for each KB.

    `dead`: why alerts of the firing became dead letters, by their index in it.
    """
    said: Item = {
        "of_counter": firing.counter,
        "rule": firing.rule,
        "firing": encode_firing(firing),
        "published_at": published_at_ms,
        "dead": {str(place): reason for place, reason in dead.items()} or None,
        "expires_at": (firing.at_ms + ALERT_LOG_LIFE_MS) // SECOND_MS,
    }
    places = keys.alert_log_keys(firing.counter, firing.state, firing.version, firing.at_ms)
    return tuple(Put(table, {**key, **said}) for key in places)


@dataclass(frozen=True, slots=True)
class AlertLog:
    """Reads the alert log: the published alerts of the last ninety days.

    Each firing is logged twice: in the partition of its counter, and in one for all counters, which
    takes about 1,000 firings a second. So one query lists either.
    """

    connection: Connection

    def newest(
        self,
        counter: str | None = None,
        *,
        limit: int | None = None,
        on_corrupt: OnCorrupt | None = None,
    ) -> Iterator[LoggedAlert]:
        """The alerts of a counter, or of all, newest first: as `Alerts.log`."""
        if limit is not None and limit < 1:
            raise BadSetting(f"limit {shown(limit)} is too small: give 1 or more")
        pages = self.connection.retrying.pages(self._query(counter, limit))
        items = (item for page in pages for item in page)
        found = decoded(items, decode_log, on_corrupt)
        yield from islice((one for logged in found for one in reversed(logged)), limit)

    def _query(self, counter: str | None, page_size: int | None) -> Query:
        condition: Any = Compare("counter", "=", keys.ALERT_LOG)
        if counter is not None:
            counter = keys.check_counter(counter)
            condition = AllOf(Compare("counter", "=", counter), BeginsWith("part", keys.LOG_PREFIX))
        table = self.connection.counters
        return Query(table, condition, forward=False, page_size=page_size)


def decode_log(item: Item) -> list[LoggedAlert]:
    """The alerts of one item, in the order in which the total crossed their thresholds."""
    check_format(item)
    counter, rule = require(item, "of_counter", str), require(item, "rule", str)
    published_at_ms = require_time(item, "published_at")
    dead: dict[str, str] = item.get("dead") or {}
    try:
        firing = decode_firing(counter, rule, require(item, "firing", dict))
        to_datetime(firing.at_ms)
        return [
            LoggedAlert(alert, published_at_ms, dead.get(str(place)))
            for place, alert in enumerate(firing.alerts)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptItem(f"{describe(item)}: not a logged alert: {shown(error)}", item) from error


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An alert that its target refused.

    Attributes:
        alert: the alert.
        target: its target.
        reason: the last answer of the target.
        failed_at_ms: when the last attempt failed, in milliseconds since the epoch.
    """

    alert: Alert
    target: Target
    reason: str
    failed_at_ms: int


class DeadLetters(Protocol):
    def put(self, dead_letter: DeadLetter) -> None:
        """Store a dead letter; return only when it is stored."""


@dataclass(frozen=True, slots=True)
class QueueDeadLetters:
    queue: MessageQueue

    @classmethod
    def at(cls, client: SQSClient, url: str, *, wait_s: int = 1) -> Self:
        name = "the dead letters of alerts"
        return cls(MessageQueue(client, url, name, hidden_s=_HIDDEN_S, wait_s=wait_s))

    def put(self, dead_letter: DeadLetter) -> None:
        """Cost: one message."""
        self.queue.send(encode_dead_letter(dead_letter))


@dataclass(frozen=True, slots=True)
class Resent:
    """The result for one dead letter (None: it could not be read).

    `reason`: why it is still in the queue; None if its target has accepted it.
    """

    dead_letter: DeadLetter | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Resender:
    """Sends dead letters again.

    A dead letter is deleted after its target has accepted it. After a crash between the two it is
    sent a second time, with the same id.
    """

    dead_letters: QueueDeadLetters
    publisher: Publisher

    def resend(self, limit: int | None = None) -> Iterator[Resent]:
        """Send each dead letter once, while the results are iterated; a refused one stays."""
        with self.dead_letters.queue.reader() as reader:
            for message in islice(reader, limit):
                result = self._send(message.body)
                if result.reason is None:
                    reader.delete(message)
                yield result

    def _send(self, body: str) -> Resent:
        try:
            dead_letter = decode_dead_letter(body)
        except BadPayload as error:
            return Resent(None, str(error))
        refused = self.publisher.publish([dead_letter.alert], dead_letter.target)
        return Resent(dead_letter, refused[0].reason if refused else None)


def encode_dead_letter(dead_letter: DeadLetter) -> str:
    failed_at = to_datetime(dead_letter.failed_at_ms).isoformat(timespec="milliseconds")
    return json.dumps(
        {
            "v": _FORMAT,
            "target": str(dead_letter.target),
            "reason": dead_letter.reason[:REASON_MAX_CHARACTERS],
            "failed_at": failed_at.replace("+00:00", "Z"),
            "failed_at_ms": dead_letter.failed_at_ms,
            "message": message_of(dead_letter.alert).model_dump(mode="json", exclude_none=True),
        }
    )


def decode_dead_letter(body: str) -> DeadLetter:
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadPayload(f"the message is not a dead letter: {error}") from error
    if not isinstance(document, dict) or document.get("v") != _FORMAT:
        raise BadPayload(f"the message is not a dead letter of format {_FORMAT}")
    target, reason, failed_at_ms = (document.get(n) for n in ("target", "reason", "failed_at_ms"))
    if not (isinstance(target, str) and isinstance(reason, str) and isinstance(failed_at_ms, int)):
        raise BadPayload(
            "the message is not a dead letter: it lacks target, reason or failed_at_ms"
        )
    try:
        alert = alert_in(document.get("message"))
        return DeadLetter(alert, target_of(target), reason, failed_at_ms)
    except BadInput as error:
        raise BadPayload(f"the message is not a dead letter: {error}") from error


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
    """Publishes to EventBridge and SNS, through clients whose SDK does not retry."""

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

    `allowed` are ARNs of topics, in which `*` matches any text; the partition is as `aws`.
    """

    publisher: ServicePublisher
    allowed: tuple[str, ...]
    region: str
    partition: str

    def check(self, target: Target) -> None:
        """Check that the target exists, and the evaluator may publish to it. One call, for free.

        `BadRule`: a topic of another region or partition, or one that the evaluator may not use;
        `TargetRefused`: it does not exist, or refuses. After any other error the outcome is
        unknown.
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
