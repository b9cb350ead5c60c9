"""Rules as items of `counters`, all in one partition, and the writes that change them.

A past revision is kept, with its end, for as long as a record of its time may be delivered again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from countledger.consumers.alerts.rule import Direction, Rule, Watch, target_of
from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, optional, require, require_amount
from countledger.ledger.calendar import Per
from countledger.ledger.errors import BadRule, CorruptItem, CountledgerError, NoSuchRule
from countledger.ledger.limits import ALERT_RULES_MAX, SECOND_MS, STREAM_RECORD_MAX_AGE_MS
from countledger.ledger.operations import Absent, Compare, Delete, Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from countledger.ledger.operations import Write


@dataclass(frozen=True, slots=True)
class RuleSnapshot:
    """All rules as of one moment.

    Attributes:
        number: of the stamp: how often rules were changed; 0 = never.
        current: the newest revision of each rule, by name.
        past: earlier revisions, and the last revisions of deleted rules.
        unreadable: by name why a rule is corrupt; corrupt rules are not evaluated.
        changed_by: the id of the last change; None: there was none.
        is_whole: whether it holds every item of the last change, and none of a later change.
    """

    number: int
    current: Mapping[str, Rule]
    past: tuple[Rule, ...]
    unreadable: Mapping[str, str]
    changed_by: str | None = None
    is_whole: bool = True

    @property
    def count(self) -> int:
        """The number of rules, corrupt ones included."""
        corrupt = (one for one in self.unreadable if not one.startswith(keys.PAST_RULE_PREFIX))
        return len(self.current) + sum(1 for _ in corrupt)

    def rule(self, name: str) -> Rule:
        """The newest revision of a rule.

        Raises:
            NoSuchRule, CorruptItem: no rule has that name, or the stored one is corrupt.
        """
        if name in self.unreadable:
            raise CorruptItem(
                f"{self.unreadable[name]}: `countledger alert delete {name}` deletes it"
            )
        if name not in self.current:
            raise NoSuchRule(
                f"no alert rule is called {name!r}: `countledger alert create {name}` creates one"
            )
        return self.current[name]

    def evaluated_in(self, region: str) -> list[Rule]:
        """The rules for an evaluator: all revisions of the rules for that region."""
        return [rule for rule in (*self.past, *self.current.values()) if rule.evaluate_in == region]


@dataclass(frozen=True, slots=True)
class RuleStamp:
    """The record of the last change.

    A query may see only a part of a transaction's items. So the stamp says which other items a
    complete read must contain.

    Attributes:
        number: how often rules were changed; 0 = never.
        count: the number of rules.
        left: the name of the rule that the change wrote; None: the change deleted a rule.
        ended: the revision that the change ended, with its end; a read may miss its own item.
        changed_by: the id of the change.
    """

    number: int = 0
    count: int = 0
    left: str | None = None
    ended: Rule | None = None
    changed_by: str | None = None


def encode_rule(rule: Rule, change: int | None = None) -> Item:
    """A rule's item; `change`: the number of the change that writes it.

    A revision with an end is a past one, and expires when no record needs it.
    """
    until_ms, now = rule.effective_until_ms, keys.rule_key(rule.name)
    return {
        **(now if until_ms is None else keys.past_rule_key(rule.name, rule.revision)),
        "name": rule.name,
        "watched_counter": rule.counter,
        "watched_prefix": rule.prefix,
        "threshold": rule.threshold,
        "direction": str(rule.direction),
        "rearm": rule.rearm,
        "step": rule.step,
        "window": None if rule.window is None else str(rule.window),
        "of": None if rule.of is Watch.VALUE else str(rule.of),
        "target": str(rule.target),
        "evaluate_in": rule.evaluate_in,
        "revision": rule.revision,
        "effective_from": rule.effective_from_ms,
        "effective_until": until_ms,
        "ended_by": rule.ended_by,
        "expires_at": None if until_ms is None else _expires_at(until_ms),
        "change": change,
    }


def decode_rule(item: Item) -> Rule:
    """The rule in an item of `counters`.

    Raises:
        CorruptItem: an attribute is absent, of another type, or breaks its rule.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    try:
        return Rule(
            name=require(item, "name", str),
            counter=optional(item, "watched_counter", str),
            prefix=optional(item, "watched_prefix", str),
            threshold=require_amount(item, "threshold"),
            direction=Direction(require(item, "direction", str)),
            rearm=require_amount(item, "rearm") if "rearm" in item else None,
            step=require_amount(item, "step") if "step" in item else None,
            window=Per(item["window"]) if "window" in item else None,
            of=Watch(optional(item, "of", str) or Watch.VALUE),
            target=target_of(require(item, "target", str)),
            evaluate_in=require(item, "evaluate_in", str),
            revision=require(item, "revision", str),
            effective_from_ms=require(item, "effective_from", int),
            effective_until_ms=optional(item, "effective_until", int),
            ended_by=optional(item, "ended_by", str),
        )
    except ValueError as error:
        raise CorruptItem(f"alert rule {item.get('part')!r}: {error}", item) from error


def encode_stamp(stamp: RuleStamp) -> Item:
    """The stamp's item."""
    ended = None if stamp.ended is None else encode_rule(stamp.ended)
    return {
        **keys.rules_stamp_key(),
        "number": stamp.number,
        "rules": stamp.count,
        "left": stamp.left,
        "ended": None if ended is None else {n: v for n, v in ended.items() if v is not None},
        "changed_by": stamp.changed_by,
    }


