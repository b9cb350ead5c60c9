"""The materializer: keeps totals exact from the stream of `ledger`.

    1  read the shard's progress, and drop the records at or below it
    2  fold the batch (pure)
    3  update each counter's total, several at a time: one write has the effect, the watermark, and
       in a ranked namespace the position on the board; then each item of its windows
    4  quarantine the malformed records, several at a time; then step 3 for their own counters
    5  if the condition of an update fails, drop the changes at or below the watermark and retry
       in any case: put a counter with enough entries to compact into the due index
    6  if a counter cannot be written, or a record not be quarantined, or not in time, report its
       first record: the shard is delivered again from there
    7  move the shard's progress to where all changes are written

Watermark and progress pass a record only together with its effect, or after the record was
quarantined: nothing is lost. A record at or below progress or watermark is dropped: nothing counts
twice. After a crash between any two steps records are delivered again, and nothing else happens.

Progress refuses records that are delivered again. Watermarks refuse writes of earlier invocations,
which were sent before the progress was stored or which land late. So a watermark can be removed
some time after the progress has passed it (`watermark`).
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import wait
from dataclasses import dataclass, field
from functools import cache, partial
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
from countledger.consumers.fold import Reached, fold, reached
from countledger.consumers.namespace_rules import DueMarker
from countledger.consumers.progress import (
    ShardProgress,
    advance_of,
    history_after,
    lost,
)
from countledger.consumers.record import above, find, sequence_of
from countledger.consumers.rejected import handle_around, put_numbered, put_unnumbered
from countledger.consumers.total_writer import TotalWriter, Written
from countledger.consumers.watermark import PassedShards
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.departure import Deadline, guarded
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    OutOfTime,
)
from countledger.ledger.processes import this_process
from countledger.ledger.suspension import WorkerThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from countledger.consumers.fold import CounterChanges
    from countledger.consumers.namespace_rules import DueRules, RankRules
    from countledger.consumers.record import EntryChange, ShardName
    from countledger.consumers.rejected import Quarantine, RejectedRecord, Unstored
    from countledger.ledger.attributes import Item
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.windows import WindowSetting

_WRITERS: Final = 16


@dataclass(frozen=True, slots=True)
class Materializer:
    """Applies batches of stream records to totals.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry, because a second application is refused.
        table: the table `counters`.
        quarantine: keeps records that can never be applied.
        clock: the time.
        rules: when a counter has enough entries to compact; None: never.
        ranks: which namespaces are ranked; None: none.
        shards: the directory of stream shards.
        passed: finds watermarks that can be removed.
        windows: which windows a counter has; None: none has any.
    """

    dynamo: DynamoClient
    table: str
    quarantine: Quarantine
    clock: Clock = field(default_factory=SystemClock)
    rules: DueRules | None = None
    ranks: RankRules | None = None
    shards: ShardDirectory = field(default_factory=ShardDirectory)
    passed: PassedShards = field(default_factory=PassedShards)
    windows: Callable[[str], Sequence[WindowSetting]] | None = None

    def apply(
        self,
        records: Sequence[Mapping[str, Any]],
        shard: ShardName,
        deadline: Deadline | None = None,
    ) -> BatchOutcome:
        """Apply a batch of one shard to the totals.

        One write unit for each counter, one for each item of windows that its changes touch, one
        for the progress, and one read unit. A batch whose first record is minutes old costs one
        write unit more.

        What cannot be written or quarantined, or not before the deadline, is in the outcome.
        Counters are written in the order of their first records, so each invocation extends the
        applied part of the batch.

        Args:
            records: as Lambda delivers them, in order.
            shard: the shard of the records.
            deadline: until when to write; None: as long as the function may run.

        Raises:
            ServiceFailed: the shard's progress could not be read, or a record without a sequence
                number could not be quarantined; nothing was applied.
            ProgressLost: the shard's progress is lost; nothing was applied.
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
        """Apply records, all or up to the first that cannot be written, and move the progress."""
        skipped = 0
        if attempt is not None and attempt.is_last:
            self.quarantine.put(records[0], attempt.reason, str(batch.shard))
            skipped = 1
        # After a quarantined first record only records without a number follow: all are rejected.
        folded = fold(records[skipped:], batch.now_ms)
        put_unnumbered(self.quarantine, folded.rejected, str(batch.shard))
        writer = self._writer(dynamo, batch, records)
        written, unstored = handle_around(
            folded.rejected,
            folded.changes,
            counter_of=str,
            handle=lambda changes: _write_all(writer, changes, batch.deadline),
            store=partial(self._quarantine, batch),
        )
        refused = {one.counter: one.error for one in unstored}
        for name in folded.changes.keys() & refused.keys():
            written[name] = Written(error=refused[name])
        complete_outcome(outcome, folded, written, batch.now_ms)
        outcome.quarantined += skipped - len(unstored)
        if unstored:
            first = min(unstored, key=lambda one: one.sequence)
            outcome.failed[f"the quarantine of {batch.shard}"] = first.error
            outcome.retry_from = min(first.sequence, outcome.retry_from or first.sequence)
        handled = reached(records, outcome.retry_from)
        if handled is not None:
            self._advance(dynamo, batch, outcome, handled)

    def _quarantine(self, batch: ShardBatch, rejected: Sequence[RejectedRecord]) -> list[Unstored]:
        """Step 4."""
        pool = _writers(this_process())
        return put_numbered(self.quarantine, rejected, str(batch.shard), batch.deadline, pool)

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
            dynamo,
            self.table,
            str(shard),
            quarantine,
            now_ms,
            index,
            also,
            removable,
            self.windows,
        )

    def _advance(
        self, dynamo: DynamoClient, batch: ShardBatch, outcome: BatchOutcome, handled: Reached
    ) -> None:
        """Step 7; if it fails, the last record is delivered again, and dropped."""
        handled_at_ms = self.clock.now_ms()
        earlier, earlier_at_ms, landed = history_after(
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
            landed=landed,
        )
        error: CountledgerError
        try:
            with batch.deadline.concluding().guarded():
                dynamo.update(advance_of(self.table, progress))
                self.shards.renew(dynamo, self.table, batch.shard, handled_at_ms)
        except ConditionFailed as refused:
            if refused.item is not None:
                return  # a redelivered batch: the shard's progress is further already
            error = lost(batch.shard)
        except CountledgerError as failed:
            error = failed
        else:
            return
        outcome.failed[f"progress of {batch.shard}"] = error
        if outcome.retry_from is None:
            outcome.retry_from = int(handled.sequence)


