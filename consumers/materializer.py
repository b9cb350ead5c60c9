"""The materializer: keeps totals exact from the stream of `ledger`.

    1  read the shard's progress, and drop what is at or below it
    2  fold the batch; what cannot be understood goes to the quarantine      pure, but for that
    3  per counter one update: effect and watermark are one write, and its   several at a time
       place on its namespace's board, where that is ranked
    4  its condition failed: drop what the watermark has passed, try again
       either way: where enough entries wait to be compacted, put it into the due index
    5  a counter that cannot be written, or not in time, tells from where the shard has to be
       delivered again
    6  the shard's progress moves to where all is written

A record's sequence number is passed only together with its effect, or after the record lies in
the quarantine: nothing is lost. At or below progress or watermark a record is dropped: nothing
counts twice. A crash between any two steps leaves records to be delivered again, no more.

Progress refuses what is delivered again; watermarks refuse what an earlier invocation sent before
the progress was there, and what lands late. So a watermark can go some time after the progress has
passed it (`passed`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.batch import (
    BatchAttempt,
    BatchOutcome,
    ShardBatch,
    complete_outcome,
    end_attempt,
    next_attempt,
    start_attempt,
)
from countledger.consumers.directory import ShardDirectory
from countledger.consumers.fold import Fold, Reached, fold, reached
from countledger.consumers.namespace_rules import DueMarker
from countledger.consumers.progress import (
    ShardProgress,
    advance_of,
    history_after,
    lost_text,
)
from countledger.consumers.record import above, find, sequence_of
from countledger.consumers.total_writer import TotalWriter, Written
from countledger.consumers.watermark import PassedShards
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.deadline import Deadline
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    OutOfTime,
    ProgressLost,
)
from countledger.ledger.forks import this_process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.consumers.fold import CounterChanges
    from countledger.consumers.namespace_rules import DueRules, RankRules
    from countledger.consumers.quarantine import Quarantine
    from countledger.consumers.record import EntryChange
    from countledger.consumers.stream import ShardName
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient

_WRITERS: Final = 16


@dataclass(frozen=True, slots=True)
class Materializer:
    """Brings batches of stream records into totals.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry, a second application is refused.
        table: the table `counters`.
        quarantine: takes what can never be applied.
        clock: tells the time.
        rules: when a counter is worth compacting; None: never.
        ranks: which namespaces are ranked; None: none.
        shards: the directory of stream shards.
        passed: knows which watermarks can go.
    """

    dynamo: DynamoClient
    table: str
    quarantine: Quarantine
    clock: Clock = field(default_factory=SystemClock)
    rules: DueRules | None = None
    ranks: RankRules | None = None
    shards: ShardDirectory = field(default_factory=ShardDirectory)
    passed: PassedShards = field(default_factory=PassedShards)

    def apply(
        self,
        records: Sequence[Mapping[str, Any]],
        shard: ShardName,
        deadline: Deadline | None = None,
    ) -> BatchOutcome:
        """Bring a batch of one shard into the totals: a write unit for each counter, and one.

        And one read unit. A batch whose first record is minutes old costs a write unit more.

        A counter that cannot be written, or not before the deadline, is in the outcome, not
        raised. Counters are written in the order of their first records, so each invocation
        moves on the part of the batch that is applied.

        Args:
            records: as Lambda delivers them, in order.
            shard: which they come from.
            deadline: until when to write; None: as long as the function may run.

        Raises:
            ServiceFailed: the shard's progress could not be read, or a record that cannot be
                understood could not be put into the quarantine; nothing was applied.
            ProgressLost: the shard's progress is gone; nothing was applied.
        """
        if not records:
            return BatchOutcome(0)
        deadline = deadline or Deadline.within(self.clock)
        now_ms = self.clock.now_ms()
        dynamo = self.dynamo.metered()
        progress = self.shards.open(dynamo, self.table, shard, now_ms)
        fresh = above(records, progress.position) if progress.position else records
        outcome = BatchOutcome(len(records), duplicates=len(records) - len(fresh))
        if not fresh:
            return outcome
        batch = ShardBatch(shard, progress, now_ms, deadline)
        attempt = start_attempt(dynamo, self.table, batch, next_attempt(fresh, progress, now_ms))
        if attempt is None:
            self._handle(dynamo, batch, fresh, outcome)
            return outcome
        try:
            self._handle(dynamo, batch, fresh[: attempt.size], outcome, attempt)
        except CountledgerError:
            end_attempt(dynamo, self.table, batch, attempt)
            raise
        if outcome.retry_from == attempt.first:
            end_attempt(dynamo, self.table, batch, attempt)  # otherwise its progress has moved
        elif outcome.retry_from is None and attempt.size < len(fresh):
            outcome.retry_from = sequence_of(fresh[attempt.size])
        return outcome

    def _handle(
        self,
        dynamo: DynamoClient,
        batch: ShardBatch,
        records: Sequence[Mapping[str, Any]],
        outcome: BatchOutcome,
        attempt: BatchAttempt | None = None,
    ) -> None:
        """Apply records, in whole or up to the first that cannot be, and move the progress."""
        withdrawn = 0
        if attempt is not None and attempt.is_last:
            self.quarantine.put(records[0], attempt.reason, str(batch.shard))
            withdrawn = 1
        # After a record that is given up only such come as tell no number, and are rejected.
        folded = fold(records[withdrawn:], batch.now_ms)
        for rejected in folded.rejected:
            self.quarantine.put(rejected.record, rejected.reason, str(batch.shard))
        writer = self._writer(dynamo, batch, records)
        complete_outcome(outcome, folded, _write_all(writer, folded, batch.deadline), batch.now_ms)
        outcome.quarantined += withdrawn
        handled = reached(records, outcome.retry_from)
        if handled is not None:
            self._advance(dynamo, batch, outcome, handled)

    def _writer(
        self, dynamo: DynamoClient, batch: ShardBatch, records: Sequence[Mapping[str, Any]]
    ) -> TotalWriter:
        shard, now_ms = batch.shard, batch.now_ms

        def quarantine(change: EntryChange, reason: str) -> None:
            self.quarantine.put(find(records, change.sequence), reason, str(shard))

        def removable(total: Item) -> dict[str, bytes]:
            return self.passed.removable(dynamo, self.table, total, shard.stream, now_ms)

        index = DueMarker(dynamo, self.table, self.rules, now_ms).mark if self.rules else None
        also = self.ranks.clauses if self.ranks else None
        return TotalWriter(
            dynamo, self.table, str(shard), quarantine, now_ms, index, also, removable
        )

    def _advance(
        self, dynamo: DynamoClient, batch: ShardBatch, outcome: BatchOutcome, handled: Reached
    ) -> None:
        """Step 6; where it fails the last record is delivered again, and dropped."""
        handled_at_ms = self.clock.now_ms()
        earlier, earlier_at_ms, settled = history_after(
            batch.progress, handled_at_ms, self.passed.late_ms
        )
        progress = ShardProgress(
            shard=str(batch.shard),
            sequence=handled.sequence,
            handled_through_ms=handled.created_at_ms,
            handled_at_ms=handled_at_ms,
            records=handled.records,
            updates=outcome.updates,
            write_units=dynamo.meter.write_units + 1,  # its own
            earlier=earlier,
            earlier_at_ms=earlier_at_ms,
            settled=settled,
        )
        error: CountledgerError
        try:
            with batch.deadline.concluding().guarded():
                dynamo.update(advance_of(self.table, progress))
                self.shards.renew(dynamo, self.table, batch.shard, handled_at_ms)
        except ConditionFailed as refused:
            if refused.item is not None:
                return  # a redelivered batch: the shard has been further already
            error = ProgressLost(lost_text(batch.shard))
        except CountledgerError as failed:
            error = failed
        else:
            return
        outcome.failed[f"progress of {batch.shard}"] = error
        if outcome.retry_from is None:
            outcome.retry_from = int(handled.sequence)


@cache
def _writers(_process: tuple[int, int]) -> ThreadPoolExecutor:
    """The threads that write; kept, for to start them anew costs as much as six updates.

    Args:
        _process: this process: a child made by a fork has none of its parent's threads.
    """
    return ThreadPoolExecutor(_WRITERS, "countledger-materializer")


def _write_all(writer: TotalWriter, folded: Fold, deadline: Deadline) -> dict[str, Written]:
    """What became of each counter; nothing is on its way any more when this returns or raises.

    They begin in the order of their first records.
    """

    def write(counter: str, changes: CounterChanges) -> Written:
        try:
            with deadline.guarded():
                return writer.write(counter, changes)
        except OutOfTime as error:
            return Written(error=error)

    pool = _writers(this_process())
    writing = {
        counter: pool.submit(write, counter, changes) for counter, changes in folded.changes.items()
    }
    wait(writing.values())
    return {counter: one.result() for counter, one in writing.items()}
