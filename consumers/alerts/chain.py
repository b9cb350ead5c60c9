"""The changes of one counter under one rule, in order: decide, write, publish, mark.

To publish the alerts of a firing takes three steps:

    1  publish; what fails is sent again, a bounded number of times
    2  alerts that the target did not take go to the dead letters
    3  the alert log records both

After these steps the alerts count as published. After a crash before the end of step 3 they are
published again, with the same ids. So a target that fails delays nothing: only if the dead letters
or the log cannot be written is the firing tried again, for its counter and rule alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.consumers.alerts.delivery import DeadLetter, plan_log
from countledger.consumers.alerts.message import Alert, FailedAlert, state_name
from countledger.consumers.alerts.state import (
    PublishFiring,
    WriteState,
    decide,
    decode_state,
    published_write_of,
    write_of,
)
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

    from countledger.consumers.alerts.crossing import TotalChange
    from countledger.consumers.alerts.delivery import DeadLetters
    from countledger.consumers.alerts.message import Firing, Publisher
    from countledger.consumers.alerts.rule import Rule, Target
    from countledger.consumers.alerts.state import AlertState
    from countledger.ledger.attributes import Item
    from countledger.ledger.clock import Clock
    from countledger.ledger.departure import Deadline
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Put

_LOGGED_REASON_MAX_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Notifier:
    """Publishes the alerts of one batch of records.

    Attributes:
        publisher: sends alerts to their targets.
        dead_letters: stores alerts that were not taken.
        dynamo: a DynamoDB client; its SDK may retry.
        table: the table `counters`, which has the log.
        clock: the time.
        silent: targets that did not answer, and the reason: they are not tried again.
    """

    publisher: Publisher
    dead_letters: DeadLetters
    dynamo: DynamoClient
    table: str
    clock: Clock
    silent: dict[Target, str] = field(default_factory=dict)

    def publish(self, firing: Firing) -> int:
        """Publish all alerts of a firing. One call for each ten, and two write units.

        Returns:
            How many of them went to the dead letters.

        Raises:
            CountledgerError: the dead letters or the log could not be written; publish it again.
        """
        alerts = firing.alerts
        failed = self._send(alerts, firing.target)
        for one in failed:
            self.dead_letters.put(
                DeadLetter(one.alert, firing.target, one.reason, self.clock.now_ms())
            )
        dead = {
            alerts.index(one.alert): one.reason[:_LOGGED_REASON_MAX_CHARACTERS] for one in failed
        }
        for put in plan_log(self.table, firing, self.clock.now_ms(), dead):
            self.dynamo.put(put)
        return len(failed)

    def _send(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        silence = self.silent.get(target)
        if silence is not None:
            return [FailedAlert(alert, silence, silent=True) for alert in alerts]
        failed = self.publisher.publish(alerts, target)
        for one in failed:
            if one.silent:
                self.silent[target] = one.reason
        return failed


# A write is refused if another invocation evaluates the same records; its state is further ahead.
_STEPS_MAX: Final = 20


_Step = PublishFiring | WriteState


class Link(NamedTuple):
    """A change, and the revision of the rule that evaluates it."""

    change: TotalChange
    rule: Rule

    @property
    def state(self) -> str:
        """The name of the alert state by which the change is evaluated."""
        return state_name(self.rule.name, self.change.window)


@dataclass(slots=True)
class ChainOutcome:
    """The result for the changes of one counter under one rule; as in `EvaluationOutcome`.

    Attributes:
        rejected: the number of changes that went to the quarantine.
        failed_at: the first change that was not finished, and
        error: why.
    """

    published: int = 0
    dead: int = 0
    rejected: int = 0
    failed_at: TotalChange | None = None
    error: CountledgerError | None = None


@dataclass(frozen=True, slots=True)
class ChainEvaluator:
    """Evaluates the changes of one counter under one rule, in order, until one fails.

    Attributes:
        dynamo: a DynamoDB client; its SDK may retry, because a second application is refused.
        table: the table `counters`.
        notifier: publishes the alerts.
        to_quarantine: stores a record in the quarantine: its sequence number, and the reason.
        deadline: no change is started after it.
        decide: the next step for a change.
        write_of: the write of a state.
    """

    dynamo: DynamoClient
    table: str
    notifier: Notifier
    to_quarantine: Callable[[int, str], None]
    deadline: Deadline | None = None
    decide: Callable[[AlertState | None, TotalChange, Rule], _Step | None] = decide
    write_of: Callable[[str, WriteState], Put] = write_of

    def evaluate(self, links: Sequence[Link]) -> ChainOutcome:
        """Evaluate changes in order.

        Cost: nothing without an effect, but for a rule with a re-arm level one read unit for all.
        A change that fires: four write units (state, mark, log twice); delivered again one.
        """
        outcome = ChainOutcome()
        state: AlertState | None = None
        at = links[0].change
        try:
            if any(link.rule.rearm is not None for link in links):
                state = self._read(links[0])
            for link in links:
                at = link.change
                if self.deadline is not None:
                    self.deadline.check()
                try:
                    state = self._finish(link, state, outcome)
                except (CorruptItem, RequestRejected) as error:
                    self.to_quarantine(at.sequence, str(error))
                    outcome.rejected += 1
        except CountledgerError as error:
            outcome.failed_at, outcome.error = at, error
        return outcome

    def _finish(
        self, link: Link, state: AlertState | None, outcome: ChainOutcome
    ) -> AlertState | None:
        """Take all steps for a change; the known state after it."""
        for _ in range(_STEPS_MAX):
            step = self.decide(state, link.change, link.rule)
            if step is None:
                return state
            try:
                if isinstance(step, PublishFiring):
                    outcome.dead += self.notifier.publish(step.firing)
                    outcome.published += len(step.firing.alerts)
                    self.dynamo.update(published_write_of(self.table, step))
                    state = state and replace(state, published=True)
                else:
                    self.dynamo.put(self.write_of(self.table, step))
                    state = step.state
            except ConditionFailed as refused:
                state = _decoded(refused.item)
        raise ServiceFailed(
            f"counter {link.change.counter!r}, rule {link.rule.name!r}: other invocations changed "
            f"its alert state {_STEPS_MAX} times meanwhile"
        )

    def _read(self, link: Link) -> AlertState | None:
        """The stored state; a corrupt one is reported by the write that needs it."""
        key = keys.alert_state_key(link.change.counter, link.state)
        try:
            return _decoded(self.dynamo.get(self.table, key, consistent=True))
        except CorruptItem:
            return None


def _decoded(item: Item | None) -> AlertState | None:
    return None if item is None else decode_state(item)
