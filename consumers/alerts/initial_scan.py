"""The initial scan: alerts for totals that are beyond the threshold of a new rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from countledger.consumers.alerts.chain import ChainEvaluator, Link, Notifier
from countledger.consumers.alerts.crossing import TotalChange, is_publishable
from countledger.consumers.alerts.state import decide_scan
from countledger.consumers.alerts.state_item import scan_write_of
from countledger.consumers.totals import counters_beginning
from countledger.ledger import keys
from countledger.ledger.attributes import require_amount
from countledger.ledger.clock import Clock, SystemClock, show_duration
from countledger.ledger.errors import CorruptItem, CountledgerError, ServiceFailed
from countledger.ledger.limits import BATCH_GET_KEYS, MINUTE_MS, SECOND_MS
from countledger.ledger.total import decode_total

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from countledger.consumers.alerts.alert import Publisher
    from countledger.consumers.alerts.dead_letters import DeadLetters
    from countledger.consumers.alerts.rule import Rule
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient


# If clocks agree, a rule is effective within seconds.
_WAIT_MAX_MS: Final = MINUTE_MS


@dataclass(frozen=True, slots=True)
class InitialScan:
    """Alerts for totals that are beyond the threshold of a new rule.

    The evaluator sees changes only, and such a total need not change. So the scan waits until the
    rule is effective, when every later change will be evaluated, and reads the counters then. A
    total that was beyond the threshold before is still beyond it, or a change that the evaluator
    sees brought it back. The alert state decides which came first, so a counter alerts once.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry, a second application is refused.
        table: the table `counters`.
        publisher: sends alerts to their targets.
        dead_letters: stores alerts that were not taken.
        clock: the time.
    """

    dynamo: DynamoClient
    table: str
    publisher: Publisher
    dead_letters: DeadLetters
    clock: Clock = field(default_factory=SystemClock)

    def run(self, rule: Rule) -> int:
        """Wait until a rule is effective, and alert for its counters that are beyond the threshold.

        One read unit for each counter, for a prefix also a scan of the table; four write units for
        each that is beyond. A repeated scan of a revision alerts for the counters that were left.

        Returns:
            The number of alerts published.

        Raises:
            ServiceFailed: some counters failed; `alert set NAME --now` goes on.
        """
        wait_until_effective(rule, self.clock)
        notifier = Notifier(self.publisher, self.dead_letters, self.dynamo, self.table, self.clock)
        evaluator = ChainEvaluator(
            self.dynamo, self.table, notifier, _refuse, decide=decide_scan, write_of=scan_write_of
        )
        published = 0
        failed: dict[str, CountledgerError] = {}
        for item in self._totals(rule):
            change = as_unchanged(item, max(rule.effective_from_ms, self.clock.now_ms()))
            if change is None:
                continue
            outcome = evaluator.evaluate([Link(change.seen_by(rule), rule)])
            published += outcome.published
            if outcome.error is not None:
                failed[change.counter] = outcome.error
        if failed:
            counter, error = next(iter(failed.items()))
            raise ServiceFailed(
                f"rule {rule.name!r} is stored, but {len(failed)} of its counters failed in the "
                f"initial scan, such as {counter!r} ({error}): `countledger alert set {rule.name} "
                "--now` goes on"
            )
        return published

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


def wait_until_effective(rule: Rule, clock: Clock) -> None:
    """Wait until a rule evaluates what is written from now on.

    Raises:
        ServiceFailed: by this machine's clock that is too long to wait for.
    """
    # A second more, for the clock by which the stream stamps its records.
    wait_ms = rule.effective_from_ms + SECOND_MS - clock.now_ms()
    if wait_ms > _WAIT_MAX_MS:
        raise ServiceFailed(
            f"rule {rule.name!r} is effective in {show_duration(wait_ms)} only, by this "
            f"machine's clock: run `countledger alert set {rule.name} --now` then"
        )
    if wait_ms > 0:
        clock.sleep_ms(wait_ms)


def as_unchanged(item: Item, now_ms: int) -> TotalChange | None:
    """A total as a change from its value to the same; None if no rule evaluates it."""
    try:
        total = decode_total(item)
        held = require_amount(item, "held") if "held" in item else 0
    except CorruptItem:
        # Its next record goes to the quarantine, where it is reported.
        return None
    if total.bins > 1 or not is_publishable(total.value, total.version):
        return None
    at_ms = now_ms // SECOND_MS * SECOND_MS
    return TotalChange(
        0, total.counter, total.value, total.value, total.version, at_ms, (held, held)
    )


def _refuse(_sequence: int, reason: str) -> None:
    raise ServiceFailed(reason)
