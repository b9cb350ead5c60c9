"""The evaluator: from changes of totals, as the stream of `counters` shows them, to alerts.

    1  read the batch. In nearly every record a total stays on its side of every threshold: no more
       of it is read than what shows that
    2  find the rules that watch the counter of each change, as of the time of the change
    3  for each counter and rule, in order: decide, write, publish (several counters at a time)
    4  quarantine the malformed records, several at a time
    5  report from which record the shard must be delivered again

The alerts follow from the changes and the revisions of the rules alone, so they are the same
whatever is delivered again, cut in pieces, or evaluated by two invocations at once. `state` says
why none is lost.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.alerts.chain import ChainEvaluator, ChainOutcome, Link, Notifier
from countledger.consumers.alerts.crossing import TotalChange, total_change_of
from countledger.consumers.alerts.prefilter import Prefilter
from countledger.consumers.alerts.state import may_matter
from countledger.consumers.alerts.window_records import WindowRecords
from countledger.consumers.record import MalformedRecord, created_at_ms, find, sequence_of
from countledger.consumers.rejected import (
    RejectedRecord,
    handle_around,
    put_numbered,
    put_unnumbered,
)
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.departure import Deadline
from countledger.ledger.errors import (
    CountledgerError,
    OutOfTime,
)
from countledger.ledger.suspension import WorkerThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from countledger.consumers.alerts.delivery import DeadLetters
    from countledger.consumers.alerts.message import Publisher
    from countledger.consumers.alerts.rule_index import KnownRules, RuleIndex
    from countledger.consumers.over_regions import RegionStateStore
    from countledger.consumers.rejected import Quarantine, Unstored
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.windows import WindowSetting

_THREADS: Final = 16
# A counter and the name of an alert state: of a rule, or of a rule and a window.
_Place = tuple[str, str]


@dataclass(slots=True)
class EvaluationOutcome:
    """The result for a batch.

    Attributes:
        records: the number of records delivered.
        changes: how many totals they changed, or what is held of them; and how many windows in a
            way that may matter to a rule.
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
        windows: the window settings of a counter's namespace; None: windows are not evaluated.
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
    windows: Callable[[str], Sequence[WindowSetting]] | None = None
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
            ServiceFailed: the rules failed, or a record without a sequence number could not be
                quarantined; nothing was evaluated.
        """
        deadline = deadline or Deadline.within(self.clock)
        outcome = EvaluationOutcome(len(records))
        if self.region is not None and self.region.is_rebuilding():
            return outcome
        # Read after the records were made: it contains every rule that was effective then.
        index = self.rules.index()
        changes, rejected = self._read(records, index, outcome)
        put_unnumbered(self.quarantine, rejected, stream)
        chains = chains_of(changes, index)

        def to_quarantine(sequence: int, reason: str) -> None:
            self.quarantine.put(find(records, sequence), reason, stream)

        notifier = Notifier(self.publisher, self.dead_letters, self.dynamo, self.table, self.clock)
        evaluator = ChainEvaluator(self.dynamo, self.table, notifier, to_quarantine, deadline)
        unstored: list[Unstored] = []
        ended: dict[_Place, ChainOutcome] = {}
        if chains or rejected:
            with WorkerThreads(_THREADS, "countledger-evaluator") as pool:
                ended, unstored = handle_around(
                    rejected,
                    chains,
                    counter_of=itemgetter(0),
                    handle=lambda part: dict(
                        zip(part, pool.map(evaluator.evaluate, part.values()), strict=True)
                    ),
                    store=lambda some: put_numbered(self.quarantine, some, stream, deadline, pool),
                )
        _add(outcome, ended)
        outcome.quarantined += len(rejected) - len(unstored)
        for one in unstored:
            outcome.failed[one.counter or "", "the quarantine"] = one.error
            outcome.retry_from = min(one.sequence, outcome.retry_from or one.sequence)
            for link in _held_back(chains, one.counter):
                outcome.retry_from = min(link.change.sequence, outcome.retry_from)
        return outcome

    def _read(
        self,
        records: Sequence[Mapping[str, Any]],
        index: RuleIndex,
        outcome: EvaluationOutcome,
    ) -> tuple[list[TotalChange], list[RejectedRecord]]:
        now_ms = self.clock.now_ms()
        windows = self.windows and WindowRecords(index, self.windows, now_ms)
        prefilter = Prefilter(index, now_ms)
        changes: list[TotalChange] = []
        rejected: list[RejectedRecord] = []
        crossing_nothing = 0
        for record in records:
            if prefilter.crosses_nothing(record):
                crossing_nothing += 1
                continue
            sequence: int | None = None
            try:
                sequence = sequence_of(record)
                change = total_change_of(record, sequence, now_ms)
                if change is not None:
                    changes.append(change)
                elif windows is not None:
                    changes += windows.changes(record, sequence)
            except MalformedRecord as error:
                rejected.append(RejectedRecord(record, str(error), sequence))
        outcome.changes = crossing_nothing + len(changes)
        if records:
            with suppress(MalformedRecord):
                outcome.lag_ms = max(0, now_ms - created_at_ms(records[-1]))
        return changes, rejected


def chains_of(changes: Sequence[TotalChange], index: RuleIndex) -> dict[_Place, list[Link]]:
    """For each counter and rule the changes that may have an effect, in order."""
    chains: dict[_Place, list[Link]] = {}
    for change in changes:
        for rule in index.matching(change.counter):
            if rule.window != (change.window and change.window.per):
                continue
            seen = change.seen_by(rule)
            if seen.old == seen.new or not rule.is_effective_at(change.at_ms):
                continue
            if may_matter(seen, rule):
                link = Link(seen, rule)
                chains.setdefault((change.counter, link.state), []).append(link)
    return chains


def _held_back(chains: Mapping[_Place, Sequence[Link]], counter: str | None) -> Iterator[Link]:
    """The first change of each chain of a counter, none of which was evaluated."""
    return (links[0] for place, links in chains.items() if place[0] == counter)


def _add(outcome: EvaluationOutcome, ended: Mapping[_Place, ChainOutcome]) -> None:
    chains = ended.values()
    outcome.published = sum(one.published for one in chains)
    outcome.dead = sum(one.dead for one in chains)
    outcome.quarantined += sum(one.rejected for one in chains)
    outcome.failed = {place: one.error for place, one in ended.items() if one.error}
    outcome.retry_from = min(
        (one.failed_at.sequence for one in chains if one.failed_at), default=None
    )
