"""The options of a rule, as callers give them; and whether its counters can be watched at all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from countledger.consumers.alerts.rule import Direction, Rule, target_of
from countledger.consumers.windows import check_per
from countledger.ledger import keys
from countledger.ledger.errors import BadRule, NoWindows, WrongKind
from countledger.ledger.windows import decode_settings

if TYPE_CHECKING:
    from countledger.consumers.alerts.rule import Watch
    from countledger.consumers.totals import TotalsReader
    from countledger.ledger.amount import Amount
    from countledger.ledger.calendar import Per
    from countledger.ledger.total import Total


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


def check_watched(rule: Rule, totals: TotalsReader) -> None:
    """Refuse a rule for counters that no evaluator can watch in this way.

    One read unit for the total of a rule on one counter; with a window, half of one for the window
    settings of the namespace that the rule names.

    Raises:
        WrongKind: a strict counter with bins; or with a window any strict counter or sequence.
        NoWindows: the namespace has no windows.
        BadSetting: it has only coarser ones.
        RegionRebuilding: the totals of this region are incomplete.
    """
    if totals.strict is not None and ":" in (name := rule.counter or rule.prefix or ""):
        totals.strict.refuse([name], "no evaluator reads its table: compare each answer")
    totals.check_region()
    total = None if rule.counter is None else totals.read(rule.counter, consistent=True)
    if total is not None and total.bins > 1:
        raise WrongKind(
            f"counter {rule.counter!r} is a strict counter with {total.bins} bins: no update "
            "contains all of its value; create it without bins, or compare it where you read it"
        )
    if rule.window is not None:
        _check_window(rule, total, totals)


def refuse_now(rule: Rule) -> None:
    """Refuse the initial scan of a rule that watches windows.

    Raises:
        BadRule: it does.
    """
    if rule.window is not None:
        raise BadRule(
            f"rule {rule.name!r} watches windows, which no initial scan reads: leave out --now, or "
            "read the windows that have begun with `countledger windows show`"
        )


def _check_window(rule: Rule, total: Total | None, totals: TotalsReader) -> None:
    if total is not None and total.method is not None:
        raise WrongKind(
            f"counter {rule.counter!r} is a strict counter or a sequence, which has no windows: "
            "record what windows are wanted of in a ledger counter as well, and watch that"
        )
    name = rule.counter or rule.prefix or ""
    if rule.counter is None and ":" not in name:
        return  # counters of several namespaces; those without windows are not evaluated
    namespace = keys.namespace_of(name)
    item = totals.dynamo.get(totals.table, keys.windows_key(namespace))
    settings = decode_settings(item)
    if not settings or settings[-1].ended_ms is not None:
        raise NoWindows(
            f"namespace {namespace!r} has no windows: `countledger windows enable {namespace} "
            f"--by {'day' if rule.window == 'month' else rule.window}` switches them on"
        )
    check_per(str(rule.window), namespace, settings[-1:])
