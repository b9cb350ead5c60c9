"""The stored rules of a region: create, change, delete, read.

Writes are transactions that may be sent again. Each is conditional on the number of the stamp that
was read, and raises it; so once the number has moved, no earlier write of a call can arrive. A
write that was applied although its answer was lost is recognised by the id of its change, in the
revision that it wrote, in the one that it ended, or in the stamp. So a refusal is said only when no
write of the call was or will be applied; otherwise the answer is `Unclear`.

A process may be suspended after it computed the effective time, so a write is not sent when it is
too late for that time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.consumers.alerts.rule import Direction, Rule, Watch, check_rule_name, target_of
from countledger.ledger import keys
from countledger.ledger.attempts import (
    Again,
    Attempts,
    Done,
    DynamoPerformer,
    Exhausted,
    GiveUp,
    Pause,
    Recheck,
    Reply,
    Send,
    Step,
    Steps,
    Verdict,
    attempt,
    otherwise,
    run,
)
from countledger.ledger.attributes import Item, check_format, optional, require, require_amount
from countledger.ledger.calendar import Per
from countledger.ledger.clock import Backoff
from countledger.ledger.departure import guarded
from countledger.ledger.errors import (
    BadRule,
    CorruptItem,
    CountledgerError,
    NoSuchRule,
    RuleExists,
    Throttled,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.limits import (
    ALERT_RULE_DELAY_MS,
    ALERT_RULE_SEND_MS,
    ALERT_RULES_MAX,
    DAY_MS,
    SECOND_MS,
    STREAM_RECORD_MAX_AGE_MS,
)
from countledger.ledger.operations import Absent, Compare, Delete, Put, Query, Transact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from countledger.ledger.attempts import Answer
    from countledger.ledger.connection import Connection
    from countledger.ledger.operations import Write


# Rules as items of `counters`, all in one partition, and the writes that change them.
#
# A past revision is kept, with its end, for as long as a record of its time may be delivered
# again.


@dataclass(frozen=True, slots=True)
class RuleSnapshot:
    """All rules as of one moment.

    Attributes:
        number: of the stamp: how often rules were changed; 0 = never.
        current: the newest revision of each rule, by name.
        past: earlier revisions, and the last revisions of deleted rules.
        unreadable: by name why a rule is corrupt; corrupt rules are not evaluated.
        changed_by: the id of the last change; None: there was none.
        is_whole: whether it holds every item of the last change, and nothing of a later change.
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
        left: the name of the rule that the change wrote; None: the change deleted a rule.
        ended: the revision that the change ended, with its end; a read may miss its own item.
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
        require(item, "changed_by", str),
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
            changes[part] = require(item, "change", int)
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


# What a change of the alert rules writes, decided from the rules as they were read.


@dataclass(frozen=True, slots=True)
class RulePlan:
    """What a change writes.

    Attributes:
        rule: after the change; None: it is deleted.
        traced: whether the rules show for a day which change wrote it, whatever follows. The end
            of a corrupt revision is not kept, so only the last change shows that it deleted one.
    """

    writes: Sequence[Write]
    rule: Rule | None = None
    traced: bool = True


# From the rules as read, the id of the change (and of its new revision) and its earliest time to a
# plan.
Decide: TypeAlias = Callable[[RuleSnapshot, str, int], RulePlan]


@dataclass(frozen=True, slots=True)
class RuleWritten:
    """The rule after a change, and whether the change wrote anything."""

    rule: Rule | None
    written: bool

    def expect(self) -> Rule:
        """The rule; not after a deletion."""
        if self.rule is None:
            raise AssertionError("deleted")
        return self.rule


def deletion(table: str, name: str) -> Decide:
    """Delete a rule: the revision that is read first, in each attempt.

    An attempt that got no answer may have deleted it, and another call created the rule again.

    Args:
        table: the table `counters`.
        name: of the rule, which may be corrupt or absent.
    """
    first: dict[str, Rule | None] = {}

    def decide(snapshot: RuleSnapshot, change_id: str, effective_ms: int) -> RulePlan:
        if name not in snapshot.current and name not in snapshot.unreadable:
            return RulePlan(())
        found = snapshot.current.get(name)
        if first.setdefault(name, found) != found:
            raise RuleExists(
                f"alert rule {name!r} was changed, or created again, after this call had read it: "
                "look at it, and call again"
            )
        writes = plan_delete(table, snapshot, name, effective_ms, change_id)
        return RulePlan(writes, traced=found is not None)

    return decide


# Two seconds in total: a change is effective from a fixed time, so it is not retried for long.
_BACKOFF: Final = Backoff(attempts=6, base_ms=50, cap_ms=800)


