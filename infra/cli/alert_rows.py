"""Alerts and their rules as rows for people and documents for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.consumers.alerts.message import message_of
from countledger.infra.cli.output import facts
from countledger.ledger.amount import to_text
from countledger.ledger.clock import to_datetime

if TYPE_CHECKING:
    from countledger.consumers.alerts.alert import Alert
    from countledger.consumers.alerts.alert_log import LoggedAlert, Resent
    from countledger.consumers.alerts.rule import Rule
    from countledger.infra.cli.output import Row


def rule_row(rule: Rule) -> Row:
    """A rule for a person; what ends in a star is a prefix."""
    return {
        "rule": rule.name,
        "watches": rule.counter if rule.prefix is None else f"{rule.prefix}*",
        "threshold": rule.threshold,
        "direction": str(rule.direction),
        "rearm": rule.rearm,
        "step": rule.step,
        "window": rule.window and str(rule.window),
        "of": str(rule.of),
        "to": str(rule.target),
        "evaluated in": rule.evaluate_in,
        "effective from": to_datetime(rule.effective_from_ms),
    }


def rule_document(rule: Rule) -> Row:
    """A rule for a program."""
    return {
        "rule": rule.name,
        **facts(rule, "counter prefix threshold direction rearm step window"),
        "of": str(rule.of),
        "to": str(rule.target),
        **facts(rule, "evaluate_in revision"),
        "effective_from": to_datetime(rule.effective_from_ms),
    }


def alert_row(alert: Alert) -> Row:
    """An alert for a person; of a range from its first to its last threshold."""
    crossed: object = alert.threshold
    if alert.through is not None:
        crossed = f"{to_text(alert.threshold)} to {to_text(alert.through)} ({alert.count})"
    window = alert.window and alert.window.name
    row = facts(alert, "at rule counter direction", crossed=crossed, window=window)
    return row | facts(alert, "old new")


def alert_document(alert: Alert) -> Row:
    """An alert for a program: its message."""
    return message_of(alert).model_dump(mode="json", exclude_none=True)


def logged_row(logged: LoggedAlert) -> Row:
    """An alert of the log for a person."""
    return {**alert_row(logged.alert), "dead letter": logged.reason}


def logged_document(logged: LoggedAlert) -> Row:
    """An alert of the log for a program: the message, its time, and why it was refused."""
    times = {"published_at": logged.published_at, "dead_letter": logged.reason}
    return {**alert_document(logged.alert), **times}


def resent_row(resent: Resent) -> Row:
    """What became of a dead letter, for a person."""
    letter = resent.dead_letter
    return {
        "sent": resent.reason is None,
        "alert": None if letter is None else letter.alert.id,
        "to": None if letter is None else str(letter.target),
        "reason": resent.reason,
    }


def resent_document(resent: Resent) -> Row:
    """What became of a dead letter, for a program."""
    letter = resent.dead_letter
    return {
        "sent": resent.reason is None,
        "message": None if letter is None else alert_document(letter.alert),
        "to": None if letter is None else str(letter.target),
        "failed_before": None if letter is None else letter.reason,
        "reason": resent.reason,
    }