def decode_stamp(item: Item | None) -> RuleStamp:
    """The stamp; number 0 if no rule was ever created.

    Raises:
        CorruptItem, NewerFormat: it cannot be read; a later release wrote it.
    """
    if item is None:
        return RuleStamp()
    check_format(item)
    ended = optional(item, "ended", dict)
    return RuleStamp(
        require(item, "number", int),
        require(item, "rules", int),
        optional(item, "left", str),
        None if ended is None else decode_rule(ended),
        optional(item, "changed_by", str),
    )


def snapshot_of(items: Iterable[Item]) -> RuleSnapshot:
    """The rules in the items of their partition; a corrupt rule does not hide the others.

    Raises:
        CorruptItem: the stamp is corrupt, so no evaluator could notice a change.
    """
    stamp = RuleStamp()
    current: dict[str, Rule] = {}
    past: dict[str, Rule] = {}
    unreadable: dict[str, str] = {}
    changes: dict[str, int] = {}
    for item in items:
        part = item["part"]
        if part == keys.RULES_STAMP:
            stamp = decode_stamp(item)
            continue
        try:
            rule = decode_rule(item)
            changes[part] = optional(item, "change", int) or 0
        except CountledgerError as error:
            unreadable[part.removeprefix(keys.RULE_PREFIX)] = str(error)
            continue
        if rule.effective_until_ms is None:
            current[rule.name] = rule
        else:
            past[rule.revision] = rule
    if stamp.ended is not None:
        past[stamp.ended.revision] = stamp.ended
    ended, changed_by = tuple(past.values()), stamp.changed_by
    found = RuleSnapshot(stamp.number, current, ended, unreadable, changed_by)
    return replace(found, is_whole=_is_whole(stamp, found, changes))


def _is_whole(stamp: RuleStamp, found: RuleSnapshot, changes: Mapping[str, int]) -> bool:
    """Whether the items that were found are those that the stamp describes."""
    if stamp.count != found.count or max(changes.values(), default=0) > stamp.number:
        return False
    if stamp.left is None or stamp.left in found.unreadable:
        return True
    return changes.get(keys.RULE_PREFIX + stamp.left) == stamp.number


def _expires_at(until_ms: int) -> int:
    """When a past revision expires, in seconds: after that no record of its time is evaluated."""
    return -(-(until_ms + STREAM_RECORD_MAX_AGE_MS) // SECOND_MS)


def followed(snapshot: RuleSnapshot, rule: Rule, revision: str, effective_ms: int) -> Rule:
    """A rule as the next revision of its name.

    Args:
        snapshot: the current rules.
        rule: the new rule.
        revision: the id of its revision.
        effective_ms: the earliest time from which it is effective.
    """
    return replace(
        rule,
        revision=revision,
        effective_from_ms=_effective_ms(snapshot, rule.name, effective_ms),
        effective_until_ms=None,
        ended_by=None,
    )


def plan_put(table: str, snapshot: RuleSnapshot, rule: Rule) -> list[Write]:
    """The writes that create a rule, or add a revision to an existing one.

    Args:
        table: the table `counters`.
        snapshot: the current rules.
        rule: the new revision, as `followed` made it.

    Raises:
        BadRule: the limit of rules is reached.
    """
    if len(snapshot.current) + len(snapshot.past) >= ALERT_RULES_MAX:
        raise BadRule(
            f"{len(snapshot.current)} alert rules and {len(snapshot.past)} kept revisions of the "
            f"last hours reach the limit of {ALERT_RULES_MAX}: delete rules, or wait some hours"
        )
    known = rule.name in snapshot.current or rule.name in snapshot.unreadable
    change_id = rule.revision
    ended = _ended(snapshot, rule.name, rule.effective_from_ms, change_id)
    count = snapshot.count + (not known)
    stamp = RuleStamp(snapshot.number + 1, count, rule.name, ended, change_id)
    return [
        _stamp(table, snapshot, stamp),
        Put(table, encode_rule(rule, stamp.number)),
        *_kept(table, stamp),
    ]


def plan_delete(
    table: str, snapshot: RuleSnapshot, name: str, effective_ms: int, change_id: str
) -> list[Write]:
    """The writes that delete a rule, which may be corrupt."""
    until_ms = _effective_ms(snapshot, name, effective_ms)
    ended = _ended(snapshot, name, until_ms, change_id)
    stamp = RuleStamp(snapshot.number + 1, snapshot.count - 1, None, ended, change_id)
    return [
        _stamp(table, snapshot, stamp),
        Delete(table, keys.rule_key(name)),
        *_kept(table, stamp),
    ]


def _effective_ms(snapshot: RuleSnapshot, name: str, effective_ms: int) -> int:
    """When a change is effective: in whole seconds, and not before the previous change."""
    before = [rule for rule in snapshot.past if rule.name == name]
    if name in snapshot.current:
        before.append(snapshot.current[name])
    known_ms = (rule.effective_until_ms or rule.effective_from_ms for rule in before)
    latest_ms = max((effective_ms, *known_ms))
    return -(-latest_ms // SECOND_MS) * SECOND_MS


def _ended(snapshot: RuleSnapshot, name: str, until_ms: int, change_id: str) -> Rule | None:
    """The current revision with its end, unless it is missing or corrupt."""
    found = snapshot.current.get(name)
    return found and replace(found, effective_until_ms=until_ms, ended_by=change_id)


def _kept(table: str, stamp: RuleStamp) -> list[Write]:  # of the revision that ends
    return [] if stamp.ended is None else [Put(table, encode_rule(stamp.ended, stamp.number))]


def _stamp(table: str, snapshot: RuleSnapshot, stamp: RuleStamp) -> Put:
    unmoved = Compare("number", "=", snapshot.number) if snapshot.number else Absent("part")
    return Put(table, encode_stamp(stamp), unmoved)
