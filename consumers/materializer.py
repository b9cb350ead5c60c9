"""The materializer: keeps totals exact from the stream of `ledger`.

    1  compare: read the shard's progress, and drop the records at or below it
    2  fold the batch (pure); the malformed records are quarantined after step 3 for the counters
       that have none, and before step 3 for their own counters
    3  update each counter's total, several at a time: one write has the effect, the watermark, and
       in a ranked namespace the position on the board; then each item of its windows; then put a
       counter with enough entries to compact into the due index
    4  if the condition of an update fails, drop the changes at or below the watermark and retry
    5  if a counter cannot be written, or a record not be quarantined, or not in time, report its
       first record: the shard is delivered again from there
    6  move the shard's progress to where all changes are written

Watermark and progress pass a record only together with its effect, or after the record was
quarantined: nothing is lost. A record at or below progress or watermark is dropped: nothing counts
twice. After a crash between any two steps records are delivered again, and nothing else happens.

Progress refuses records that are delivered again. Watermarks refuse writes of earlier invocations,
which were sent before the progress was stored or which land late. So a watermark can be removed
some time after the progress has passed it (`progress`).
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.consumers.progress import (
    PassedShards,
    ShardDirectory,
    ShardProgress,
    advance_of,
    attempt_ended_of,
    attempt_started_of,
    history_after,
    lost,
)
from countledger.consumers.record import MalformedRecord, above, created_at_ms, find, sequence_of
from countledger.consumers.rejected import handle_around, put_numbered, put_unnumbered
from countledger.consumers.total_writer import (
    DueMarker,
    Reached,
    TotalWriter,
    Written,
    fold,
    reached,
)
from countledger.ledger.departure import Deadline, guarded
from countledger.ledger.errors import ConditionFailed, CountledgerError, OutOfTime
from countledger.ledger.limits import ATTEMPTS_COUNTED_FROM_MS, ATTEMPTS_MAX
from countledger.ledger.processes import this_process
from countledger.ledger.suspension import WorkerThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from countledger.consumers.record import EntryChange, ShardName
    from countledger.consumers.rejected import Quarantine, RejectedRecord, Unstored
    from countledger.consumers.total_writer import CounterChanges, DueRuleOf, Fold
    from countledger.ledger.attributes import Item
    from countledger.ledger.connection import Connection
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Clause
    from countledger.ledger.windows import WindowSetting


# A batch of stream records: how much of it one invocation applies, and what became of it.
#
# A batch that runs its function out of memory would block its shard for a day, because the
# function reports nothing. So once the first record is minutes old, each invocation stores an
# attempt before it applies anything, and removes it at its end, whatever became of the batch. If
# invocations keep ending without that, half of the batch is applied and the rest is left for
# later, then a quarter, and at last the first record alone. If even that does not end, the record
# is quarantined.


# How often the whole batch is tried: an invocation may also end for other reasons.
_WHOLE: Final = 2


class ShardBatch(NamedTuple):
    """The facts of one invocation."""

    shard: ShardName
    progress: ShardProgress
    now_ms: int
    deadline: Deadline


class BatchAttempt(NamedTuple):
    """One attempt at a batch, from 1; only attempts that did not come to an end are counted."""

    first: int
    number: int
    size: int

    @property
    def is_last(self) -> bool:
        """Whether the first record is quarantined instead of applied."""
        return self.number > ATTEMPTS_MAX

    @property
    def reason(self) -> str:
        return f"the function did not come to an end, {self.number - 1} times, at this record"


def next_attempt(
    records: Sequence[Mapping[str, Any]], progress: ShardProgress, now_ms: int
) -> BatchAttempt | None:
    """The next attempt at the records that are left (at least one); None: it is not counted."""
    try:
        first = sequence_of(records[0])
        if now_ms - created_at_ms(records[0]) < ATTEMPTS_COUNTED_FROM_MS:
            return None
    except MalformedRecord:
        return None  # the record is malformed, and quarantined at once
    before = progress.attempts if progress.attempted == first else 0
    halvings = max(0, before - _WHOLE + 1)
    size = 1 if before >= ATTEMPTS_MAX else max(1, len(records) >> halvings)
    while size < len(records) and not _has_number(records[size]):
        size += 1  # the rest is reported by the number of its first record
    return BatchAttempt(first, before + 1, size)


def _has_number(record: Mapping[str, Any]) -> bool:
    try:
        sequence_of(record)
    except MalformedRecord:
        return False
    return True


def start_attempt(
    dynamo: DynamoClient, table: str, batch: ShardBatch, attempt: BatchAttempt | None
) -> BatchAttempt | None:
    """Store an attempt, and return it: one write unit. None: the attempt is not counted.

    It is not counted either if another invocation has handled the first record meanwhile.
    """
    if attempt is None:
        return None
    try:
        with batch.deadline.guarded():
            dynamo.update(
                attempt_started_of(table, str(batch.shard), attempt.first, attempt.number)
            )
    except ConditionFailed as refused:
        if refused.item is None:
            raise lost(batch.shard) from refused
        return None
    return attempt


def end_attempt(dynamo: DynamoClient, table: str, batch: ShardBatch, attempt: BatchAttempt) -> None:
    """Remove the stored attempt: the process survived the batch, which failed otherwise."""
    with suppress(CountledgerError), batch.deadline.concluding().guarded():
        dynamo.update(attempt_ended_of(table, str(batch.shard), attempt.first))


@dataclass(slots=True)
class BatchOutcome:
    """What became of a batch.

    `retry_from` is the lowest sequence number that may not be applied yet, and `lag_ms` the age of
    the last record by this clock. `refused_times` counts the changes that are in the windows of
    their recording, because their own time is not accepted; `duplicates` those that had been
    applied before; `windows` the items of windows that were written.
    """

    records: int
    counters: int = 0
    updates: int = 0
    windows: int = 0
    refused_times: int = 0
    duplicates: int = 0
    quarantined: int = 0
    failed: dict[str, CountledgerError] = field(default_factory=dict)
    retry_from: int | None = None
    lag_ms: int | None = None

    @property
    def late(self) -> int:
        """How many counters were not written because the deadline had passed."""
        return sum(isinstance(error, OutOfTime) for error in self.failed.values())


def complete_outcome(
    outcome: BatchOutcome, folded: Fold, written: Mapping[str, Written], now_ms: int
) -> None:
    outcome.counters = len(folded.changes)
    outcome.updates = sum(1 for one in written.values() if one.applied)
    outcome.windows = sum(one.windows for one in written.values())
    outcome.refused_times = sum(one.refused_times for one in written.values())
    outcome.duplicates += sum(one.duplicates for one in written.values())
    outcome.quarantined = len(folded.rejected) + sum(one.rejected for one in written.values())
    outcome.failed = {counter: one.error for counter, one in written.items() if one.error}
    # A part of a failed counter's changes may be applied: delivered again, that part is dropped.
    outcome.retry_from = min(
        (folded.changes[counter][0].sequence for counter in outcome.failed), default=None
    )
    if folded.last_created_at_ms is not None:
        outcome.lag_ms = max(0, now_ms - folded.last_created_at_ms)


_WRITERS: Final = 16


@dataclass(frozen=True, slots=True)
class Materializer:
    """Applies batches of stream records to totals.

    The SDK may retry, because a second application is refused. `due_rule_of` says
    when a counter has enough entries to compact, `rank_clauses` how a new total gets onto its
    board, `windows` which windows a counter has; None: the stack has none of it.
    """

    connection: Connection
    quarantine: Quarantine
    table: str = field(init=False)
    due_rule_of: DueRuleOf | None = None
    rank_clauses: Callable[[str], tuple[Clause, ...]] | None = None
    shards: ShardDirectory = field(default_factory=ShardDirectory)
    passed: PassedShards = field(default_factory=PassedShards)
    windows: Callable[[str], Sequence[WindowSetting]] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "table", self.connection.counters)

    def apply(
        self,
        records: Sequence[Mapping[str, Any]],
        shard: ShardName,
        deadline: Deadline | None = None,
    ) -> BatchOutcome:
        """Apply a batch of one shard, as Lambda delivers it, to the totals.

        One write unit for each counter, one for each item of windows that its changes touch, one
        for the progress, and one read unit. A batch whose first record is minutes old costs one
        write unit more.

        What cannot be written or quarantined, or not before the deadline, is in the outcome.
        Counters are written in the order of their first records, so each invocation extends the
        applied part of the batch.

        `ServiceFailed`: the progress could not be read, or a record without a sequence number not
        be quarantined; `ProgressLost`: the progress is lost. In both cases nothing was applied.
        """
        if not records:
            return BatchOutcome(0)
        deadline = deadline or Deadline.within(self.connection.clock)
        now_ms = self.connection.clock.now_ms()
        dynamo = self.connection.retrying.metered()
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
        """Of step 2: the malformed records, or those of them for which time is left."""
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

        due_rule_of = self.due_rule_of
        index = DueMarker(dynamo, self.table, due_rule_of, now_ms).mark if due_rule_of else None
        return TotalWriter(
            dynamo,
            self.table,
            str(shard),
            quarantine,
            now_ms,
            index,
            self.rank_clauses,
            removable,
            self.windows,
        )

    def _advance(
        self, dynamo: DynamoClient, batch: ShardBatch, outcome: BatchOutcome, handled: Reached
    ) -> None:
        """Step 6; if it fails, the last record is delivered again, and dropped."""
        handled_at_ms = self.connection.clock.now_ms()
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
    """The writing threads, kept because starting them costs as much as six updates.

    Of this process: a forked child does not have its parent's threads.
    """
    return WorkerThreads(_WRITERS, "countledger-materializer")


def in_order(changes: Mapping[str, CounterChanges]) -> deque[tuple[str, CounterChanges]]:
    return deque(changes.items())


def _write_all(
    writer: TotalWriter, changes: Mapping[str, CounterChanges], deadline: Deadline
) -> dict[str, Written]:
    """Write each counter's changes; when this returns or raises, no write is under way.

    The writes begin in the order of the counters' first records. Each thread takes one counter
    after the other: to hand over each of them by itself would take half as long as to write it. A
    single counter is written by the caller's thread.
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

    if len(changes) == 1:
        write_some()
        return written
    pool = _writers(this_process())
    threads = [pool.submit(write_some) for _ in range(min(_WRITERS, len(waiting)))]
    wait(threads)
    for one in threads:
        one.result()
    return written
