"""A batch of stream records: how much of it one invocation applies, and what became of it.

A batch that runs its function out of memory would block its shard for a day, because the function
reports nothing. So once the first record is minutes old, each invocation stores an attempt before
it applies anything, and removes it at its end, whatever became of the batch. If invocations keep
ending without that, half of the batch is applied and the rest is left for later, then a quarter,
and at last the first record alone. If even that does not end, the record is quarantined.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from countledger.consumers.progress import attempt_ended_of, attempt_started_of, lost
from countledger.consumers.record import MalformedRecord, created_at_ms, sequence_of
from countledger.ledger.errors import ConditionFailed, CountledgerError, OutOfTime
from countledger.ledger.limits import ATTEMPTS_COUNTED_FROM_MS, ATTEMPTS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.consumers.fold import Fold
    from countledger.consumers.progress import ShardProgress
    from countledger.consumers.record import ShardName
    from countledger.consumers.total_writer import Written
    from countledger.ledger.departure import Deadline
    from countledger.ledger.dynamo import DynamoClient

# How often the whole batch is tried: an invocation may also end for other reasons.
_WHOLE: Final = 2


class ShardBatch(NamedTuple):
    """The facts of one invocation.

    Attributes:
        shard: the shard of the records.
        progress: the shard's progress at the beginning.
        now_ms: the time of the batch, ms since the epoch.
        deadline: until when to write.
    """

    shard: ShardName
    progress: ShardProgress
    now_ms: int
    deadline: Deadline


class BatchAttempt(NamedTuple):
    """One attempt at a batch that is counted.

    Attributes:
        first: the sequence number of the first record.
        number: of the attempt, from 1; only attempts that did not come to an end are counted.
        size: how many records to apply.
    """

    first: int
    number: int
    size: int

    @property
    def is_last(self) -> bool:
        """Whether the first record is quarantined instead of applied."""
        return self.number > ATTEMPTS_MAX

    @property
    def reason(self) -> str:
        """The reason for the quarantine."""
        return f"the function did not come to an end, {self.number - 1} times, at this record"


def next_attempt(
    records: Sequence[Mapping[str, Any]], progress: ShardProgress, now_ms: int
) -> BatchAttempt | None:
    """The next attempt at records (at least one); None: the attempt is not counted.

    Args:
        records: the records of the batch that are not handled yet.
        progress: of their shard, with the attempts so far.
        now_ms: the time, ms since the epoch.
    """
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

    Raises:
        ProgressLost: the shard's progress is lost.
        ServiceFailed: the attempt could not be stored.
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

    Attributes:
        records: how many were delivered.
        counters: how many counters they change.
        updates: how many totals were updated.
        windows: how many items of windows were written.
        refused_times: how many changes count in the windows of their recording, because their own
            time is not accepted.
        duplicates: how many changes had been applied before.
        quarantined: how many records were quarantined.
        failed: for each counter that could not be written, the error.
        retry_from: the lowest sequence number that may not be applied yet; None: all are.
        lag_ms: the age of the last record by this clock; None: no record has a time.
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
    """Complete a batch's outcome with the outcome of each counter.

    Args:
        outcome: of the batch.
        folded: what the batch adds.
        written: the outcome of each counter's write.
        now_ms: the time of the batch, ms since the epoch.
    """
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
