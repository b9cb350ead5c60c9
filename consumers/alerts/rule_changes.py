"""A change of a rule: what it writes, and the protocol that writes it. Without I/O.

A change is effective a fixed time after it is written, so that every evaluator knows it by then.
The previous revision is kept, with its end, for as long as a record of its time may be delivered
again. Each change writes the stamp, on condition that no other change has written it since the
rules were read: so changes are applied one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.consumers.alerts.rule_items import (
    RuleSnapshot,
    RuleStamp,
    encode_rule,
    encode_stamp,
)
from countledger.ledger import keys
from countledger.ledger.attempts import (
    Again,
    Attempts,
    Done,
    Exhausted,
    Recheck,
    Reply,
    Send,
    Steps,
    Verdict,
    attempt,
)
from countledger.ledger.errors import (
    BadRule,
    CountledgerError,
    Throttled,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.expressions import Absent, Compare
from countledger.ledger.limits import ALERT_RULE_SEND_MS, ALERT_RULES_MAX, SECOND_MS
from countledger.ledger.operations import Delete, Put, Transact

if TYPE_CHECKING:
    from countledger.consumers.alerts.rule import Rule
    from countledger.ledger.clock import Clock
    from countledger.ledger.operations import Write

# The operation whose answer is a `RuleSnapshot`.
READ_RULES: Final = "read the rules"


@dataclass(frozen=True, slots=True)
class RulePlan:
    """What a change writes, and the rule after it; None: the rule is deleted."""

    writes: Sequence[Write]
    rule: Rule | None = None


# From the rules as read, the id of the new revision and its earliest time to a plan.
Decide: TypeAlias = Callable[["RuleSnapshot", str, int], RulePlan]


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


@dataclass(frozen=True, slots=True)
class _Round:
    """Write the plan that was made at that time (None: read first); `sent`: after another write."""

    plan: RulePlan | None = None
    computed_ms: int = 0
    sent: bool = False


@dataclass(frozen=True, slots=True)
class RuleChanger:
    """The protocol of one change: read the rules, decide, write; again if another came first.

    Attributes:
        name: of the rule.
        revision: the id of the revision, by which an applied write is recognised.
        decide: what to write.
        clock: for the time from which the change is effective.
        delay_ms: from the write to that time.
        new_id: makes the tokens of transactions.
    """

    name: str
    revision: str
    decide: Decide
    clock: Clock
    delay_ms: int
    new_id: Callable[[int], str]

    def steps(self, attempts: Attempts) -> Steps[RuleWritten]:
        """The steps; they raise the last error if no attempt is left."""
        return attempt(_Round(), self._request, self._interpret, _give_up, attempts)

    def _request(self, state: _Round) -> Send:
        if state.plan is None:
            return Send(READ_RULES)
        # A new token: another attempt is another transaction, with another time.
        transaction = Transact(state.plan.writes, self.new_id(state.computed_ms))
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
        answer, plan = reply.answer, reply.state.plan
        if isinstance(answer, RuleSnapshot):
            return self._planned(answer, sent=reply.state.sent)
        if plan is None:
            raise answer
        match answer:
            case TransactionCancelled():
                return Again(_Round(sent=True), Throttled(f"alert rule {self.name!r}: {answer}"))
            case Throttled() | Unclear():
                return Again(_Round(sent=True))
            case CountledgerError():
                raise answer
        return Done(RuleWritten(plan.rule, written=True))

    def _planned(self, rules: RuleSnapshot, *, sent: bool) -> Verdict[_Round, RuleWritten]:
        if sent:
            for known in (*rules.past, *rules.current.values()):
                if (known.name, known.revision) == (self.name, self.revision):
                    return Done(RuleWritten(known, written=True))
        computed_ms = self.clock.now_ms()
        plan = self.decide(rules, self.revision, computed_ms + self.delay_ms)
        if not plan.writes:
            return Done(RuleWritten(plan.rule, written=sent))
        return Recheck(_Round(plan, computed_ms, sent=sent))

    def refuse_late(self, computed_ms: int) -> None:
        """Refuse a change whose time was computed too long ago; another attempt has a new time.

        Raises:
            Throttled: the change must not be sent.
        """
        late_ms = self.clock.now_ms() - computed_ms
        if late_ms > ALERT_RULE_SEND_MS:
            raise Throttled(
                f"alert rule {self.name!r}: this process was suspended for {late_ms} ms before the "
                "change was sent; nothing was written"
            )


def _give_up(exhausted: Exhausted[_Round]) -> RuleWritten:
    raise exhausted.error


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
    ended = _ended(snapshot, rule.name, rule.effective_from_ms)
    stamp = RuleStamp(snapshot.number + 1, snapshot.count + (not known), rule.name, ended)
    return [
        _stamp(table, snapshot, stamp),
        Put(table, encode_rule(rule, stamp.number)),
        *_kept(table, stamp),
    ]


def plan_delete(table: str, snapshot: RuleSnapshot, name: str, effective_ms: int) -> list[Write]:
    """The writes that delete a rule, which may be corrupt."""
    until_ms = _effective_ms(snapshot, name, effective_ms)
    ended = _ended(snapshot, name, until_ms)
    stamp = RuleStamp(snapshot.number + 1, snapshot.count - 1, None, ended)
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


def _ended(snapshot: RuleSnapshot, name: str, until_ms: int) -> Rule | None:
    """The current revision with its end, unless it is missing or corrupt."""
    there = snapshot.current.get(name)
    return None if there is None else replace(there, effective_until_ms=until_ms)


def _kept(table: str, stamp: RuleStamp) -> list[Write]:
    """The write of the revision that ends."""
    return [] if stamp.ended is None else [Put(table, encode_rule(stamp.ended, stamp.number))]


def _stamp(table: str, snapshot: RuleSnapshot, stamp: RuleStamp) -> Write:
    unmoved = Compare("number", "=", snapshot.number) if snapshot.number else Absent("part")
    return Put(table, encode_stamp(stamp), unmoved)
