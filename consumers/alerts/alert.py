"""The alert: one crossing of one threshold, and its id.

The id is made of what the alert is, and of nothing that a second delivery could change: region,
rule and revision, the total's version, threshold, direction and counter.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from countledger.consumers.alerts.crossing import Crossing
from countledger.consumers.alerts.rule import Direction, target_of
from countledger.ledger.amount import from_number, to_text
from countledger.ledger.clock import to_datetime

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from countledger.consumers.alerts.crossing import TotalChange
    from countledger.consumers.alerts.rule import Rule, Target
    from countledger.ledger.amount import Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One crossing, as it is published.

    Attributes:
        rule: the rule's name.
        revision: which revision of it.
        counter: whose total crossed.
        direction: rising or falling: which way.
        threshold: what it crossed; of a range the first.
        through: of a range (more than a hundred thresholds in one update) the last; else None.
        count: how many thresholds that are.
        old: the total before the update.
        new: the total after it.
        version: of the total after the update.
        region: where it was evaluated.
        at_ms: when the stream made the update's record, in whole seconds.
        test: whether it only tests the way to the target.
    """

    rule: str
    revision: str
    counter: str
    direction: Direction
    threshold: Amount
    through: Amount | None = None
    count: int = 1
    old: Amount
    new: Amount
    version: int
    region: str
    at_ms: int
    test: bool = False

    @property
    def id(self) -> str:
        """The identity of the alert; the same at each delivery."""
        threshold = to_text(self.threshold)
        rule = f"{self.rule}@{self.revision}"
        parts = (self.region, rule, str(self.version), threshold, str(self.direction), self.counter)
        return "/".join(("test", *parts) if self.test else parts)

    @property
    def dedup(self) -> str:
        """The SHA-256 of the id: 64 hex digits, for readers that keep the ids they have seen."""
        return sha256(self.id.encode()).hexdigest()

    @property
    def at(self) -> datetime:
        """When the stream made the update's record, in UTC."""
        return to_datetime(self.at_ms)


@dataclass(frozen=True, slots=True)
class FailedAlert:
    """An alert that its target did not take.

    Attributes:
        alert: the alert.
        reason: the last answer of the target.
        silent: whether the target did not answer at all: another attempt may take as long.
    """

    alert: Alert
    reason: str
    silent: bool = False


class Publisher(Protocol):
    """Sends alerts to their targets."""

    def publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        """Send alerts in order; the result is those that the target did not take."""


@dataclass(frozen=True, slots=True)
class Firing:
    """All alerts of one update of a total under one rule: stored in one write, published together.

    Attributes:
        rule: the rule's name.
        revision: which revision of it.
        target: where its alerts go.
        counter: whose total.
        direction: rising or falling.
        crossings: the thresholds that it crossed, in order.
        old: the total before the update.
        new: the total after it.
        version: of the total after the update.
        region: where it was evaluated.
        at_ms: when the stream made the update's record, in whole seconds.
    """

    rule: str
    revision: str
    target: Target
    counter: str
    direction: Direction
    crossings: tuple[Crossing, ...]
    old: Amount
    new: Amount
    version: int
    region: str
    at_ms: int

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """Its alerts, in order."""
        return tuple(
            Alert(
                rule=self.rule,
                revision=self.revision,
                counter=self.counter,
                direction=self.direction,
                threshold=one.threshold,
                through=one.through,
                count=one.count,
                old=self.old,
                new=self.new,
                version=self.version,
                region=self.region,
                at_ms=self.at_ms,
            )
            for one in self.crossings
        )


def firing_of(
    rule: Rule, change: TotalChange, direction: Direction, crossings: tuple[Crossing, ...]
) -> Firing:
    """The firing of a change under a rule."""
    return Firing(
        rule.name,
        rule.revision,
        rule.target,
        change.counter,
        direction,
        crossings,
        change.old,
        change.new,
        change.version,
        rule.evaluate_in,
        change.at_ms,
    )


def trial_alert(rule: Rule, counter: str, at_ms: int) -> Alert:
    """An alert that is marked as a test, at the threshold of a rule.

    Its version is the time, so that each test has an id of its own.
    """
    return Alert(
        rule=rule.name,
        revision=rule.revision,
        counter=counter,
        direction=Direction.FALLING if rule.direction is Direction.FALLING else Direction.RISING,
        threshold=rule.threshold,
        old=rule.threshold,
        new=rule.threshold,
        version=at_ms,
        region=rule.evaluate_in,
        at_ms=at_ms,
        test=True,
    )


def encode_firing(firing: Firing) -> dict[str, Any]:
    """A firing as an attribute. Its numbers are texts: an item's number holds one digit less."""
    return {
        "revision": firing.revision,
        "target": str(firing.target),
        "direction": str(firing.direction),
        "old": to_text(firing.old),
        "new": to_text(firing.new),
        "version": firing.version,
        "region": firing.region,
        "at": firing.at_ms,
        "thresholds": [_encode_crossing(one) for one in firing.crossings],
    }


def decode_firing(counter: str, rule: str, stored: dict[str, Any]) -> Firing:
    """The firing in an attribute.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is none.
    """
    return Firing(
        rule,
        stored["revision"],
        target_of(stored["target"]),
        counter,
        Direction(stored["direction"]),
        tuple(map(_decode_crossing, stored["thresholds"])),
        from_number(stored["old"]),
        from_number(stored["new"]),
        stored["version"],
        stored["region"],
        stored["at"],
    )


def _encode_crossing(crossing: Crossing) -> str | list[str]:
    if crossing.through is None:
        return to_text(crossing.threshold)
    return [to_text(crossing.threshold), to_text(crossing.through), str(crossing.count)]


def _decode_crossing(stored: str | list[str]) -> Crossing:
    if isinstance(stored, str):
        return Crossing(from_number(stored))
    first, last, count = stored
    return Crossing(from_number(first), from_number(last), int(count))
