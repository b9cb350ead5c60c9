"""Alert rules as rows for people and documents for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.ledger.clock import to_datetime

if TYPE_CHECKING:
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
        "to": str(rule.target),
        "judged in": rule.judge_in,
        "in force from": to_datetime(rule.effective_from_ms),
    }


def rule_document(rule: Rule) -> Row:
    """A rule for a program."""
    return {
        "rule": rule.name,
        "counter": rule.counter,
        "prefix": rule.prefix,
        "threshold": rule.threshold,
        "direction": str(rule.direction),
        "rearm": rule.rearm,
        "step": rule.step,
        "to": str(rule.target),
        "judge_in": rule.judge_in,
        "revision": rule.revision,
        "effective_from": to_datetime(rule.effective_from_ms),
    }
