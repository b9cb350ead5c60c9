"""What has to alert: a walk over the totals that the stream shows, one after the other.

It knows nothing of states, conditions and deliveries: a total, the next total, and whether the rule
is armed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from countledger.consumers.alerts.message import Alert
from countledger.consumers.alerts.rule import Direction, Rule
from countledger.ledger.limits import SECOND_MS


@dataclass(frozen=True, slots=True)
class Seen:
    """One record of the stream, as a person reads it."""

    counter: str
    version: int
    old: int
    new: int
    at_ms: int


def seen(record: dict[str, Any]) -> Seen:
    """What a record shows."""
    stream = record["dynamodb"]
    before = stream.get("OldImage", {"total": {"N": "0"}})
    return Seen(
        stream["Keys"]["counter"]["S"],
        int(stream["NewImage"]["version"]["N"]),
        int(before["total"]["N"]),
        int(stream["NewImage"]["total"]["N"]),
        round(stream["ApproximateCreationDateTime"] * SECOND_MS),
    )


def expected(records: Iterable[dict[str, Any]], rules: Sequence[Rule]) -> list[str]:
    """The ids that have to be told, in the order of the records."""
    armed: dict[tuple[str, str], bool] = {}
    ids: list[str] = []
    for one in map(seen, records):
        for rule in rules:
            if one.counter.startswith(rule.prefix or "") and _is_in_force(rule, one.at_ms):
                place = (one.counter, rule.revision)
                crossed = walked(one.old, one.new, rule)
                if crossed and armed.get(place, True):
                    ids += [_id(one, rule, threshold) for threshold in crossed]
                    armed[place] = rule.rearm is None
                elif not armed.get(place, True) and _is_back(one.new, rule):
                    armed[place] = True
    return ids


def _is_in_force(rule: Rule, at_ms: int) -> bool:
    ended = rule.effective_until_ms is not None and rule.effective_until_ms <= at_ms
    return rule.effective_from_ms <= at_ms and not ended


def walked(old: int, new: int, rule: Rule) -> list[int]:
    """Step from one integer to the next, and keep each threshold that a step reaches."""
    up = new > old
    if rule.direction is (Direction.FALLING if up else Direction.RISING):
        return []
    pace = 1 if up else -1
    reached = range(old + pace, new + pace, pace)
    return [at for at in reached if _is_threshold(at, rule)]


def _is_threshold(value: int, rule: Rule) -> bool:
    far = value - int(rule.threshold)
    if rule.step is None:
        return far == 0
    if rule.direction is Direction.FALLING:
        far = -far
    return far >= 0 and far % int(rule.step) == 0


def _is_back(value: int, rule: Rule) -> bool:
    if rule.rearm is None:
        return True
    return value >= rule.rearm if rule.direction is Direction.FALLING else value <= rule.rearm


def _id(one: Seen, rule: Rule, threshold: int) -> str:
    return Alert(
        rule=rule.name,
        revision=rule.revision,
        counter=one.counter,
        direction=Direction.RISING if one.new > one.old else Direction.FALLING,
        threshold=threshold,
        old=one.old,
        new=one.new,
        version=one.version,
        region=rule.evaluate_in,
        at_ms=one.at_ms,
    ).id
