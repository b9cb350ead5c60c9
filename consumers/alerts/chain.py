"""One counter under one rule: its changes in their order, each decided, written and told.

A change is passed only when nothing is left to do for it; one that fails holds up those behind it,
and no other counter or rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.consumers.alerts.state import PublishFiring, decide, published
from countledger.consumers.alerts.state_item import decode_state, published_write_of, write_of
from countledger.ledger import keys
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    RequestRejected,
    ServiceFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from countledger.consumers.alerts.notifier import Notifier
    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.state import WriteState
    from countledger.consumers.alerts.state_item import AlertState
    from countledger.consumers.alerts.total_change import TotalChange
    from countledger.ledger.attributes import Item
    from countledger.ledger.deadline import Deadline
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Put

# A state changes under a write only where another invocation evaluates the same records; each
# attempt finds it further on.
_ATTEMPTS: Final = 20


class Link(NamedTuple):
    """A change, and the revision of the rule that evaluates it."""

    change: TotalChange
    rule: Rule


@dataclass(slots=True)
class ChainOutcome:
    """What became of one counter's changes under one rule.

    Attributes:
        published: how many alerts were told, again or for the first time.
        dead: how many of them went to the dead letters.
        rejected: how many changes can never be judged, and lie in the quarantine.
        failed_at: the first change that was not passed, or None.
        error: why.
    """

    published: int = 0
    dead: int = 0
    rejected: int = 0
    failed_at: TotalChange | None = None
    error: CountledgerError | None = None


@dataclass(frozen=True, slots=True)
class ChainEvaluator:
    """Evaluates the changes of one counter under one rule.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry, a second application is refused.
        table: the table `counters`.
        notifier: tells what is set off.
        to_quarantine: puts a record into the quarantine: its sequence number, and why.
        deadline: after which no change is begun; None: there is no such moment.
        decide: what is next for a change.
        write_of: how a state is written.
    """

    dynamo: DynamoClient
    table: str
    notifier: Notifier
    to_quarantine: Callable[[int, str], None]
    deadline: Deadline | None = None
    decide: Callable[[AlertState | None, TotalChange, Rule], PublishFiring | WriteState | None] = (
        decide
    )
    write_of: Callable[[str, WriteState], Put] = write_of

    def evaluate(self, links: Sequence[Link]) -> ChainOutcome:
        """Evaluate changes in their order, as far as it goes.

        A change that sets nothing off costs nothing, but for a rule with a re-arm level one read
        unit for all of them. One that does: a write unit for the state and one for its mark, two
        for the log; delivered again, one in all.
        """
        judged = ChainOutcome()
        state: AlertState | None = None
        at = links[0].change
        try:
            if any(link.rule.rearm is not None for link in links):
                state = self._read(links[0])
            for link in links:
                at = link.change
                if self.deadline is not None:
                    self.deadline.check()
                state = self._pass_or_set_aside(link, state, judged)
        except CountledgerError as error:
            judged.failed_at, judged.error = at, error
        return judged

    def _pass_or_set_aside(
        self, link: Link, state: AlertState | None, judged: ChainOutcome
    ) -> AlertState | None:
        try:
            return self._pass(link, state, judged)
        except (CorruptItem, RequestRejected) as malformed:
            self.to_quarantine(link.change.sequence, str(malformed))
            judged.rejected += 1
            return state

    def _pass(
        self, link: Link, state: AlertState | None, judged: ChainOutcome
    ) -> AlertState | None:
        """Do all that a change asks for; the state behind it, as far as is known."""
        for _ in range(_ATTEMPTS):
            step = self.decide(state, link.change, link.rule)
            if step is None:
                return state
            try:
                if isinstance(step, PublishFiring):
                    judged.dead += self.notifier.publish(step.firing)
                    judged.published += len(step.firing.alerts)
                    self.dynamo.update(published_write_of(self.table, step))
                    state = None if state is None else published(state)
                else:
                    self.dynamo.put(self.write_of(self.table, step))
                    state = step.state
            except ConditionFailed as refused:
                state = _found(refused.item)
        raise ServiceFailed(
            f"counter {link.change.counter!r}, rule {link.rule.name!r}: its state moved under "
            f"{_ATTEMPTS} attempts"
        )

    def _read(self, link: Link) -> AlertState | None:
        """The state as it is stored; one that cannot be read is met by the write that needs it."""
        key = keys.alert_state_key(link.change.counter, link.rule.name)
        try:
            return _found(self.dynamo.get(self.table, key, consistent=True))
        except CorruptItem:
            return None


def _found(item: Item | None) -> AlertState | None:
    return None if item is None else decode_state(item)
