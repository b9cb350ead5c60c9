"""A batch of messages, worked off until the time is out: what is done, and what has to come again.

A message that failed comes again, and in the end lies in the dead-letter queue. One that there was
no time for does not: its counter is due still, so the schedule's next run sends it anew.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.compaction.last_run import LastRunStore, WorkDone
from countledger.compaction.report import RunOutcome
from countledger.compaction.work import CompactCounter, SweepSegment, parse_work
from countledger.ledger import keys
from countledger.ledger.errors import CountledgerError, ServiceFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from countledger.compaction.report import CompactionReport
    from countledger.compaction.sweep import Sweeper
    from countledger.compaction.work_queue import WorkQueue
    from countledger.compaction.worker import Worker
    from countledger.ledger.clock import Clock


@dataclass(slots=True)
class BatchResult:
    """What became of a batch.

    Attributes:
        outcomes: how many counters ended how.
        merged: how many entries were merged.
        write_units: what that consumed, in the home region.
        settled: how many counters were not due any more.
        left: how many counters there was no time for.
        again: the ids of the messages that have to come again.
        bad: why, for those that are not about a counter's own failure.
        work: what was done for each namespace.
    """

    outcomes: Counter[RunOutcome] = field(default_factory=Counter)
    merged: int = 0
    write_units: float = 0.0
    settled: int = 0
    left: int = 0
    again: list[str] = field(default_factory=list)
    bad: dict[str, str] = field(default_factory=dict)
    work: dict[str, WorkDone] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """How many counters failed, or messages could not be worked off."""
        return self.outcomes[RunOutcome.FAILED] + len(self.bad)

    @property
    def tampered(self) -> int:
        """How many counters carry a merged entry that was changed by hand."""
        return self.outcomes[RunOutcome.TAMPERED]


@dataclass(frozen=True, slots=True)
class WorkBatch:
    """Works off batches.

    Attributes:
        worker: compacts counters.
        sweeper: sweeps segments.
        queue: takes what is left of a segment.
        clock: tells the time.
        note: told of each counter's report.
    """

    worker: Worker
    sweeper: Sweeper
    queue: WorkQueue
    clock: Clock
    note: Callable[[CompactionReport], None]

    def run(self, messages: Mapping[str, str], deadline_ms: int) -> BatchResult:
        """Work off messages, by their ids; a write unit for each namespace, for the run book."""
        tally = BatchResult()
        for message, body in messages.items():
            try:
                work = parse_work(body)
                if isinstance(work, CompactCounter):
                    good = self._compact(work.counter, deadline_ms, tally)
                else:
                    good = self._sweep(work, deadline_ms)
            except CountledgerError as error:
                tally.bad[message] = str(error)
                good = False
            if not good:
                tally.again.append(message)
        book = LastRunStore(self.worker.index.dynamo, self.worker.index.table, self.clock)
        for namespace, done in tally.work.items():
            book.add(namespace, done)
        return tally

    def _compact(self, counter: str, deadline_ms: int, tally: BatchResult) -> bool:
        """Whether the message is done with."""
        if self.clock.now_ms() >= deadline_ms:
            tally.left += 1
            return True
        report = self.worker.compact_if_due(counter, deadline_ms=deadline_ms)
        if report is None:
            tally.settled += 1
            return True
        self.note(report)
        tally.work.setdefault(keys.namespace_of(counter), WorkDone()).take(report)
        tally.outcomes[report.outcome] += 1
        tally.merged += report.merged
        tally.write_units += report.write_units
        # Nothing but a person helps a tampered counter: it is reported by each run.
        return report.outcome is not RunOutcome.FAILED

    def _sweep(self, work: SweepSegment, deadline_ms: int) -> bool:
        rule = self.worker.rule_of(work.namespace)
        if rule is None:
            return True
        left = self.sweeper.sweep(work, rule, deadline_ms)
        if left is not None and not self.queue.send([left]):
            raise ServiceFailed(f"the rest of the sweep of {work.namespace!r} could not be queued")
        return True
