"""A rule: which counters alert at which thresholds, and where the alerts go.

A rule is never edited: a change makes another revision. The time of a stream record decides which
revision evaluates it, so a record is evaluated alike whenever it is delivered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from countledger.consumers.windows import check_per
from countledger.ledger import amount, keys
from countledger.ledger.amount import to_text
from countledger.ledger.calendar import Per
from countledger.ledger.errors import BadRule, NoWindows, WrongKind, shown
from countledger.ledger.limits import ALERT_RULE_NAME_MAX_BYTES, NUMBER_MAX_DIGITS
from countledger.ledger.texts import plain_text
from countledger.ledger.windows import decode_settings

if TYPE_CHECKING:
    from countledger.consumers.totals import TotalsReader
    from countledger.ledger.amount import Amount
    from countledger.ledger.total import Total


_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{ALERT_RULE_NAME_MAX_BYTES - 1}}}")
_TOPIC: Final = re.compile(r"arn:(aws[a-z-]*):sns:([a-z0-9-]+):(\d{12}):([A-Za-z0-9_-]{1,256})")


class Direction(StrEnum):
    """The direction in which a total must cross a threshold."""

    RISING = "rising"
    FALLING = "falling"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Bus:
    """The event bus of the stack."""

    def __str__(self) -> str:
        return "bus"


@dataclass(frozen=True, slots=True)
class Topic:
    """A standard topic of SNS.

    Raises:
        BadRule: the text is not the ARN of a topic.
    """

    arn: str

    def __post_init__(self) -> None:
        if not _TOPIC.fullmatch(str(self.arn)):
            raise BadRule(
                f"{shown(self.arn, 80)} is not the ARN of a standard SNS topic: give one such as "
                "arn:aws:sns:eu-central-1:111122223333:alarms"
            )

    def __str__(self) -> str:
        return self.arn

    @property
    def partition(self) -> str:
        """As `aws`."""
        return self.arn.split(":")[1]

    @property
    def region(self) -> str:
        """The region of the topic."""
        return self.arn.split(":")[3]


Target: TypeAlias = Bus | Topic


def target_of(text: str) -> Target:
    """The target of a text: `bus`, or the ARN of a topic."""
    return Bus() if text == str(Bus()) else Topic(text)


class Watch(StrEnum):
    """What of a counter a rule watches."""

    VALUE = "value"
    AVAILABLE = "available"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One revision of a rule.

    Attributes:
        name: 1 to 64 of `A-Z a-z 0-9 . _ -`, the first a letter or digit.
        counter: the one counter that the rule watches; or
        prefix: the rule watches all counters whose names start with it; "" = all counters.
        of: the total, or what is available: the total without what open holds of it reserve.
        threshold: the value that the total (or what is available) must reach or pass.
        direction: rising: from below the threshold; falling: from above; both: either.
        rearm: what it must reach again before the next alert; None: any value on the other side.
        step: alert at threshold, threshold + step, threshold + 2 steps, ... (falling: downwards).
        window: watch the sum of each minute, hour, day or month instead of the total; each of them
            alerts once. None: the total.
        target: where alerts go.
        evaluate_in: the region that evaluates the rule.
        revision: unique among all rules of all times.
        effective_from_ms: evaluates records made from then on, in whole seconds since the epoch.
        effective_until_ms: and before this time; None: no end yet.

    Raises:
        BadRule, BadCounterName: with the value and the rule that it breaks.
    """

    name: str
    counter: str | None = None
    prefix: str | None = None
    threshold: Amount
    direction: Direction
    rearm: Amount | None = None
    step: Amount | None = None
    window: Per | None = None
    of: Watch = Watch.VALUE
    target: Target = Bus()
    evaluate_in: str
    revision: str = ""
    effective_from_ms: int = 0
    effective_until_ms: int | None = None

    def __post_init__(self) -> None:
        """Check all values, and bring numbers into their canonical form."""
        object.__setattr__(self, "name", check_rule_name(self.name))
        if (self.counter is None) == (self.prefix is None):
            raise BadRule(f"rule {self.name!r} needs either a counter or a prefix: give one")
        if self.counter is not None:
            object.__setattr__(self, "counter", keys.check_counter(self.counter))
        if self.prefix is not None:
            object.__setattr__(self, "prefix", keys.check_prefix(self.prefix))
        for name, kind in (("direction", Direction), ("of", Watch)):
            given = getattr(self, name)
            if given not in list(kind):
                raise BadRule(f"{name} {shown(given)} is not one of {', '.join(kind)}")
            object.__setattr__(self, name, kind(given))
        object.__setattr__(self, "threshold", check_amount("threshold", self.threshold))
        self._check_step()
        self._check_rearm()
        self._check_window()

    def covers(self, counter: str) -> bool:
        """Whether the rule watches a counter."""
        if self.prefix is not None:
            return counter.startswith(self.prefix)
        return counter == self.counter

    def is_beyond(self, value: Amount) -> bool:
        """Whether a total of this value has passed the threshold; False with a step or a window."""
        if self.step is not None or self.window is not None or self.direction is Direction.BOTH:
            return False
        rising = self.direction is Direction.RISING
        return value >= self.threshold if rising else value <= self.threshold

    def is_effective_at(self, at_ms: int) -> bool:
        """Whether this revision evaluates a record made at that time.

        Streams round times down to whole seconds; revisions start and end at whole seconds.
        """
        until_ms = self.effective_until_ms
        return self.effective_from_ms <= at_ms and (until_ms is None or at_ms < until_ms)

    def means_the_same_as(self, other: Rule) -> bool:
        """Whether two revisions differ in revision and times only."""
        begins, ends = other.effective_from_ms, other.effective_until_ms
        same = replace(self, effective_from_ms=begins, effective_until_ms=ends)
        return other == replace(same, revision=other.revision)

    def _check_step(self) -> None:
        if self.step is None:
            return
        object.__setattr__(self, "step", check_amount("step", self.step))
        if self.step <= 0:
            raise BadRule(f"step {to_text(self.step)} is not above zero")
        if self.rearm is not None:
            raise BadRule(
                "a rule with a step has no re-arm level, because each multiple of the step is a "
                "threshold of its own: give one of them"
            )

    def _check_window(self) -> None:
        if self.window is None:
            return
        if self.window not in list(Per):
            raise BadRule(f"window {shown(str(self.window))} is not one of {', '.join(Per)}")
        object.__setattr__(self, "window", Per(self.window))
        if self.step is not None or self.rearm is not None:
            raise BadRule(
                "a rule with a window has no step and no re-arm level, because each window alerts "
                "once: make one rule for each threshold"
            )
        if self.of is not Watch.VALUE:
            raise BadRule("strict counters have no windows, so what is available has none")

    def _check_rearm(self) -> None:
        if self.rearm is None:
            return
        object.__setattr__(self, "rearm", check_amount("re-arm level", self.rearm))
        level, threshold = to_text(self.rearm), to_text(self.threshold)
        if self.direction is Direction.BOTH:
            why = "a rule of direction both has no re-arm level: make one rule for each direction"
            raise BadRule(why)
        rising = self.direction is Direction.RISING
        if (self.rearm >= self.threshold) if rising else (self.rearm <= self.threshold):
            side, way = ("below", "falls") if rising else ("above", "rises")
            raise BadRule(
                f"re-arm level {level} is not {side} the threshold {threshold}: a {self.direction} "
                f"rule is re-armed when the total {way} to that level"
            )


