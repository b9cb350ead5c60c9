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

from countledger.consumers.alerts.rule import check_rule_name
from countledger.consumers.alerts.rule_changes import (
    READ_RULES,
    RuleChanger,
    RulePlan,
    followed,
    plan_delete,
    plan_put,
)
from countledger.consumers.alerts.rule_items import RuleSnapshot, decode_stamp, snapshot_of
from countledger.ledger import keys
from countledger.ledger.attempts import Attempts, Backoff, Pause, Step, run
from countledger.ledger.before_send import guarded
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import CorruptItem, NoSuchRule, RuleExists, Throttled
from countledger.ledger.expressions import Compare
from countledger.ledger.ids import new_id
from countledger.ledger.limits import ALERT_RULE_DELAY_MS
from countledger.ledger.operations import Query

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.rule_changes import Decide, RuleWritten
    from countledger.ledger.attempts import Answer
    from countledger.ledger.dynamo import DynamoClient

# Two seconds in total: a change is effective from a fixed time, so it is not retried for long.
_BACKOFF: Final = Backoff(attempts=6, base_ms=50, cap_ms=800)


@dataclass(frozen=True, slots=True)
class Rules:
    """The alert rules of one region.

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

    def create(self, rule: Rule) -> Rule:
        """Create a rule. Four write units, and the read units of `read`.

        Returns:
            The rule with its revision and the time from which it is effective.

        Raises:
            RuleExists: a rule of that name exists.
            BadRule: the limit of rules is reached.
            ServiceFailed: it was not written, or the outcome is unknown: read the rule.
        """

        def decide(snapshot: RuleSnapshot, revision: str, effective_ms: int) -> RulePlan:
            if rule.name in snapshot.current or rule.name in snapshot.unreadable:
                raise RuleExists(
                    f"alert rule {rule.name!r} exists: `countledger alert set {rule.name}` "
                    "changes it"
                )
            made = followed(snapshot, rule, revision, effective_ms)
            return RulePlan(plan_put(self.table, snapshot, made), made)

        return self._change(rule.name, decide).expect()

    def set(self, name: str, change: Callable[[Rule], Rule]) -> Rule:
        """Write the next revision, unless it equals the current one.

        Six write units, and the read units of `read`.

        Args:
            name: the rule's name.
            change: from the current rule to the new one.

        Raises:
            NoSuchRule: no rule has that name.
            CorruptItem: the stored rule is corrupt: delete it and create it again.
            ServiceFailed: it was not written, or the outcome is unknown: read the rule.
        """

        def decide(snapshot: RuleSnapshot, revision: str, effective_ms: int) -> RulePlan:
            there = found(snapshot, name)
            wanted = change(there)
            if wanted.means_the_same_as(there):
                return RulePlan((), there)
            next_one = followed(snapshot, wanted, revision, effective_ms)
            return RulePlan(plan_put(self.table, snapshot, next_one), next_one)

        return self._change(name, decide).expect()

    def delete(self, name: str) -> bool:
        """Delete a rule. Six write units, and the read units of `read`.

        Returns:
            Whether the rule existed.

        Raises:
            ServiceFailed: it was not deleted, or the outcome is unknown: read the rule.
        """
        check_rule_name(name)

        def decide(snapshot: RuleSnapshot, _revision: str, effective_ms: int) -> RulePlan:
            if name not in snapshot.current and name not in snapshot.unreadable:
                return RulePlan(())
            return RulePlan(plan_delete(self.table, snapshot, name, effective_ms))

        return self._change(name, decide).written

    def get(self, name: str) -> Rule:
        """The newest revision of a rule, which may not be effective yet. Cost: as `read`.

        Raises:
            NoSuchRule: no rule has that name.
            CorruptItem: the stored rule is corrupt.
        """
        return found(self.read(), check_rule_name(name))

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
        change = RuleChanger(
            name, self.new_id(self.clock.now_ms()), decide, self.clock, self.delay_ms, self.new_id
        )
        return run(change.steps(attempts), self._perform)

    def _perform(self, step: Step) -> Answer:
        if isinstance(step, Pause):
            return self.clock.sleep_ms(step.wait_ms)
        if step.operation == READ_RULES:
            return self.read()
        with guarded(step.before_send):
            return self.dynamo.transact(step.operation.writes, step.operation.token)


def found(snapshot: RuleSnapshot, name: str) -> Rule:
    """A rule by its name.

    Raises:
        NoSuchRule: no rule has that name.
        CorruptItem: the stored rule is corrupt.
    """
    if name in snapshot.unreadable:
        raise CorruptItem(
            f"{snapshot.unreadable[name]}: `countledger alert delete {name}` deletes it"
        )
    if name not in snapshot.current:
        raise NoSuchRule(
            f"no alert rule is called {name!r}: `countledger alert create {name}` creates one"
        )
    return snapshot.current[name]
