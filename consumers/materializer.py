"""The materializer: keeps totals exact from the stream of `ledger`.

    1  fold the batch; what cannot be understood goes to the quarantine      pure, but for that
    2  per counter one update: effect and watermark are one write, and its   several at a time
       place on its namespace's board, where that is ranked
    3  its condition failed: drop what the watermark has passed, try again
       either way: where enough entries wait to be compacted, put it into the due index
    4  a counter that cannot be written tells from where the shard has to be delivered again
    5  all is written: the shard's progress moves

A record's sequence number is passed only together with its effect, or after the record lies in
the quarantine: nothing is lost. At or below the watermark a record is dropped: nothing counts
twice. A crash between any two steps leaves records to be delivered again, no more.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.due import DueMarker
from countledger.consumers.fold import Fold, fold
from countledger.consumers.progress import ShardProgress, advance_of
from countledger.consumers.record import find
from countledger.consumers.total_writer import TotalWriter, Written
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import ConditionFailed, CountledgerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.consumers.due import DueRules
    from countledger.consumers.quarantine import Quarantine
    from countledger.consumers.rank_rules import RankRules
    from countledger.consumers.record import Change
    from countledger.consumers.shard import Shard
    from countledger.ledger.door import Door

_WRITERS: Final = 16


@dataclass(slots=True)
class Outcome:
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
    counters: int
    updates: int = 0
    duplicates: int = 0
    quarantined: int = 0
    failed: dict[str, CountledgerError] = field(default_factory=dict)
    retry_from: int | None = None
    lag_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Materializer:
    """Brings batches of stream records into totals.

    Attributes:
        door: a door to DynamoDB; the SDK may retry, a second application is refused.
        table: the table `counters`.
        quarantine: takes what can never be applied.
        clock: tells the time.
        rules: when a counter is worth compacting; None: never.
        ranks: which namespaces are ranked; None: none.
    """

    door: Door
    table: str
    quarantine: Quarantine
    clock: Clock = field(default_factory=SystemClock)
    rules: DueRules | None = None
    ranks: RankRules | None = None

    def apply(self, records: Sequence[Mapping[str, Any]], shard: Shard) -> Outcome:
        """Bring a batch of one shard into the totals: a write unit for each counter, and one.

        A counter that cannot be written is in the outcome, not raised.

        Raises:
            ServiceFailed: a record that cannot be understood could not be put into the quarantine;
                nothing was applied.
        """
        now_ms = self.clock.now_ms()
        folded = fold(records, now_ms)
        for rejected in folded.rejected:
            self.quarantine.put(rejected.record, rejected.reason, str(shard))
        door = self.door.metered()

        def set_aside(change: Change, reason: str) -> None:
            self.quarantine.put(find(records, change.sequence), reason, str(shard))

        index = DueMarker(door, self.table, self.rules, now_ms).mark if self.rules else None
        also = self.ranks.clauses if self.ranks else None
        writer = TotalWriter(door, self.table, str(shard), set_aside, now_ms, index, also)
        outcome = _outcome(folded, _write_all(writer, folded), now_ms)
        if outcome.retry_from is None:
            self._advance(door, outcome, folded, shard)
        return outcome

    def _advance(self, door: Door, outcome: Outcome, folded: Fold, shard: Shard) -> None:
        """Step 5; where it fails the last record is delivered again, and dropped."""
        if folded.last_sequence is None or folded.last_created_at_ms is None:
            return
        progress = ShardProgress(
            shard=str(shard),
            sequence=folded.last_sequence,
            handled_through_ms=folded.last_created_at_ms,
            handled_at_ms=self.clock.now_ms(),
            records=folded.records,
            updates=outcome.updates,
            write_units=door.meter.write_units + 1,  # its own
        )
        try:
            door.update(advance_of(self.table, progress))
        except ConditionFailed:
            return  # a redelivered batch: the shard has been further already
        except CountledgerError as error:
            outcome.failed[f"progress of {shard}"] = error
            outcome.retry_from = int(folded.last_sequence)


@cache
def _writers(_process: int) -> ThreadPoolExecutor:
    """The threads that write; kept, for to start them anew costs as much as six updates.

    Args:
        _process: the id of this process: a child made by a fork has none of its parent's threads.
    """
    return ThreadPoolExecutor(_WRITERS, "countledger-materializer")


def _write_all(writer: TotalWriter, folded: Fold) -> dict[str, Written]:
    """What became of each counter; nothing is on its way any more when this returns or raises."""
    pool = _writers(os.getpid())
    writing = {
        counter: pool.submit(writer.write, counter, changes)
        for counter, changes in folded.changes.items()
    }
    wait(writing.values())
    return {counter: one.result() for counter, one in writing.items()}


def _outcome(folded: Fold, written: Mapping[str, Written], now_ms: int) -> Outcome:
    outcome = Outcome(
        records=folded.records,
        counters=len(folded.changes),
        updates=sum(1 for one in written.values() if one.applied),
        duplicates=sum(one.duplicates for one in written.values()),
        quarantined=len(folded.rejected) + sum(one.rejected for one in written.values()),
        failed={counter: one.error for counter, one in written.items() if one.error},
    )
    # What a failed counter had before its failure is applied: delivered again, it is dropped.
    outcome.retry_from = min(
        (folded.changes[counter][0].sequence for counter in outcome.failed), default=None
    )
    if folded.last_created_at_ms is not None:
        outcome.lag_ms = max(0, now_ms - folded.last_created_at_ms)
    return outcome