@dataclass(frozen=True, slots=True)
class Crossing:
    """A threshold that an update crosses; or `count` thresholds, the last of them `through`."""

    threshold: Amount
    through: Amount | None = None
    count: int = 1


def check_rule_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadRule(
            f"rule name {shown(name)} must be 1 to {ALERT_RULE_NAME_MAX_BYTES} letters, digits, "
            "'.', '_' and '-', the first a letter or digit"
        )
    return plain_text(name)


def check_amount(what: str, value: object) -> Amount:
    """A number of a rule in its canonical form; `what` names it in the message."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise BadRule(f"{what} {shown(value)} is not a number: give an int or a decimal.Decimal")
    value = amount.plain_amount(value)
    if (isinstance(value, Decimal) and not value.is_finite()) or not amount.fits(value):
        raise BadRule(
            f"{what} {shown(value)} is not a finite number of at most {NUMBER_MAX_DIGITS} digits"
        )
    return amount.canonical(value)


# The options of a rule, as callers give them; and whether its counters can be watched at all.


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

    `WrongKind`: a strict counter with bins; or with a window any strict counter or sequence.
    `BadSetting`: the namespace has only coarser windows.
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
    """Refuse the initial scan of a rule that watches windows."""
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
    item = totals.connection.retrying.get(totals.connection.counters, keys.windows_key(namespace))
    settings = decode_settings(item)
    if not settings or settings[-1].ended_ms is not None:
        raise NoWindows(
            f"namespace {namespace!r} has no windows: `countledger windows enable {namespace} "
            f"--by {'day' if rule.window == 'month' else rule.window}` switches them on"
        )
    check_per(str(rule.window), namespace, settings[-1:])
