"""The parts of alerts put together, from a connection to a stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.consumers.alerts.alerts import Alerts
from countledger.consumers.alerts.rules import Rules
from countledger.consumers.alerts.targets import Targets
from countledger.consumers.totals import TotalsReader

if TYPE_CHECKING:
    from countledger.ledger.connection import Connection


def rules_of(connection: Connection) -> Rules:
    """The alert rules of a stack."""
    table = connection.setting("counters_table")
    return Rules(connection.door("none"), table, connection.region)


def targets_of(connection: Connection) -> Targets:
    """What the judge of a stack may tell of alerts."""
    return Targets(
        connection.events(),
        connection.topics(),
        connection.setting("alert_bus"),
        _topics(connection),
        connection.region,
        connection.partition,
    )


def alerts_of(connection: Connection) -> Alerts:
    """The alerts of a stack."""
    return Alerts(
        rules_of(connection),
        targets_of(connection),
        TotalsReader(connection.door("standard"), connection.setting("counters_table")),
        connection.setting("home_region"),
    )


def _topics(connection: Connection) -> tuple[str, ...]:
    """The topics that the stack's parameter names; a stack without any has no such output."""
    listed = connection.settings.alert_topic_arns
    if listed is None:
        listed = connection.outputs.get("AlertTopicArns", "")
    return tuple(filter(None, (arn.strip() for arn in listed.split(","))))
