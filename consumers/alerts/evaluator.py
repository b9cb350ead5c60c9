"""The evaluator: from changes of totals, as the stream of `counters` shows them, to alerts.

    1  read the batch; a malformed record goes to the quarantine
    2  find the rules that watch the counter of each change, as of the time of the change
    3  for each counter and rule, in order: decide, write, publish (several counters at a time)
    4  report from which record the shard must be delivered again

The alerts follow from the changes and the revisions of the rules alone, so they are the same
whatever is delivered again, cut in pieces, or evaluated by two invocations at once. `state` says
why none is lost.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.alerts.chain import ChainEvaluator, ChainOutcome, Link, Notifier
from countledger.consumers.alerts.crossing import TotalChange, is_publishable, total_change_of
from countledger.consumers.alerts.state import decide_scan, may_matter
from countledger.consumers.alerts.state_item import (
    scan_write_of,
)
from countledger.consumers.record import MalformedRecord, created_at_ms, find, sequence_of
from countledger.consumers.totals import counters_beginning
from countledger.ledger import keys
from countledger.ledger.attributes import require_amount
from countledger.ledger.clock import Clock, SystemClock, show_duration
from countledger.ledger.deadline import Deadline
from countledger.ledger.errors import (
    CorruptItem,
    CountledgerError,
    OutOfTime,
    ServiceFailed,
)
from countledger.ledger.limits import BATCH_GET_KEYS, MINUTE_MS, SECOND_MS
from countledger.ledger.total import decode_total

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from countledger.consumers.alerts.alert import Publisher
    from countledger.consumers.alerts.message import DeadLetters
    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.rule_index import KnownRules, RuleIndex
    from countledger.consumers.quarantine import Quarantine
    from countledger.consumers.region_state import RegionStateStore
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient

_THREADS: Final = 16
# A counter and the name of a rule.
_Place = tuple[str, str]


@dataclass(slots=True)
class EvaluationOutcome:
    """The result for a batch.

    Attributes:
        records: the number of records delivered.
        changes: the number of them that changed a total, or what is held of it.
        published: the number of alerts that were published, repeated ones included.
        dead: the number of these that went to the dead letters.
        quarantined: the number of records that went to the quarantine.
        failed: the error of each counter and rule that was not finished.
        retry_from: the lowest sequence number that may not be evaluated yet.
        lag_ms: the age of the last record by this clock.
    """

    records: int
    changes: int = 0
    published: int = 0
    dead: int = 0
    quarantined: int = 0
    failed: dict[_Place, CountledgerError] = field(default_factory=dict)
    retry_from: int | None = None
    lag_ms: int | None = None

    @property
    def late(self) -> int:
        """The number of failures because the deadline passed."""
        return sum(isinstance(error, OutOfTime) for error in self.failed.values())


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates batches of stream records.

    Attributes:
        dynamo: a DynamoDB client; its SDK may retry, because a second application is refused.
        table: the table `counters`.
        rules: the rules of this region.
        publisher: sends alerts to their targets.
        dead_letters: stores alerts that were not taken.
        quarantine: stores records that can never be evaluated.
        clock: the time.
        region: the state of this region; None: it is always ready. While it is rebuilding, totals
            change because they are made: nothing is evaluated, and the changes are skipped.
    """

    dynamo: DynamoClient
    table: str
    rules: KnownRules
    publisher: Publisher
    dead_letters: DeadLetters
    quarantine: Quarantine
    clock: Clock = field(default_factory=SystemClock)
    region: RegionStateStore | None = None

    def apply(
        self,
        records: Sequence[Mapping[str, Any]],
        stream: str,
        deadline: Deadline | None = None,
    ) -> EvaluationOutcome:
        """Evaluate a batch of one shard. Cost: `ChainEvaluator.evaluate`; else nothing.

        A counter and rule that fails or is late is in the outcome, not raised.

        Args:
            records: as Lambda delivers them, in order.
            stream: the stream that they come from, for the quarantine.
            deadline: no change is started after it; None: the time limit of the function.

        Raises:
            ServiceFailed: the rules or the quarantine failed; nothing was evaluated.
        """
        deadline = deadline or Deadline.within(self.clock)
        outcome = EvaluationOutcome(len(records))
        if self.region is not None and self.region.is_rebuilding():
            return outcome
        # Read after the records were made: it contains every rule that was effective then.
        index = self.rules.index()
        chains = chains_of(self._read(records, stream, outcome), index)

        def to_quarantine(sequence: int, reason: str) -> None:
            self.quarantine.put(find(records, sequence), reason, stream)

        notifier = Notifier(self.publisher, self.dead_letters, self.dynamo, self.table, self.clock)
        evaluator = ChainEvaluator(self.dynamo, self.table, notifier, to_quarantine, deadline)
        if chains:
            with ThreadPoolExecutor(_THREADS, "countledger-evaluator") as pool:
                _add(outcome, chains, list(pool.map(evaluator.evaluate, chains.values())))
        return outcome

    def _read(
        self, records: Sequence[Mapping[str, Any]], stream: str, outcome: EvaluationOutcome
    ) -> list[TotalChange]:
        now_ms = self.clock.now_ms()
        changes: list[TotalChange] = []
        for record in records:
            try:
                change = total_change_of(record, sequence_of(record), now_ms)
            except MalformedRecord as error:
                self.quarantine.put(record, str(error), stream)
                outcome.quarantined += 1
                continue
            if change is not None:
                changes.append(change)
        outcome.changes = len(changes)
        if records:
            with suppress(MalformedRecord):
                outcome.lag_ms = max(0, now_ms - created_at_ms(records[-1]))
        return changes