@dataclass(frozen=True, slots=True)
class Rules:
    """The alert rules of one region.

    A change is effective a fixed time after it is written, so that every evaluator knows it by
    then. Each change writes the stamp, on condition that no other change has written it since the
    rules were read: so changes are applied one after the other.

    Attributes:
        delay_ms: from the write of a change to the time from which it is effective.
    """

    connection: Connection
    delay_ms: int = ALERT_RULE_DELAY_MS

    def create(self, rule: Rule, mark: Put | None = None) -> Rule:
        """As `Alerts.create`: the rule with its revision and the time from which it is effective.

        Four write units, and the read units of `read`; two write units more with a mark, which is
        put in the same transaction.
        """

        def decide(snapshot: RuleSnapshot, revision: str, effective_ms: int) -> RulePlan:
            if rule.name in snapshot.current or rule.name in snapshot.unreadable:
                raise RuleExists(
                    f"alert rule {rule.name!r} exists: `countledger alert set {rule.name}` "
                    "changes it"
                )
            made = followed(snapshot, rule, revision, effective_ms)
            marks = () if mark is None else (mark,)
            return RulePlan((*plan_put(self.connection.counters, snapshot, made), *marks), made)

        return self._change(rule.name, decide).expect()

    def set(self, name: str, change: Rule | Callable[[Rule], Rule]) -> Rule:
        """Write the next revision, as given or made by `change`, unless it equals the current one.

        Six write units, and the read units of `read`. Errors as of `Alerts.set`.
        """
        name = check_rule_name(name)

        def decide(snapshot: RuleSnapshot, revision: str, effective_ms: int) -> RulePlan:
            there = snapshot.rule(name)
            wanted = change if isinstance(change, Rule) else change(there)
            if wanted.means_the_same_as(there):
                return RulePlan((), there)
            next_one = followed(snapshot, wanted, revision, effective_ms)
            return RulePlan(plan_put(self.connection.counters, snapshot, next_one), next_one)

        return self._change(name, decide).expect()

    def delete(self, name: str) -> bool:
        """As `Alerts.delete`. Six write units, and the read units of `read`."""
        name = check_rule_name(name)
        return self._change(name, deletion(self.connection.counters, name)).written

    def get(self, name: str) -> Rule:
        """As `Alerts.get`. Cost: as `read`."""
        return self.read().rule(check_rule_name(name))

    def list(self) -> list[Rule]:
        """All rules that are not corrupt, by name. Cost: as `read`."""
        current = self.read().current
        return [current[name] for name in sorted(current)]

    def number(self) -> int:
        """The number of changes so far, read consistently. One read unit."""
        stored = self.connection.retrying.get(
            self.connection.counters, keys.rules_stamp_key(), consistent=True
        )
        return decode_stamp(stored).number

    def read(self) -> RuleSnapshot:
        """All rules as of one moment. One read unit, and one for each 4 KB of rules.

        If only a part of a change is visible, it waits for the rest, for about a second. Rules that
        are incomplete after that were edited by hand, and are returned as they are.

        Raises:
            Throttled: the rules changed during every attempt.
        """
        snapshot, before = RuleSnapshot(0, {}, (), {}), -1
        for _ in _BACKOFF.tries(self.connection.clock, self.connection.random):
            before = self.number()
            everything = self.everything()
            # The stamp is the last item: everything read before it is at most as new.
            snapshot = snapshot_of(
                item for page in self.connection.retrying.pages(everything) for item in page
            )
            if snapshot.number == before and snapshot.is_whole:
                return snapshot
        if snapshot.number == before:
            return snapshot
        raise Throttled("the alert rules kept changing while they were read; try again")

    def everything(self) -> Query:
        """The items of all rules."""
        return Query(
            self.connection.counters, Compare("counter", "=", keys.ALERT_RULES), consistent=True
        )

    def _change(self, name: str, decide: Decide) -> RuleWritten:
        attempts = self.connection.attempts(policy=_BACKOFF)
        change = RuleChanger(
            self, name, self.connection.ids.new_id(self.connection.clock.now_ms()), decide
        )
        return run(change.steps(attempts), self._perform)

    def _perform(self, step: Step) -> Answer:
        dynamo = self.connection.unretried
        if isinstance(step, Pause):
            return DynamoPerformer(dynamo, dynamo, self.connection.clock)(step)
        if isinstance(step.operation, Query):
            return self.read()
        with guarded(step.before_send):
            return dynamo.transact(step.operation.writes, step.operation.token)


