"""What a user says of a rule, and the rule that it makes. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from countledger.consumers.alerts.rule import Rule, target_of
from countledger.ledger.errors import BadRule

if TYPE_CHECKING:
    from countledger.consumers.alerts.rule import Direction
    from countledger.ledger.amount import Amount


class RuleSpec(TypedDict, total=False):
    """What a user says of a rule; what is left out has its default, or stays.

    Attributes:
        counter: the one counter that it watches; or
        prefix: what the names of the counters begin with that it watches; "" = all.
        threshold: what the total has to reach or pass; by default the step.
        direction: which way: `rising`, `falling` or `both`.
        rearm: how far the total has to go back before the next alert; None: behind the threshold.
        step: alert at each multiple from the threshold on; None: at the threshold alone.
        to: where alerts go: `bus`, the stack's event bus and the default, or a topic's ARN.
    """

    counter: str
    prefix: str
    threshold: Amount
    direction: Direction | str
    rearm: Amount | None
    step: Amount | None
    to: str


def made(name: str, evaluate_in: str, spec: RuleSpec) -> Rule:
    """The rule that a spec stands for, with defaults for what it leaves out.

    Raises:
        BadRule, BadCounterName: the spec lacks something, or breaks a rule.
    """
    words = _fields(spec)
    if words.get("threshold") is None:
        words["threshold"] = words.get("step")
    if words["threshold"] is None:
        raise BadRule(f"rule {name!r} does not say at what: give a threshold, or a step")
    if words.get("direction") is None:
        raise BadRule(f"rule {name!r} does not say which way: rising, falling or both")
    return Rule(name=name, evaluate_in=evaluate_in, **words)


def changed(rule: Rule, spec: RuleSpec) -> Rule:
    """The rule with what is wished otherwise.

    Raises:
        BadRule, BadCounterName: it would be no rule.
    """
    words = _fields(spec)
    if "counter" in spec and "prefix" not in spec:
        words["prefix"] = None
    if "prefix" in spec and "counter" not in spec:
        words["counter"] = None
    return replace(rule, **words)


def _fields(spec: RuleSpec) -> dict[str, Any]:
    fields: dict[str, Any] = {**spec}
    if "to" in fields:
        fields["target"] = target_of(fields.pop("to"))
    return fields
