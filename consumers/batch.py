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
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.progress import attempt_ended_of, attempt_started_of, lost_text
from countledger.consumers.record import MalformedRecord, created_at_ms, sequence_of
from countledger.ledger.errors import ConditionFailed, CountledgerError, OutOfTime, ProgressLost
from countledger.ledger.limits import ATTEMPTS_COUNTED_FROM_MS, ATTEMPTS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.consumers.fold import Fold
    from countledger.consumers.progress import ShardProgress
    from countledger.consumers.stream import ShardName
    from countledger.consumers.total_writer import Written
    from countledger.ledger.deadline import Deadline
    from countledger.ledger.dynamo import DynamoClient

# As often the whole batch is tried: an invocation may end for reasons of its own.
_WHOLE: Final = 2


@dataclass(frozen=True, slots=True)
class ShardBatch:
    """What one invocation goes by.

    Attributes:
        shard: whose records these are.
        progress: of the shard, as it was at the beginning.
        now_ms: the time of the batch.
        deadline: until when to write.
    """

    shard: ShardName
    progress: ShardProgress
    now_ms: int
    deadline: Deadline


@dataclass(frozen=True, slots=True)
class BatchAttempt:
    """One attempt at a batch that is counted.

    Attributes:
        first: the sequence number of the first record.
        number: which attempt it is, those only that did not come to an end counted; from 1.
        size: how many records to apply.
    """

    first: int
    number: int
    size: int

    @property
    def is_last(self) -> bool:
        """Whether the first record is not applied any more, but quarantined."""
        return self.number > ATTEMPTS_MAX

    @property
    def reason(self) -> str:
        """Why it is quarantined."""
        return f"the function did not come to an end, {self.number - 1} times, at this record"


def next_attempt(
    records: Sequence[Mapping[str, Any]], progress: ShardProgress, now_ms: int
) -> BatchAttempt | None:
    """The attempt that an invocation makes at records (at least one), or None if it is not counted.

    Args:
        records: what is left of the batch.
        progress: of its shard, with the attempts so far.
        now_ms: the time, ms since the epoch.
    """
    try:
        first = sequence_of(records[0])
        if now_ms - created_at_ms(records[0]) < ATTEMPTS_COUNTED_FROM_MS:
            return None
    except MalformedRecord:
        return None  # it is quarantined at once
    before = progress.attempts if progress.attempted == first else 0
    halvings = max(0, before - _WHOLE + 1)
    size = 1 if before >= ATTEMPTS_MAX else max(1, len(records) >> halvings)
    while size < len(records) and not _has_number(records[size]):
        size += 1  # what is left must be told from where
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
    """The attempt, once it is noted: one write unit. None: none is counted.

    So it is where another invocation has passed the first record since the progress was read.

    Raises:
        ProgressLost: the shard's progress is gone.
        ServiceFailed: it could not be noted.
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
            raise ProgressLost(lost_text(batch.shard)) from refused
        return None
    return attempt


def end_attempt(dynamo: DynamoClient, table: str, batch: ShardBatch, attempt: BatchAttempt) -> None:
    """Note that the process did not end over this batch, which fails for reasons of its own."""
    with suppress(CountledgerError), batch.deadline.concluding().guarded():
        dynamo.update(attempt_ended_of(table, str(batch.shard), attempt.first))


@dataclass(slots=True)
class BatchOutcome:
    """What became of a batch.

    Attributes:
        records: how many were delivered.
        counters: how many counters they change.
        updates: how many totals were updated.
        duplicates: changes that had been applied before.
        quarantined: records that went to the quarantine.
        failed: why, for each counter that could not be written.
        retry_from: the lowest sequence number that may not be applied yet, or None.
        lag_ms: how far the last record lies behind this clock, or None without one.
    """

    records: int
    counters: int = 0
    updates: int = 0
    duplicates: int = 0
    quarantined: int = 0
    failed: dict[str, CountledgerError] = field(default_factory=dict)
    retry_from: int | None = None
    lag_ms: int | None = None

    @property
    def late(self) -> int:
        """How many of the failed counters were not written because the time was over."""
        return sum(isinstance(error, OutOfTime) for error in self.failed.values())


def complete_outcome(
    outcome: BatchOutcome, folded: Fold, written: Mapping[str, Written], now_ms: int
) -> None:
    """Complete an outcome with what became of each counter.

    Args:
        outcome: of the batch.
        folded: what the batch does.
        written: what became of it, by counter.
        now_ms: the time of the batch, ms since the epoch.
    """
    outcome.counters = len(folded.changes)
    outcome.updates = sum(1 for one in written.values() if one.applied)
    outcome.duplicates += sum(one.duplicates for one in written.values())
    outcome.quarantined = len(folded.rejected) + sum(one.rejected for one in written.values())
    outcome.failed = {counter: one.error for counter, one in written.items() if one.error}
    # What a failed counter had before its failure is applied: delivered again, it is dropped.
    outcome.retry_from = min(
        (folded.changes[counter][0].sequence for counter in outcome.failed), default=None
    )
    if folded.last_created_at_ms is not None:
        outcome.lag_ms = max(0, now_ms - folded.last_created_at_ms)