def chains_of(changes: Sequence[TotalChange], index: RuleIndex) -> dict[_Place, list[Link]]:
    """For each counter and rule the changes that may have an effect, in order."""
    chains: dict[_Place, list[Link]] = {}
    for change in changes:
        for rule in index.matching(change.counter):
            seen = change.seen_by(rule)
            if seen.old == seen.new or not rule.is_effective_at(change.at_ms):
                continue
            if may_matter(seen, rule):
                chains.setdefault((change.counter, rule.name), []).append(Link(seen, rule))
    return chains


def _add(
    outcome: EvaluationOutcome, places: Iterable[_Place], chains: Sequence[ChainOutcome]
) -> None:
    outcome.published = sum(one.published for one in chains)
    outcome.dead = sum(one.dead for one in chains)
    outcome.quarantined += sum(one.rejected for one in chains)
    failed = zip(places, chains, strict=True)
    outcome.failed = {place: one.error for place, one in failed if one.error}
    outcome.retry_from = min(
        (one.failed_at.sequence for one in chains if one.failed_at), default=None
    )


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
        self._await(rule)
        notifier = Notifier(self.publisher, self.dead_letters, self.dynamo, self.table, self.clock)
        evaluator = ChainEvaluator(
            self.dynamo, self.table, notifier, _refuse, decide=decide_scan, write_of=scan_write_of
        )
        published = 0
        failed: dict[str, CountledgerError] = {}
        for item in self._totals(rule):
            change = _as_unchanged(item, max(rule.effective_from_ms, self.clock.now_ms()))
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

    def _await(self, rule: Rule) -> None:
        # A second more, for the clock by which the stream stamps its records.
        wait_ms = rule.effective_from_ms + SECOND_MS - self.clock.now_ms()
        if wait_ms > _WAIT_MAX_MS:
            raise ServiceFailed(
                f"rule {rule.name!r} is effective in {show_duration(wait_ms)} only, by this "
                f"machine's clock: run `countledger alert set {rule.name} --now` then"
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


def _as_unchanged(item: Item, now_ms: int) -> TotalChange | None:
    """A total as a change from its value to the same; None if no rule evaluates it."""
    try:
        total = decode_total(item)
        held = require_amount(item, "held") if "held" in item else 0
    except CorruptItem:
        # Its next record goes to the quarantine, where it is reported.
        return None
    if total.bins > 1 or not is_publishable(total.total, total.version):
        return None
    at_ms = now_ms // SECOND_MS * SECOND_MS
    return TotalChange(
        0, total.counter, total.total, total.total, total.version, at_ms, (held, held)
    )


def _refuse(_sequence: int, reason: str) -> None:
    raise ServiceFailed(reason)
