"""The options of a rule, as callers give them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from countledger.consumers.alerts.rule import Direction, Rule, target_of
from countledger.ledger.errors import BadRule

if TYPE_CHECKING:
    from countledger.consumers.alerts.rule import Watch
    from countledger.ledger.amount import Amount
    from countledger.ledger.calendar import Per


class RuleSpec(TypedDict, total=False):
    """The options of a rule; an option that is not given has its default, or stays as it is.

    Attributes:
        counter, prefix, rearm, step: as in `Rule`.
        threshold: as in `Rule`; by default the step.
        direction: `rising`, `falling` or `both`; with a window by default `rising`.
        window: `minute`, `hour`, `day` or `month`: the sum of each window is watched; None (the
            default): the total.
        of: `value` (the default) or `available`.
        to: where alerts go: `bus` (the default) or the ARN of a topic.
    """

    counter: str
    prefix: str
    threshold: Amount
    direction: Direction | str
    window: Per | str | None
    of: Watch | str
    rearm: Amount | None
    step: Amount | None
    to: str


def rule_of(name: str, evaluate_in: str, spec: RuleSpec) -> Rule:
    """The rule with these options.

    Raises:
        BadRule, BadCounterName: an option is missing or breaks a rule.
    """
    fields = _fields(spec)
    if fields.get("threshold") is None:
        fields["threshold"] = fields.get("step")
    if fields["threshold"] is None:
        raise BadRule(f"rule {name!r} needs a threshold or a step")
    if fields.get("window") is not None:
        fields.setdefault("direction", Direction.RISING)
    if fields.get("direction") is None:
        raise BadRule(f"rule {name!r} needs a direction: rising, falling or both")
    return Rule(name=name, evaluate_in=evaluate_in, **fields)


def changed_rule(rule: Rule, spec: RuleSpec) -> Rule:
    """The rule with some options changed.

    Raises:
        BadRule, BadCounterName: an option breaks a rule.
    """
    fields = _fields(spec)
    if "counter" in spec or "prefix" in spec:
        fields = {"counter": None, "prefix": None, **fields}
    return replace(rule, **fields)


def _fields(spec: RuleSpec) -> dict[str, Any]:
    fields: dict[str, Any] = {**spec}
    if "to" in fields:
        fields["target"] = target_of(fields.pop("to"))
    return fields
