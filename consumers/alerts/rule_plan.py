"""What a change of the alert rules writes, decided from the rules as they were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from countledger.consumers.alerts.rule_items import RuleSnapshot, plan_delete
from countledger.ledger.errors import RuleExists

if TYPE_CHECKING:
    from countledger.consumers.alerts.rule import Rule
    from countledger.ledger.operations import Write


@dataclass(frozen=True, slots=True)
class RulePlan:
    """What a change writes.

    Attributes:
        writes: in one transaction.
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
