"""What became of a batch that the materializer was given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.ledger.errors import CountledgerError, OutOfTime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.consumers.fold import Fold
    from countledger.consumers.total_writer import Written


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
