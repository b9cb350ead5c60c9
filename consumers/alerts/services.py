"""The services that alerts use, built from a connection to a stack."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from countledger.consumers.alerts.alert_log import AlertLog
from countledger.consumers.alerts.alerts import Alerts
from countledger.consumers.alerts.dead_letters import QueueDeadLetters, Resender
from countledger.consumers.alerts.delivery import ServicePublisher
from countledger.consumers.alerts.initial_scan import InitialScan
from countledger.consumers.alerts.rule import Topic
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.totals import TotalsReader
from countledger.ledger.errors import (
    AccessDenied,
    BadRule,
    RequestRejected,
    ServiceFailed,
    TableNotFound,
    TargetRefused,
    Throttled,
    Unclear,
)
from countledger.ledger.forks import made_once
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_sns import SNSClient

    from countledger.consumers.alerts.rule import Target
    from countledger.ledger.connection import Connection

__all__ = ["Alerts", "ConnectedServices", "ServicePublisher", "Targets", "alerts_of"]


@dataclass(frozen=True)
class ConnectedServices:
    """The services that the alerts of a stack use.

    Attributes:
        connection: to the stack.
    """

    connection: Connection

    @made_once
    def targets(self) -> Targets:
        """Checks where the evaluator may publish alerts."""
        return Targets(
            self.connection.events(),
            self.connection.topics(),
            self.connection.setting("alert_bus"),
            _topics(self.connection),
            self.connection.region,
            self.connection.partition,
        )

    @made_once
    def publisher(self) -> ServicePublisher:
        """Publishes alerts to their targets."""
        return ServicePublisher(
            self.connection.events(),
            self.connection.topics(),
            self.connection.setting("alert_bus"),
        )

    @made_once
    def dead_letters(self) -> QueueDeadLetters:
        """Stores alerts that their target did not accept."""
        return QueueDeadLetters.at(
            self.connection.queues(), self.connection.setting("alert_dead_letter_queue_url")
        )

    @made_once
    def resender(self) -> Resender:
        """Sends dead letters again."""
        return Resender(self.dead_letters, self.publisher)

    @made_once
    def initial_scan(self) -> InitialScan:
        """Alerts for totals that are beyond a threshold already."""
        dynamo, table = (
            self.connection.dynamo("standard"),
            self.connection.setting("counters_table"),
        )
        return InitialScan(dynamo, table, self.publisher, self.dead_letters)


def alerts_of(connection: Connection) -> Alerts:
    """The alerts of a stack."""
    dynamo, table = connection.dynamo("standard"), connection.setting("counters_table")
    return Alerts(
        Rules(connection.dynamo("none"), table, connection.region),
        ConnectedServices(connection),
        TotalsReader(dynamo, table),
        AlertLog(dynamo, table),
        connection.setting("home_region"),
    )


def _topics(connection: Connection) -> tuple[str, ...]:
    """The topics that the stack's parameter names; a stack without any has no such output."""
    listed = connection.settings.alert_topic_arns
    if listed is None:
        listed = connection.outputs.get("AlertTopicArns", "")
    return tuple(filter(None, (arn.strip() for arn in listed.split(","))))


@dataclass(frozen=True, slots=True)
class Targets:
    """The targets to which the evaluator of a region may publish.

    Attributes:
        events: a client of EventBridge.
        topics: a client of SNS.
        bus: the name of the stack's event bus.
        allowed: the ARNs of the topics that the evaluator may publish to; `*` matches any text.
        region: the region of the evaluator.
        partition: the partition of that region, such as `aws`.
    """

    events: EventBridgeClient
    topics: SNSClient
    bus: str
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
        if isinstance(target, Topic):
            check_place(target, self.region, self.partition, self.allowed)
            with _refusing(), translated(f"topic {target.arn}"):
                self.topics.get_topic_attributes(TopicArn=target.arn)
        else:
            with _refusing(), translated(f"event bus {self.bus!r}"):
                self.events.describe_event_bus(Name=self.bus)


def check_place(topic: Topic, region: str, partition: str, allowed: Sequence[str]) -> None:
    """Check that the evaluator of a region may publish to a topic. Pure.

    Raises:
        BadRule: it is in another region or partition, or the evaluator may not use it.
    """
    if topic.partition != partition:
        raise BadRule(
            f"topic {topic.arn} is in partition {topic.partition!r}, and {region} in "
            f"{partition!r}: nothing crosses partitions"
        )
    if topic.region != region:
        raise BadRule(
            f"topic {topic.arn} is in {topic.region}, and the rule is evaluated in {region}: give "
            f"a topic in {region}"
        )
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
    except (AccessDenied, RequestRejected, ServiceFailed, TableNotFound) as error:
        # Without the advice, which is for tables.
        said, _, _ = str(error).partition("; ")
        raise TargetRefused(f"no alert would arrive: {said}") from error
