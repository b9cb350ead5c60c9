"""Totals that are beyond a threshold already when a rule takes effect: told if a user asks for it.

The evaluator sees changes, and such a total need not change. So once the rule is in force, and
every update from then on is judged, its counters are read. What was beyond before is beyond then,
or has moved back since, which the evaluator sees. The state tells who came first, so a counter
alerts once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.consumers.alerts.crossing import TotalChange, is_tellable
from countledger.consumers.alerts.delivery import Notifier
from countledger.consumers.alerts.evaluator import ChainEvaluator, Link
from countledger.consumers.alerts.state import decide_scan
from countledger.consumers.alerts.state_item import scan_write_of
from countledger.consumers.totals import counters_beginning
from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock, show_duration
from countledger.ledger.errors import CorruptItem, CountledgerError, ServiceFailed
from countledger.ledger.limits import BATCH_GET_KEYS, MINUTE_MS, SECOND_MS
from countledger.ledger.total import decode_total

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.consumers.alerts.dead_letters import DeadLetters
    from countledger.consumers.alerts.delivery import Publisher
    from countledger.consumers.alerts.rule import Rule
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient

# Between clocks that agree a rule is in force within seconds.
_WAIT_MAX_MS: Final = MINUTE_MS


@dataclass(frozen=True, slots=True)
class InitialScan:
    """Tells of totals that stand beyond a threshold.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry, a second application is refused.
        table: the table `counters`.
        publisher: takes alerts to their targets.
        dead_letters: takes those that fail.
        clock: tells when the rule is in force.
    """

    dynamo: DynamoClient
    table: str
    publisher: Publisher
    dead_letters: DeadLetters
    clock: Clock = field(default_factory=SystemClock)

    def run(self, rule: Rule) -> int:
        """Wait until a rule is in force, and tell of its counters that are beyond the threshold.

        One read unit for each counter, for a prefix also a scan of the table; four write units for
        each that is beyond. Again under the same revision it tells what was not told before.

        Returns:
            How many alerts were told.

        Raises:
            ServiceFailed: some counters could not be judged; `alert set NAME --now` goes on.
        """
        self._await(rule)
        notifier = Notifier(self.publisher, self.dead_letters, self.dynamo, self.table, self.clock)
        judge = ChainEvaluator(
            self.dynamo, self.table, notifier, _refuse, decide=decide_scan, write_of=scan_write_of
        )
        told = 0
        failed: dict[str, CountledgerError] = {}
        for item in self._totals(rule):
            change = _standing_still(item, max(rule.effective_from_ms, self.clock.now_ms()))
            if change is None:
                continue
            judged = judge.evaluate([Link(change, rule)])
            told += judged.published
            if judged.error is not None:
                failed[change.counter] = judged.error
        if failed:
            counter, error = next(iter(failed.items()))
            raise ServiceFailed(
                f"rule {rule.name!r} is made, but {len(failed)} of its counters could not be "
                f"judged, such as {counter!r} ({error}): `countledger alert set {rule.name} --now` "
                "goes on"
            )
        return told

    def _await(self, rule: Rule) -> None:
        # A second more, for the clock by which the stream stamps its records.
        wait_ms = rule.effective_from_ms + SECOND_MS - self.clock.now_ms()
        if wait_ms > _WAIT_MAX_MS:
            raise ServiceFailed(
                f"rule {rule.name!r} takes effect in {show_duration(wait_ms)} only, by this "
                f"machine's clock: try `countledger alert set {rule.name} --now` then"
            )
        if wait_ms > 0:
            self.clock.sleep_ms(wait_ms)

    def _totals(self, rule: Rule) -> Iterator[Item]:
        """The totals that a rule watches, strongly consistent."""
        names: Iterable[str] = [rule.counter] if rule.counter is not None else []
        if rule.prefix is not None:
            names = counters_beginning(self.dynamo, self.table, rule.prefix)
        feed = iter(names)
        while wanted := list(islice(feed, BATCH_GET_KEYS)):
            yield from self.dynamo.get_many(
                self.table, [keys.total_key(name) for name in wanted], consistent=True
            )


def _standing_still(item: Item, now_ms: int) -> TotalChange | None:
    """A total as a change from its value to the same; None where it is not judged."""
    try:
        total = decode_total(item)
    except CorruptItem:
        # Its next record goes to the quarantine, where it is reported.
        return None
    if total.bins > 1 or not is_tellable(total.total, total.version):
        return None
    at_ms = now_ms // SECOND_MS * SECOND_MS
    return TotalChange(0, total.counter, total.total, total.total, total.version, at_ms)


def _refuse(_sequence: int, reason: str) -> None:
    raise ServiceFailed(reason)
