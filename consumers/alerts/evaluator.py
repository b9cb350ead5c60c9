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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.consumers.alerts.crossing import TotalChange, total_change_of
from countledger.consumers.alerts.delivery import Notifier
from countledger.consumers.alerts.state import decide, may_matter
from countledger.consumers.alerts.state_item import (
    PublishFiring,
    WriteState,
    decode_state,
    published_write_of,
    write_of,
)
from countledger.consumers.record import MalformedRecord, created_at_ms, find, sequence_of
from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.deadline import Deadline
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    CountledgerError,
    OutOfTime,
    RequestRejected,
    ServiceFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from countledger.consumers.alerts.alert import Publisher
    from countledger.consumers.alerts.dead_letters import DeadLetters
    from countledger.consumers.alerts.rule import Rule
    from countledger.consumers.alerts.rule_index import KnownRules, RuleIndex
    from countledger.consumers.alerts.state_item import AlertState
    from countledger.consumers.quarantine import Quarantine
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Put

_THREADS: Final = 16
# A write is refused if another invocation evaluates the same records; its state is further ahead.
_STEPS_MAX: Final = 20

# A counter and the name of a rule.
_Place = tuple[str, str]
_Step = PublishFiring | WriteState


class Link(NamedTuple):
    """A change, and the revision of the rule that evaluates it."""

    change: TotalChange
    rule: Rule


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
        key = keys.alert_state_key(link.change.counter, link.rule.name)
        try:
            return _decoded(self.dynamo.get(self.table, key, consistent=True))
        except CorruptItem:
            return None


def _decoded(item: Item | None) -> AlertState | None:
    return None if item is None else decode_state(item)


@dataclass(slots=True)
class EvaluationOutcome:
    """The result for a batch.

    Attributes:
        records: the number of records delivered.
        changes: the number of them that changed a total.
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
            if rule.is_effective_at(change.at_ms) and may_matter(change, rule):
                chains.setdefault((change.counter, rule.name), []).append(Link(change, rule))
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
