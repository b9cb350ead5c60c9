"""What a change of a rule writes. Pure.

A change takes effect a stated time after it is written, so that every evaluator knows of it by
then. It never overwrites what an evaluator may still need: the revision before it is kept, with its
end, for as long as a record of its time may be delivered again. The stamp changes with each change,
in the same transaction and on condition that nobody else moved it: changes of rules come one after
the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from countledger.consumers.alerts.rule_items import RuleStamp, encode_rule, encode_stamp
from countledger.ledger import keys
from countledger.ledger.errors import BadRule
from countledger.ledger.expressions import Absent, Compare
from countledger.ledger.limits import ALERT_RULES_MAX, SECOND_MS
from countledger.ledger.operations import Delete, Put

if TYPE_CHECKING:
    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.rule_items import RuleSnapshot
    from countledger.ledger.operations import Write


def followed(snapshot: RuleSnapshot, rule: Rule, revision: str, effective_ms: int) -> Rule:
    """A rule as the next revision of its name.

    Args:
        snapshot: the rules as they are.
        rule: what it shall be.
        revision: its id.
        effective_ms: when it takes effect at the earliest.
    """
    return replace(
        rule,
        revision=revision,
        effective_from_ms=_effective_ms(snapshot, rule.name, effective_ms),
        effective_until_ms=None,
    )


def plan_put(table: str, snapshot: RuleSnapshot, rule: Rule) -> list[Write]:
    """Make a rule, or let a revision follow the one that is there.

    Args:
        table: the table `counters`.
        snapshot: the rules as they are.
        rule: the new revision, as `followed` made it.

    Raises:
        BadRule: there are too many.
    """
    if len(snapshot.current) + len(snapshot.past) >= ALERT_RULES_MAX:
        raise BadRule(
            f"there are {len(snapshot.current)} alert rules, and {len(snapshot.past)} revisions of "
            f"the last hours are kept; together they may be {ALERT_RULES_MAX}"
        )
    known = rule.name in snapshot.current or rule.name in snapshot.unreadable
    ended = _ended(snapshot, rule.name, rule.effective_from_ms)
    stamp = RuleStamp(snapshot.number + 1, snapshot.count + (not known), rule.name, ended)
    return [
        _stamp(table, snapshot, stamp),
        Put(table, encode_rule(rule, stamp.number)),
        *_kept(table, stamp),
    ]


def plan_delete(table: str, snapshot: RuleSnapshot, name: str, effective_ms: int) -> list[Write]:
    """Delete a rule, which may be one that cannot be read."""
    until_ms = _effective_ms(snapshot, name, effective_ms)
    ended = _ended(snapshot, name, until_ms)
    stamp = RuleStamp(snapshot.number + 1, snapshot.count - 1, None, ended)
    return [
        _stamp(table, snapshot, stamp),
        Delete(table, keys.rule_key(name)),
        *_kept(table, stamp),
    ]


def _effective_ms(snapshot: RuleSnapshot, name: str, effective_ms: int) -> int:
    """When a change takes effect: in whole seconds, and not before the one before it did."""
    before = [rule for rule in snapshot.past if rule.name == name]
    if name in snapshot.current:
        before.append(snapshot.current[name])
    known_ms = (rule.effective_until_ms or rule.effective_from_ms for rule in before)
    latest_ms = max((effective_ms, *known_ms))
    return -(-latest_ms // SECOND_MS) * SECOND_MS


def _ended(snapshot: RuleSnapshot, name: str, until_ms: int) -> Rule | None:
    """The current revision with its end, where there is one that can be read."""
    there = snapshot.current.get(name)
    return None if there is None else replace(there, effective_until_ms=until_ms)


def _kept(table: str, stamp: RuleStamp) -> list[Write]:
    """The revision that ends, as a past one."""
    return [] if stamp.ended is None else [Put(table, encode_rule(stamp.ended, stamp.number))]


def _stamp(table: str, snapshot: RuleSnapshot, stamp: RuleStamp) -> Write:
    unmoved = Compare("number", "=", snapshot.number) if snapshot.number else Absent("part")
    return Put(table, encode_stamp(stamp), unmoved)
