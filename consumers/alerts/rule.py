"""A rule: whose crossings of which threshold alert, and where to. A value, valid at birth.

A rule is never changed, only followed by another revision of it. Which revision evaluates a record
is told by the record's own time, so the same record is evaluated alike whenever it is delivered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.ledger import amount, keys
from countledger.ledger.amount import to_text
from countledger.ledger.errors import BadCounterName, BadRule, shown
from countledger.ledger.limits import (
    ALERT_RULE_NAME_MAX_BYTES,
    COUNTER_NAME_MAX_BYTES,
    NUMBER_MAX_DIGITS,
)

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount

_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{ALERT_RULE_NAME_MAX_BYTES - 1}}}")
_TOPIC: Final = re.compile(r"arn:(aws[a-z-]*):sns:([a-z0-9-]+):(\d{12}):([A-Za-z0-9_-]{1,256})")


class Direction(StrEnum):
    """Which way a total has to pass a threshold."""

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
        BadRule: its ARN is no topic's.
    """

    arn: str

    def __post_init__(self) -> None:
        """Refuse what no topic is called."""
        if not _TOPIC.fullmatch(str(self.arn)):
            raise BadRule(
                f"{shown(self.arn, 80)} is no ARN of a standard SNS topic: give one such as "
                "arn:aws:sns:eu-central-1:111122223333:alarms"
            )

    def __str__(self) -> str:
        """As it is stored and shown."""
        return self.arn

    @property
    def partition(self) -> str:
        """`aws`, or that of another kind of region."""
        return self.arn.split(":")[1]

    @property
    def region(self) -> str:
        """Where the topic is."""
        return self.arn.split(":")[3]


Target: TypeAlias = Bus | Topic


def target_of(text: str) -> Target:
    """The target that a text stands for: `bus`, or a topic's ARN.

    Raises:
        BadRule: it is neither.
    """
    return Bus() if text == str(Bus()) else Topic(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One revision of a rule.

    Attributes:
        name: 1 to 64 of `A-Z a-z 0-9 . _ -`, the first a letter or digit.
        counter: the one counter that it watches; or
        prefix: what the names of the counters begin with that it watches; "" = all of them.
        threshold: what the total has to reach or pass.
        direction: rising: from below it to it or beyond; falling: from above; both: either.
        rearm: how far the total has to go back before the next alert, itself included; None: any
            way back behind the threshold is enough.
        step: alert at threshold, threshold + step, threshold + 2 steps, ... (falling: downwards).
        target: where alerts go.
        evaluate_in: the region that evaluates it.
        revision: unique among all rules there ever were.
        effective_from_ms: the revision evaluates records made at this time or later, milliseconds
            since the epoch, in whole seconds.
        effective_until_ms: and before this one; None: until it is changed.

    Raises:
        BadRule, BadCounterName: naming the value and the rule that it breaks.
    """

    name: str
    counter: str | None = None
    prefix: str | None = None
    threshold: Amount
    direction: Direction
    rearm: Amount | None = None
    step: Amount | None = None
    target: Target = Bus()
    evaluate_in: str
    revision: str = ""
    effective_from_ms: int = 0
    effective_until_ms: int | None = None

    def __post_init__(self) -> None:
        """Refuse what no rule can be, and settle the one spelling of each number."""
        check_rule_name(self.name)
        if (self.counter is None) == (self.prefix is None):
            raise BadRule(
                f"rule {self.name!r} watches one counter, or one prefix: give one of them"
            )
        if self.counter is not None:
            keys.check_counter(self.counter)
        if self.prefix is not None:
            _check_prefix(self.prefix)
        if self.direction not in list(Direction):
            raise BadRule(f"direction {shown(self.direction)} is none of {', '.join(Direction)}")
        object.__setattr__(self, "direction", Direction(self.direction))
        object.__setattr__(self, "threshold", check_amount("threshold", self.threshold))
        if self.step is not None:
            object.__setattr__(self, "step", check_amount("step", self.step))
        if self.rearm is not None:
            object.__setattr__(self, "rearm", check_amount("re-arm level", self.rearm))
        self._check_step()
        self._check_rearm()

    def covers(self, counter: str) -> bool:
        """Whether it watches a counter."""
        if self.prefix is not None:
            return counter.startswith(self.prefix)
        return counter == self.counter

    def is_effective_at(self, at_ms: int) -> bool:
        """Whether this revision evaluates a record of that time.

        Args:
            at_ms: when the stream's record was made: the stream tells it in whole seconds, rounded
                down, and revisions begin and end with whole seconds too.
        """
        until_ms = self.effective_until_ms
        return self.effective_from_ms <= at_ms and (until_ms is None or at_ms < until_ms)

    def means_the_same_as(self, other: Rule) -> bool:
        """Whether two revisions differ in no more than revision and time."""
        return self._meaning == other._meaning

    @property
    def _meaning(self) -> Rule:
        return replace(self, revision="", effective_from_ms=0, effective_until_ms=None)

    def _check_step(self) -> None:
        if self.step is None:
            return
        if self.step <= 0:
            raise BadRule(f"step {to_text(self.step)} is not above zero")
        if self.rearm is not None:
            raise BadRule(
                "a rule with a step takes no re-arm level: each multiple is a threshold of its own"
            )

    def _check_rearm(self) -> None:
        if self.rearm is None:
            return
        level, threshold = to_text(self.rearm), to_text(self.threshold)
        if self.direction is Direction.BOTH:
            raise BadRule(
                "a rule of direction both takes no re-arm level: make one rule for each direction"
            )
        if self.direction is Direction.RISING and self.rearm >= self.threshold:
            raise BadRule(
                f"re-arm level {level} is not below the threshold {threshold}: a rising rule is "
                "armed again by falling to it"
            )
        if self.direction is Direction.FALLING and self.rearm <= self.threshold:
            raise BadRule(
                f"re-arm level {level} is not above the threshold {threshold}: a falling rule is "
                "armed again by rising to it"
            )


def check_rule_name(name: object) -> str:
    """The name, if a rule can be called so.

    Raises:
        BadRule: naming the rule that it breaks.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadRule(
            f"rule name {shown(name)} must be 1 to {ALERT_RULE_NAME_MAX_BYTES} letters, digits, "
            "'.', '_' and '-', the first a letter or digit"
        )
    return name


def check_amount(what: str, value: object) -> Amount:
    """A number of a rule in its one spelling.

    Args:
        what: its name, for messages.
        value: as given.

    Raises:
        BadRule: it is no exact finite number, or needs more digits than a total has.
    """
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise BadRule(f"{what} {shown(value)} is no number: give an int or a decimal.Decimal")
    if (isinstance(value, Decimal) and not value.is_finite()) or not amount.fits(value):
        raise BadRule(
            f"{what} {shown(value)} is no finite number of at most {NUMBER_MAX_DIGITS} digits"
        )
    return amount.canonical(value)


def _check_prefix(prefix: object) -> None:
    what = f"prefix {shown(prefix, 80)}"
    if not isinstance(prefix, str):
        raise BadRule(f"{what} is a {type(prefix).__name__}, not a str")
    if "#" in prefix or keys.has_control_characters(prefix):
        raise BadCounterName(f"{what}: no counter's name holds a '#' or control characters")
    if prefix.startswith(":"):
        raise BadCounterName(f"{what}: no counter's name begins with a colon")
    size = len(prefix.encode())
    if size > COUNTER_NAME_MAX_BYTES:
        raise BadCounterName(f"{what} is {size} bytes long; at most {COUNTER_NAME_MAX_BYTES} fit")
