"""Telling: the alerts of a firing to their target, or to the dead letters, and into the log.

    1  publish; what fails is sent again, a bounded number of times
    2  what its target did not take goes to the dead letters
    3  the log notes both

When all three are done the alerts have been told. A crash before that has them told again, under
the same ids. So a target that fails holds up nothing; only dead letters or a log that take nothing
do, and then only for that counter and rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.consumers.alerts.alert_log import plan_log
from countledger.consumers.alerts.dead_letters import DeadLetter
from countledger.consumers.alerts.publish import FailedAlert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.consumers.alerts.alert import Alert, Firing
    from countledger.consumers.alerts.dead_letters import DeadLetters
    from countledger.consumers.alerts.publish import Publisher
    from countledger.consumers.alerts.rule import Target
    from countledger.ledger.clock import Clock
    from countledger.ledger.dynamo import DynamoClient

_LOGGED_REASON_MAX_CHARACTERS: Final = 200


@dataclass(frozen=True, slots=True)
class Notifier:
    """Tells the alerts of one batch of records.

    Attributes:
        publisher: takes alerts to their targets.
        dead_letters: takes those that fail.
        dynamo: a DynamoDB client; the SDK may retry.
        table: the table `counters`, where the log is.
        clock: tells when.
        silent: the targets that gave no answer, and why: they are not waited for again.
    """

    publisher: Publisher
    dead_letters: DeadLetters
    dynamo: DynamoClient
    table: str
    clock: Clock
    silent: dict[Target, str] = field(default_factory=dict)

    def publish(self, firing: Firing) -> int:
        """PublishFiring all alerts of a firing. One call for each ten of them, and two write units.

        Returns:
            How many of them went to the dead letters.

        Raises:
            CountledgerError: the dead letters or the log took nothing; publish it again.
        """
        alerts = firing.alerts
        refused = self._publish(alerts, firing.target)
        for one in refused:
            letter = DeadLetter(one.alert, firing.target, one.reason, self.clock.now_ms())
            self.dead_letters.put(letter)
        dead = {
            alerts.index(one.alert): one.reason[:_LOGGED_REASON_MAX_CHARACTERS] for one in refused
        }
        for note in plan_log(self.table, firing, self.clock.now_ms(), dead):
            self.dynamo.put(note)
        return len(refused)

    def _publish(self, alerts: Sequence[Alert], target: Target) -> list[FailedAlert]:
        silence = self.silent.get(target)
        if silence is not None:
            return [FailedAlert(alert, silence, silent=True) for alert in alerts]
        refused = self.publisher.publish(alerts, target)
        for one in refused:
            if one.silent:
                self.silent[target] = one.reason
        return refused
