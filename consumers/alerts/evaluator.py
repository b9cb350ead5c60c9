"""The evaluator: from the changes of totals, as the stream of `counters` shows them, to alerts.

    1  read the batch; what cannot be understood goes to the quarantine     pure, but for that
    2  for each change the rules that watch its counter, as of its own time   pure
    3  for each counter and rule its changes in order: decide, write, tell    several at a time
    4  what failed tells from where the shard has to be delivered again

Which alerts are made follows from the changes and the revisions of the rules alone, so it is the
same whatever is delivered again, cut in pieces, or judged by two at once. See `state` for why none
is lost.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from countledger.consumers.alerts.chain import ChainEvaluator, ChainOutcome, Link
from countledger.consumers.alerts.notifier import Notifier
from countledger.consumers.alerts.state import may_matter
from countledger.consumers.alerts.total_change import total_change_of
from countledger.consumers.record import MalformedRecord, created_at_ms, find, sequence_of
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.deadline import Deadline
from countledger.ledger.errors import OutOfTime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.consumers.alerts.dead_letters import DeadLetters
    from countledger.consumers.alerts.publish import Publisher
    from countledger.consumers.alerts.rule_index import RuleIndex
    from countledger.consumers.alerts.total_change import TotalChange
    from countledger.consumers.quarantine import Quarantine
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.errors import CountledgerError

_CHAINS: Final = 16

# Of a counter under a rule of that name.
_Place = tuple[str, str]


class KnownRules(Protocol):
    """Knows the rules of a region."""

    def index(self) -> RuleIndex:
        """All that were changed some seconds ago, or earlier.

        Raises:
            ServiceFailed: they cannot be read.
        """


@dataclass(slots=True)
class EvaluationOutcome:
    """What became of a batch.

    Attributes:
        records: how many were delivered.
        changes: how many of them moved a total.
        published: how many alerts were told, again or for the first time.
        dead: how many of them went to the dead letters.
        quarantined: records that went to the quarantine.
        failed: why, for each counter and rule that could not be judged to the end.
        retry_from: the lowest sequence number that may not be judged yet, or None.
        lag_ms: how far the last record lies behind this clock, or None without one.
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
        """How many of the failed were not judged to the end because the time was over."""
        return sum(isinstance(error, OutOfTime) for error in self.failed.values())


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluates batches of stream records.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry, a second application is refused.
        table: the table `counters`.
        rules: the rules of this region.
        publisher: takes alerts to their targets.
        dead_letters: takes those that fail.
        quarantine: takes what can never be judged.
        clock: tells the time.
    """

    dynamo: DynamoClient
    table: str
    rules: KnownRules
    publisher: Publisher
    dead_letters: DeadLetters
    quarantine: Quarantine
    clock: Clock = field(default_factory=SystemClock)

    def apply(
        self,
        records: Sequence[Mapping[str, Any]],
        stream: str,
        deadline: Deadline | None = None,
    ) -> EvaluationOutcome:
        """Evaluate a batch of one shard; what it costs: `ChainEvaluator.evaluate`.

        A counter and rule that cannot be judged to the end, or not in time, is in the outcome, not
        raised.

        Args:
            records: as Lambda delivers them, in order.
            stream: which stream they come from, for the quarantine.
            deadline: after which no change is begun; None: as long as the function may run.

        Raises:
            ServiceFailed: the rules cannot be read, or the quarantine takes nothing; no change was
                judged.
        """
        deadline = deadline or Deadline.within(self.clock)
        outcome = EvaluationOutcome(len(records))
        # Read behind the records were made: what is in force at their time is known by now.
        index = self.rules.index()
        changes = self._read(records, stream, outcome)
        chains = chains_of(changes, index)

        def to_quarantine(sequence: int, reason: str) -> None:
            self.quarantine.put(find(records, sequence), reason, stream)

        notifier = Notifier(self.publisher, self.dead_letters, self.dynamo, self.table, self.clock)
        judge = ChainEvaluator(self.dynamo, self.table, notifier, to_quarantine, deadline)
        if chains:
            with ThreadPoolExecutor(_CHAINS, "countledger-evaluator") as pool:
                judged = pool.map(judge.evaluate, chains.values())
                _sum_up(outcome, dict(zip(chains, judged, strict=True)))
        return outcome

    def _read(
        self, records: Sequence[Mapping[str, Any]], stream: str, outcome: EvaluationOutcome
    ) -> list[TotalChange]:
        """Step 1."""
        now_ms = self.clock.now_ms()
        changes: list[TotalChange] = []
        for record in records:
            try:
                change = total_change_of(record, sequence_of(record), now_ms)
            except MalformedRecord as malformed:
                self.quarantine.put(record, str(malformed), stream)
                outcome.quarantined += 1
                continue
            if change is not None:
                changes.append(change)
        outcome.changes = len(changes)
        if records:
            try:
                outcome.lag_ms = max(0, now_ms - created_at_ms(records[-1]))
            except MalformedRecord:
                outcome.lag_ms = None
        return changes


def chains_of(changes: Sequence[TotalChange], index: RuleIndex) -> dict[_Place, list[Link]]:
    """Step 2: per counter and rule the changes that may change anything, in order."""
    chains: dict[_Place, list[Link]] = {}
    for change in changes:
        for rule in index.matching(change.counter):
            if rule.is_effective_at(change.at_ms) and may_matter(change, rule):
                chains.setdefault((change.counter, rule.name), []).append(Link(change, rule))
    return chains


def _sum_up(outcome: EvaluationOutcome, judged: Mapping[_Place, ChainOutcome]) -> None:
    outcome.published = sum(one.published for one in judged.values())
    outcome.dead = sum(one.dead for one in judged.values())
    outcome.quarantined += sum(one.rejected for one in judged.values())
    outcome.failed = {place: one.error for place, one in judged.items() if one.error}
    outcome.retry_from = min(
        (one.failed_at.sequence for one in judged.values() if one.failed_at), default=None
    )