@dataclass(frozen=True, slots=True)
class _Round:
    """What is sent next, and what was sent before.

    Attributes:
        plan: written next; None: read the rules first.
        number: of the stamp that the last plan was made from.
    """

    plan: RulePlan | None = None
    computed_ms: int = 0
    number: int = 0
    sent: RulePlan | None = None


@dataclass(frozen=True, slots=True)
class RuleChanger:
    """The protocol of one change: read the rules, decide, write; again if another came first.

    Attributes:
        revision: the id of the change, by which an applied write is recognised.
    """

    rules: Rules
    name: str
    revision: str
    decide: Decide

    def steps(self, attempts: Attempts) -> Steps[RuleWritten]:
        """The steps; they raise the last error if no attempt is left."""
        return attempt(_Round(), self._request, self._interpret, self._give_up, attempts)

    def _request(self, state: _Round) -> Send:
        if state.plan is None:
            return Send(self.rules.everything())
        # A new token: another attempt is another transaction, with another time.
        transaction = Transact(
            state.plan.writes, self.rules.connection.ids.new_id(state.computed_ms)
        )
        return Send(transaction, lambda: self.refuse_late(state.computed_ms))

    def _interpret(self, reply: Reply[_Round]) -> Verdict[_Round, RuleWritten]:
        """The answer table.

        rules, and an earlier write is among them   done
        rules, and nothing to write                 done
        rules                                       write, at once
        cancelled: another change came first        again: read
        throttled, no answer, too late              again: read
        written                                     done
        """
        answer, state = reply.answer, reply.state
        if isinstance(answer, RuleSnapshot):
            return self._planned(answer, state, maybe_applied=reply.maybe_applied)
        if state.plan is None:
            return otherwise(reply)
        reading = replace(state, plan=None, sent=state.plan)
        match answer:
            case TransactionCancelled():
                return Again(reading, Throttled(f"alert rule {self.name!r}: {answer}"))
            case Throttled() | Unclear():
                return Again(reading)
            case CountledgerError():
                return otherwise(reply)
        return Done(RuleWritten(state.plan.rule, written=True))

    def _planned(
        self, rules: RuleSnapshot, state: _Round, *, maybe_applied: bool
    ) -> Verdict[_Round, RuleWritten]:
        if state.sent is not None and (applied := self._applied(rules, state.sent)) is not None:
            return Done(applied)
        now_ms = self.rules.connection.clock.now_ms()
        # Each write sent so far is conditional on that number.
        moved = rules.number > state.number
        if maybe_applied and moved and not self._is_shown(rules, state, now_ms):
            return GiveUp(self._unclear("others have changed the rules since"))
        try:
            plan = self.decide(rules, self.revision, now_ms + self.rules.delay_ms)
        except CountledgerError as error:
            if maybe_applied and not moved:
                return GiveUp(error)
            raise
        if not plan.writes:
            return Done(RuleWritten(plan.rule, written=False))
        return Recheck(_Round(plan, now_ms, rules.number, state.sent), resolved=moved)

    def _applied(self, rules: RuleSnapshot, sent: RulePlan) -> RuleWritten | None:
        """What an earlier write of this call did, if it was applied."""
        known = [one for one in (*rules.past, *rules.current.values()) if one.name == self.name]
        for rule in known:
            if rule.revision == self.revision:
                return RuleWritten(rule, written=True)
        ended = any(one.ended_by == self.revision for one in known)
        if ended or rules.changed_by == self.revision:
            return RuleWritten(sent.rule, written=True)
        return None

    def _is_shown(self, rules: RuleSnapshot, state: _Round, now_ms: int) -> bool:
        """Whether the rules would show a write of this call, had it been applied."""
        # Of one number there is one change, and the stamp names the last.
        if rules.number == state.number + 1:
            return True
        traced = state.sent is None or state.sent.traced
        return traced and now_ms - state.computed_ms < DAY_MS

    def refuse_late(self, computed_ms: int) -> None:
        """Raise `Throttled` for a time computed too long ago; another attempt has a new time."""
        late_ms = self.rules.connection.clock.now_ms() - computed_ms
        if late_ms > ALERT_RULE_SEND_MS:
            raise Throttled(
                f"alert rule {self.name!r}: this process was suspended for {late_ms} ms before the "
                "change was sent; nothing was written"
            )

    def _give_up(self, exhausted: Exhausted[_Round]) -> RuleWritten:
        if exhausted.maybe_applied and not isinstance(exhausted.error, Unclear):
            raise self._unclear(str(exhausted.error)) from exhausted.error
        raise exhausted.error

    def _unclear(self, why: str) -> Unclear:
        return Unclear(
            f"alert rule {self.name!r}: an attempt got no clear answer, and may have been applied "
            f"({why}): look at the rule, and call again"
        )
