"""The rules of a region as they are stored: made, followed by revisions, deleted, read.

Writes are transactions that may be sent again: one that was lost and landed is found by the id of
its revision, and one that lands late meets a stamp that has moved. None leaves later than its
effective time allows: the process may have stood still since that was computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from countledger.consumers.alerts.rule import check_rule_name
from countledger.consumers.alerts.rule_items import (
    RuleSnapshot,
    decode_stamp,
    followed,
    plan_delete,
    plan_put,
    snapshot_of,
)
from countledger.ledger import keys
from countledger.ledger.attempts import Backoff
from countledger.ledger.before_send import guarded
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import (
    CorruptItem,
    CountledgerError,
    NoSuchRule,
    RuleExists,
    Throttled,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.expressions import Compare
from countledger.ledger.ids import new_id
from countledger.ledger.limits import ALERT_RULE_DELAY_MS, ALERT_RULE_SEND_MS
from countledger.ledger.operations import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.consumers.alerts.rule import Rule
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Write

# Two seconds in all: a change takes effect by the clock, so it is not tried for long.
_TRIES: Final = Backoff(attempts=6, base_ms=50, cap_ms=800)


@dataclass(frozen=True, slots=True)
class RulePlan:
    """What a change writes, and the rule as it is then; None: there is none any more."""

    writes: Sequence[Write]
    rule: Rule | None = None


@dataclass(frozen=True, slots=True)
class RuleWritten:
    """The rule behind a change, and whether anything was written for it."""

    rule: Rule | None
    written: bool

    def expect(self) -> Rule:
        """The rule of a change that leaves one."""
        if self.rule is None:
            raise AssertionError("only a deletion leaves no rule")
        return self.rule


@dataclass(frozen=True, slots=True)
class Rules:
    """The alert rules of one region.

    Attributes:
        dynamo: a DynamoDB client whose SDK does not retry.
        table: the table `counters`.
        region: where this is.
        clock: tells when a change takes effect.
        delay_ms: how much later than it is written.
        new_id: makes the id of a revision.
        random: what the jitter of waits is drawn from.
    """

    dynamo: DynamoClient
    table: str
    region: str
    clock: Clock = field(default_factory=SystemClock)
    delay_ms: int = ALERT_RULE_DELAY_MS
    new_id: Callable[[int], str] = new_id
    random: Random = field(default_factory=Random)

    def create(self, rule: Rule) -> Rule:
        """Make a rule. Four write units, and the read units of `read`.

        Returns:
            The rule with its revision and the time when it takes effect.

        Raises:
            RuleExists: there is one of that name.
            BadRule: there are too many.
            ServiceFailed: it could not be written, or nobody can tell: look at it.
        """

        def decide(snapshot: RuleSnapshot, revision: str, effective_ms: int) -> RulePlan:
            if rule.name in snapshot.current or rule.name in snapshot.unreadable:
                raise RuleExists(
                    f"there is an alert rule {rule.name!r}: `countledger alert set {rule.name}` "
                    "changes it"
                )
            made = followed(snapshot, rule, revision, effective_ms)
            return RulePlan(plan_put(self.table, snapshot, made), made)

        return self._change(rule.name, decide).expect()

    def set(self, name: str, change: Callable[[Rule], Rule]) -> Rule:
        """Let another revision follow; one that means the same is not written.

        Six write units, and the read units of `read`.

        Args:
            name: of the rule.
            change: what to make of the rule as it is.

        Raises:
            NoSuchRule: there is none of that name.
            CorruptItem: it cannot be read: delete it, and make it anew.
            ServiceFailed: it could not be written, or nobody can tell: look at it.
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
            Whether there was one. That there is none is no error.

        Raises:
            ServiceFailed: it could not be written, or nobody can tell: look at it.
        """
        check_rule_name(name)

        def decide(snapshot: RuleSnapshot, _revision: str, effective_ms: int) -> RulePlan:
            if name not in snapshot.current and name not in snapshot.unreadable:
                return RulePlan(())
            return RulePlan(plan_delete(self.table, snapshot, name, effective_ms))

        return self._change(name, decide).written

    def get(self, name: str) -> Rule:
        """A rule in its newest revision, which may not be in force yet.

        The read units of `read`.

        Raises:
            NoSuchRule: there is none of that name.
            CorruptItem: it cannot be read.
        """
        return found(self.read(), check_rule_name(name))

    def list(self) -> list[Rule]:
        """All rules that can be read, by name. The read units of `read`."""
        current = self.read().current
        return [current[name] for name in sorted(current)]

    def number(self) -> int:
        """How often rules were changed: what tells that none was. One read unit.

        It is read consistently: an evaluator may not learn late of a change.
        """
        return decode_stamp(
            self.dynamo.get(self.table, keys.rules_stamp_key(), consistent=True)
        ).number

    def read(self) -> RuleSnapshot:
        """All rules as of one moment. One read unit, and one for each 4 KB of rules.

        A change of which some items cannot be seen yet is waited for, for about a second. What is
        not whole then was edited by hand, and is taken as it is.

        Raises:
            Throttled: they changed during every attempt.
        """
        snapshot, before = RuleSnapshot(0, {}, (), {}), -1
        for _ in _TRIES.tries(self.clock, self.random):
            before = self.number()
            everything = Query(
                self.table, Compare("counter", "=", keys.ALERT_RULES), consistent=True
            )
            # The stamp is the last item of all: what was read before it is as old as it.
            snapshot = snapshot_of(item for page in self.dynamo.pages(everything) for item in page)
            if snapshot.number == before and snapshot.is_whole:
                return snapshot
        if snapshot.number == before:
            return snapshot
        raise Throttled("the alert rules kept changing while they were read; try again")

    def _change(
        self, name: str, decide: Callable[[RuleSnapshot, str, int], RulePlan]
    ) -> RuleWritten:
        """Decide and write, again where somebody else came first."""
        revision = self.new_id(self.clock.now_ms())
        failure: CountledgerError | None = None
        for _ in _TRIES.tries(self.clock, self.random):
            snapshot = self.read()
            landed = None if failure is None else _landed(snapshot, name, revision)
            if landed is not None:
                return RuleWritten(landed, written=True)
            computed_ms = self.clock.now_ms()
            effective_ms = computed_ms + self.delay_ms
            plan = decide(snapshot, revision, effective_ms)
            if not plan.writes:
                return RuleWritten(plan.rule, written=failure is not None)
            try:
                # A token of its own: another try is another transaction, with another time.
                with guarded(partial(self._refuse_late, name, computed_ms)):
                    self.dynamo.transact(plan.writes, self.new_id(effective_ms))
            except TransactionCancelled as cancelled:
                failure = Throttled(f"alert rule {name!r}: {cancelled}")
            except (Throttled, Unclear) as error:
                failure = error
            else:
                return RuleWritten(plan.rule, written=True)
        raise failure or AssertionError("there is a first attempt")

    def _refuse_late(self, name: str, computed_ms: int) -> None:
        """Refuse a change whose effective time was computed too long ago; another try has another.

        Raises:
            Throttled: it must not leave.
        """
        late_ms = self.clock.now_ms() - computed_ms
        if late_ms > ALERT_RULE_SEND_MS:
            raise Throttled(
                f"alert rule {name!r}: this process stood still for {late_ms} ms before the change "
                "was sent; nothing was written"
            )


def found(snapshot: RuleSnapshot, name: str) -> Rule:
    """A rule by its name.

    Raises:
        NoSuchRule: there is none of that name.
        CorruptItem: it cannot be read.
    """
    if name in snapshot.unreadable:
        raise CorruptItem(
            f"{snapshot.unreadable[name]}: `countledger alert delete {name}` removes it"
        )
    if name not in snapshot.current:
        raise NoSuchRule(
            f"there is no alert rule {name!r}: `countledger alert create {name}` makes one"
        )
    return snapshot.current[name]


def _landed(snapshot: RuleSnapshot, name: str, revision: str) -> Rule | None:
    """What an earlier attempt wrote, if it landed after all; even if somebody changed it since."""
    known = [*snapshot.past, *snapshot.current.values()]
    return next((r for r in known if r.name == name and r.revision == revision), None)
