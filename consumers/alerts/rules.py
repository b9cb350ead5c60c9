"""The stored rules of a region: create, change, delete, read.

Writes are transactions that may be sent again. A write that was applied although its answer was
lost is recognised by the id of its revision. A write that arrives late is refused, because the
stamp has changed. A process may be suspended after it computed the effective time, so a write is
not sent when it is too late for that time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    Exhausted,
    Pause,
    Recheck,
    Reply,
    Send,
    Step,
    Steps,
    Verdict,
    attempt,
    run,
)
from countledger.ledger.before_send import guarded
from countledger.ledger.clock import Backoff, Clock, SystemClock
from countledger.ledger.errors import (
    CountledgerError,
    RuleExists,
    Throttled,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.expressions import Compare
from countledger.ledger.ids import new_id
from countledger.ledger.limits import ALERT_RULE_DELAY_MS, ALERT_RULE_SEND_MS
from countledger.ledger.operations import Query, Transact
from countledger.ledger.performer import DynamoPerformer

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
        check_rule_name(name)
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
            everything = Query(
                self.table, Compare("counter", "=", keys.ALERT_RULES), consistent=True
            )
            # The stamp is the last item: everything read before it is at most as new.
            snapshot = snapshot_of(item for page in self.dynamo.pages(everything) for item in page)
            if snapshot.number == before and snapshot.is_whole:
                return snapshot
        if snapshot.number == before:
            return snapshot
        raise Throttled("the alert rules kept changing while they were read; try again")

    def _change(self, name: str, decide: Decide) -> RuleWritten:
        attempts = Attempts(self.clock, self.random, _BACKOFF)
        change = RuleChanger(self, name, self.new_id(self.clock.now_ms()), decide)
        return run(change.steps(attempts), self._perform)

    def _perform(self, step: Step) -> Answer:
        if isinstance(step, Pause):
            return DynamoPerformer(self.dynamo, self.dynamo, self.clock)(step)
        if step.operation == READ_RULES:
            return self.read()
        with guarded(step.before_send):
            return self.dynamo.transact(step.operation.writes, step.operation.token)


# The operation whose answer is a `RuleSnapshot`.
READ_RULES: Final = "read the rules"


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
        rules: the rules to change.
        name: of the rule.
        revision: the id of the revision, by which an applied write is recognised.
        decide: what to write.
    """

    rules: Rules
    name: str
    revision: str
    decide: Decide

    def steps(self, attempts: Attempts) -> Steps[RuleWritten]:
        """The steps; they raise the last error if no attempt is left."""
        return attempt(_Round(), self._request, self._interpret, _give_up, attempts)

    def _request(self, state: _Round) -> Send:
        if state.plan is None:
            return Send(READ_RULES)
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
        computed_ms = self.rules.clock.now_ms()
        plan = self.decide(rules, self.revision, computed_ms + self.rules.delay_ms)
        if not plan.writes:
            return Done(RuleWritten(plan.rule, written=sent))
        return Recheck(_Round(plan, computed_ms, sent=sent))

    def refuse_late(self, computed_ms: int) -> None:
        """Raise `Throttled` for a time computed too long ago; another attempt has a new time."""
        late_ms = self.rules.clock.now_ms() - computed_ms
        if late_ms > ALERT_RULE_SEND_MS:
            raise Throttled(
                f"alert rule {self.name!r}: this process was suspended for {late_ms} ms before the "
                "change was sent; nothing was written"
            )


def _give_up(exhausted: Exhausted[_Round]) -> RuleWritten:
    raise exhausted.error
