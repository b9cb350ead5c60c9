"""The parts of alerts put together, from a connection to a stack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.consumers.alerts.alert_log import AlertLog
from countledger.consumers.alerts.alerts import Alerts
from countledger.consumers.alerts.dead_letters import QueueDeadLetters, Resender
from countledger.consumers.alerts.initial_scan import InitialScan
from countledger.consumers.alerts.publish import ServicePublisher
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.alerts.targets import Targets
from countledger.consumers.totals import TotalsReader
from countledger.ledger.forks import made_once

if TYPE_CHECKING:
    from countledger.ledger.connection import Connection


@dataclass(frozen=True)
class ConnectedServices:
    """The services that the alerts of a stack take.

    Attributes:
        connection: to the stack.
    """

    connection: Connection

    @made_once
    def targets(self) -> Targets:
        """What the evaluator may tell of alerts."""
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
        """Takes alerts to their targets."""
        return ServicePublisher(
            self.connection.events(),
            self.connection.topics(),
            self.connection.setting("alert_bus"),
        )

    @made_once
    def dead_letters(self) -> QueueDeadLetters:
        """Keeps alerts that their target did not take."""
        return QueueDeadLetters.at(
            self.connection.queues(), self.connection.setting("alert_dead_letter_queue_url")
        )

    @made_once
    def resender(self) -> Resender:
        """Sends dead letters again."""
        return Resender(self.dead_letters, self.publisher)

    @made_once
    def initial_scan(self) -> InitialScan:
        """Tells of totals that are beyond a threshold already."""
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
