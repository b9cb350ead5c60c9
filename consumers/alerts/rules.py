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

from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Final

from countledger.consumers.alerts.rule import Rule, check_rule_name
from countledger.consumers.alerts.rule_items import (
    RuleSnapshot,
    decode_stamp,
    followed,
    plan_put,
    snapshot_of,
)
from countledger.consumers.alerts.rule_plan import Decide, RulePlan, RuleWritten, deletion
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
from countledger.ledger.clock import Backoff, Clock, SystemClock
from countledger.ledger.departure import guarded
from countledger.ledger.errors import (
    CountledgerError,
    RuleExists,
    Throttled,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.ids import new_id
from countledger.ledger.limits import ALERT_RULE_DELAY_MS, ALERT_RULE_SEND_MS, DAY_MS
from countledger.ledger.operations import Compare, Query, Transact

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.attempts import Answer
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Put


# Two seconds in total: a change is effective from a fixed time, so it is not retried for long.
_BACKOFF: Final = Backoff(attempts=6, base_ms=50, cap_ms=800)


@dataclass(frozen=True, slots=True)
class Rules:
    """The alert rules of one region.

    A change is effective a fixed time after it is written, so that every evaluator knows it by
    then. Each change writes the stamp, on condition that no other change has written it since the
    rules were read: so changes are applied one after the other.

    Attributes:
        dynamo: a DynamoDB client whose SDK does not retry.
        table: the table `counters`.
        region: of the table.
        clock: for the time from which a change is effective.
        delay_ms: from the write to that time.
        new_id: makes the id of a revision.
        random: for the jitter of waits.
    """

    dynamo: DynamoClient
    table: str
    region: str
    clock: Clock = field(default_factory=SystemClock)
    delay_ms: int = ALERT_RULE_DELAY_MS
    new_id: Callable[[int], str] = new_id
    random: Random = field(default_factory=Random)

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
            return RulePlan((*plan_put(self.table, snapshot, made), *marks), made)

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
            return RulePlan(plan_put(self.table, snapshot, next_one), next_one)

        return self._change(name, decide).expect()

    def delete(self, name: str) -> bool:
        """As `Alerts.delete`. Six write units, and the read units of `read`."""
        name = check_rule_name(name)
        return self._change(name, deletion(self.table, name)).written

    def get(self, name: str) -> Rule:
        """As `Alerts.get`. Cost: as `read`."""
        return self.read().rule(check_rule_name(name))

    def list(self) -> list[Rule]:
        """All rules that are not corrupt, by name. Cost: as `read`."""
        current = self.read().current
        return [current[name] for name in sorted(current)]

    def number(self) -> int:
        """The number of changes so far, read consistently. One read unit."""
        stored = self.dynamo.get(self.table, keys.rules_stamp_key(), consistent=True)
        return decode_stamp(stored).number

    def read(self) -> RuleSnapshot:
        """All rules as of one moment. One read unit, and one for each 4 KB of rules.

        If only a part of a change is visible, it waits for the rest, for about a second. Rules that
        are incomplete after that were edited by hand, and are returned as they are.

        Raises:
            Throttled: the rules changed during every attempt.
        """
        snapshot, before = RuleSnapshot(0, {}, (), {}), -1
        for _ in _BACKOFF.tries(self.clock, self.random):
            before = self.number()
            everything = self.everything()
            # The stamp is the last item: everything read before it is at most as new.
            snapshot = snapshot_of(item for page in self.dynamo.pages(everything) for item in page)
            if snapshot.number == before and snapshot.is_whole:
                return snapshot
        if snapshot.number == before:
            return snapshot
        raise Throttled("the alert rules kept changing while they were read; try again")

    def everything(self) -> Query:
        """The items of all rules."""
        return Query(self.table, Compare("counter", "=", keys.ALERT_RULES), consistent=True)

    def _change(self, name: str, decide: Decide) -> RuleWritten:
        attempts = Attempts(self.clock, self.random, _BACKOFF)
        change = RuleChanger(self, name, self.new_id(self.clock.now_ms()), decide)
        return run(change.steps(attempts), self._perform)

    def _perform(self, step: Step) -> Answer:
        if isinstance(step, Pause):
            return DynamoPerformer(self.dynamo, self.dynamo, self.clock)(step)
        if isinstance(step.operation, Query):
            return self.read()
        with guarded(step.before_send):
            return self.dynamo.transact(step.operation.writes, step.operation.token)


@dataclass(frozen=True, slots=True)
class _Round:
    """What is sent next, and what was sent before.

    Attributes:
        plan: written next; None: read the rules first.
        computed_ms: when the last plan was made.
        number: of the stamp that the last plan was made from.
        sent: the last plan that was sent.
    """

    plan: RulePlan | None = None
    computed_ms: int = 0
    number: int = 0
    sent: RulePlan | None = None


@dataclass(frozen=True, slots=True)
class RuleChanger:
    """The protocol of one change: read the rules, decide, write; again if another came first.

    Attributes:
        rules: the rules to change.
        name: of the rule.
        revision: the id of the change, by which an applied write is recognised.
        decide: what to write.
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
        transaction = Transact(state.plan.writes, self.rules.new_id(state.computed_ms))
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
        now_ms = self.rules.clock.now_ms()
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
        late_ms = self.rules.clock.now_ms() - computed_ms
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
