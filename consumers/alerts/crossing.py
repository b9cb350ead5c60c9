"""Which thresholds of a rule one update of a total crosses. Pure.

    rising     old < threshold <= new
    falling    old > threshold >= new
    step       thresholds are threshold, threshold + step, threshold + 2 steps, ...; a falling rule
               counts its steps downwards

An update may jump over many; they alert in the order in which the total passes them. Past
`CROSSINGS_MAX` in one update, one crossing stands for the whole range.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from countledger.consumers.alerts.rule import Direction
from countledger.ledger import amount
from countledger.ledger.amount import EXACT
from countledger.ledger.limits import CROSSINGS_MAX

if TYPE_CHECKING:
    from countledger.consumers.alerts.rule import Rule
    from countledger.ledger.amount import Amount


@dataclass(frozen=True, slots=True)
class Crossing:
    """A threshold that an update crosses, or a range of too many.

    Attributes:
        threshold: the threshold; of a range the first one that the total passes.
        through: of a range the last one; None for a single threshold.
        count: how many thresholds it stands for.
    """

    threshold: Amount
    through: Amount | None = None
    count: int = 1


def direction_of(old: Amount, new: Amount) -> Direction:
    """Which way a total changes that goes from one value to another."""
    return Direction.RISING if new > old else Direction.FALLING


def crossings(old: Amount, new: Amount, rule: Rule) -> tuple[Crossing, ...]:
    """The crossings of one update of a total from `old` to `new`, in their order.

    Whether a rule with a re-arm level is armed is not asked here.
    """
    way = direction_of(old, new)
    if old == new or rule.direction not in (way, Direction.BOTH):
        return ()
    if rule.step is None:
        return (Crossing(rule.threshold),) if _passes(old, new, rule.threshold) else ()
    first, last = _steps(old, new, rule, rule.step)
    count = last - first + 1
    if count < 1:
        return ()
    if way is Direction.FALLING and rule.direction is Direction.BOTH:
        first, last = last, first
    if count > CROSSINGS_MAX:
        return (Crossing(_level(rule, first), _level(rule, last), count),)
    one = 1 if last >= first else -1
    return tuple(Crossing(_level(rule, n)) for n in range(first, last + one, one))


def is_beyond(total: Amount, rule: Rule) -> bool:
    """Whether a total has reached the threshold, on the side that a rule looks to."""
    if rule.direction is Direction.FALLING:
        return total <= rule.threshold
    return total >= rule.threshold


def is_back(total: Amount, rule: Rule) -> bool:
    """Whether a total has reached the level that arms a rule again; without one, always."""
    if rule.rearm is None:
        return True
    if rule.direction is Direction.FALLING:
        return total >= rule.rearm
    return total <= rule.rearm


def last_passed(total: Amount, rule: Rule) -> Crossing | None:
    """The threshold beyond which a total already is: of a rule with a step the last one passed."""
    if not is_beyond(total, rule):
        return None
    if rule.step is None:
        return Crossing(rule.threshold)
    far = Fraction(total) - Fraction(rule.threshold)
    return Crossing(_level(rule, int(abs(far) // Fraction(rule.step))))


def _passes(old: Amount, new: Amount, threshold: Amount) -> bool:
    return old < threshold <= new or old > threshold >= new


def _steps(old: Amount, new: Amount, rule: Rule, step: Amount) -> tuple[int, int]:
    """The numbers of the first and last step in the update, the lower one first; 0 or more each.

    Of a falling rule they count downwards, so its world is looked at upside down.
    """
    sign = -1 if rule.direction is Direction.FALLING else 1
    start = Fraction(old) - Fraction(rule.threshold)
    end = Fraction(new) - Fraction(rule.threshold)
    start, end = sign * start / Fraction(step), sign * end / Fraction(step)
    if end > start:  # start < n <= end
        return max(0, start.__floor__() + 1), end.__floor__()
    return max(0, end.__ceil__()), start.__ceil__() - 1  # start > n >= end


def _level(rule: Rule, number: int) -> Amount:
    """The threshold of that number."""
    step = rule.step or 0
    if rule.direction is Direction.FALLING:
        step = amount.negated(step)
    if isinstance(step, int):
        return amount.add(rule.threshold, number * step)
    return amount.add(rule.threshold, amount.canonical(EXACT.multiply(step, number)))