@cache
def _writers(_process: tuple[int, int]) -> WorkerThreads:
    """The writing threads. They are kept, because starting them costs as much as six updates.

    Args:
        _process: this process: a forked child does not have its parent's threads.
    """
    return WorkerThreads(_WRITERS, "countledger-materializer")


def in_order(changes: Mapping[str, CounterChanges]) -> deque[tuple[str, CounterChanges]]:
    """The counters of a batch in the order of their first records, for several to take from."""
    return deque(changes.items())


def _write_all(
    writer: TotalWriter, changes: Mapping[str, CounterChanges], deadline: Deadline
) -> dict[str, Written]:
    """Write each counter's changes; when this returns or raises, no write is under way.

    The writes begin in the order of the counters' first records. Each thread takes one counter
    after the other: to hand over each of them by itself would take half as long as to write it.
    """
    waiting = in_order(changes)
    written: dict[str, Written] = {}

    def write_some() -> None:
        with guarded(deadline.check):
            while waiting:
                try:
                    counter, changes = waiting.popleft()
                except IndexError:
                    return  # another thread took the last one
                written[counter] = write(counter, changes)

    def write(counter: str, changes: CounterChanges) -> Written:
        try:
            deadline.check()
            return writer.write(counter, changes)
        except OutOfTime as error:
            return Written(error=error)

    pool = _writers(this_process())
    threads = [pool.submit(write_some) for _ in range(min(_WRITERS, len(waiting)))]
    wait(threads)
    for one in threads:
        one.result()
    return written
