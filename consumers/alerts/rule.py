"""A rule: which counters alert at which thresholds, and where the alerts go.

A rule is never edited: a change makes another revision. The time of a stream record decides which
revision evaluates it, so a record is evaluated alike whenever it is delivered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.ledger import amount, keys
from countledger.ledger.amount import to_text
from countledger.ledger.calendar import Per
from countledger.ledger.errors import BadRule, shown
from countledger.ledger.limits import (
    ALERT_RULE_NAME_MAX_BYTES,
    NUMBER_MAX_DIGITS,
)
from countledger.ledger.texts import plain_text

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount

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
        """As it is stored and shown."""
        return "bus"


@dataclass(frozen=True, slots=True)
class Topic:
    """A standard topic of SNS.

    Raises:
        BadRule: the text is not the ARN of a topic.
    """

    arn: str

    def __post_init__(self) -> None:
        """Check the ARN."""
        if not _TOPIC.fullmatch(str(self.arn)):
            raise BadRule(
                f"{shown(self.arn, 80)} is not the ARN of a standard SNS topic: give one such as "
                "arn:aws:sns:eu-central-1:111122223333:alarms"
            )

    def __str__(self) -> str:
        """As it is stored and shown."""
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
    """The target of a text: `bus`, or the ARN of a topic.

    Raises:
        BadRule: the text is neither.
    """
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
        ended_by: the id of the change that ended it; None: no end yet.

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
    ended_by: str | None = None

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
    """The name, if it is a valid name of a rule, or `BadRule`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadRule(
            f"rule name {shown(name)} must be 1 to {ALERT_RULE_NAME_MAX_BYTES} letters, digits, "
            "'.', '_' and '-', the first a letter or digit"
        )
    return plain_text(name)


def check_amount(what: str, value: object) -> Amount:
    """A number of a rule in its canonical form, or `BadRule`; `what` names it in the message."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise BadRule(f"{what} {shown(value)} is not a number: give an int or a decimal.Decimal")
    value = amount.plain_amount(value)
    if (isinstance(value, Decimal) and not value.is_finite()) or not amount.fits(value):
        raise BadRule(
            f"{what} {shown(value)} is not a finite number of at most {NUMBER_MAX_DIGITS} digits"
        )
    return amount.canonical(value)
