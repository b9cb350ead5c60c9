"""The workers: compact counters one by one as their schedules say, and process queue messages.

A message that failed is delivered again, and finally moves to the dead-letter queue. A message
without time left is not: its counter is still due, so the schedule's next tick sends it again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from countledger.compaction.compactor import Compactor
from countledger.compaction.dispatcher import CompactCounter, WorkQueue, parse_work
from countledger.compaction.due import DueIndex, Sweeper
from countledger.compaction.report import CompactionReport, LastRunStore, RunOutcome, WorkDone
from countledger.compaction.schedule import stored_schedule
from countledger.ledger import keys
from countledger.ledger.errors import CountledgerError, ServiceFailed
from countledger.ledger.indexes import DueRule
from countledger.ledger.namespace import Namespaces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from countledger.compaction.due import SweepSegment
    from countledger.compaction.report import CompactionPlan, CompactionStep
    from countledger.compaction.schedule import Schedule
    from countledger.ledger.connection import Connection

# After these outcomes a counter is rescheduled; after all others it stays due as it was, so that
# the next run continues.
_COMPLETE: Final = frozenset({RunOutcome.MERGED, RunOutcome.NOTHING})


class Worker:
    """Compacts counters as their namespaces' schedules say; new for each batch of work."""

    def __init__(
        self,
        connection: Connection,
        *,
        archive_as_found: bool = False,
        compactor_for: Callable[[Schedule | None], Compactor] | None = None,
    ) -> None:
        """In a process of the home region.

        Args:
            connection: to the stack.
            archive_as_found: as `Compactor.archive_as_found`.
            compactor_for: a compactor for a schedule, or for None; None: as the schedule says.

        Raises:
            WrongRegion: this is not the home region.
        """
        connection.refuse_elsewhere("entries are merged")
        self.connection, self.index = connection, DueIndex(connection)
        self.namespaces = Namespaces(connection)
        of_schedule = partial(Compactor.of_schedule, connection, archive_as_found=archive_as_found)
        self._compactor_for = compactor_for or of_schedule
        self._compactors: dict[str, tuple[Schedule | None, Compactor]] = {}

    def compact(
        self,
        counter: str,
        *,
        deadline_ms: int | None = None,
        on_step: Callable[[CompactionStep], None] = lambda _: None,
    ) -> CompactionReport:
        """Compact a counter, due or not, and reschedule it in the due index.

        What the compactor costs, and up to four units. Errors are values in the report: the failure
        of one counter stops no other.
        """
        try:
            schedule, compactor = self._for(counter)
        except CountledgerError as error:
            return _failed(counter, error)
        report = compactor.compact(counter, deadline_ms=deadline_ms, on_step=on_step)
        if report.outcome in _COMPLETE and report.compacted is not None:
            try:
                rule = self._rule(schedule, compactor)
                self.index.reschedule(counter, report.compacted, rule)
            except CountledgerError as error:
                detail = f"{report.detail}; not rescheduled in the due index: {error}"
                return replace(report, outcome=RunOutcome.FAILED, detail=detail, error=error)
        return report

    def compact_if_due(
        self,
        counter: str,
        *,
        deadline_ms: int | None = None,
        on_step: Callable[[CompactionStep], None] = lambda _: None,
    ) -> CompactionReport | None:
        """Compact a counter if it is still due; else return None, for one read unit."""
        try:
            counter = keys.check_counter(counter)
            if not self.index.is_due(counter):
                return None
        except CountledgerError as error:
            return _failed(counter, error)
        return self.compact(counter, deadline_ms=deadline_ms, on_step=on_step)

    def rule_of(self, namespace: str) -> DueRule | None:
        """When counters of a namespace are worth a run; None: it has no schedule."""
        return self._rule(*self._under(namespace))

    def plan(self, counter: str) -> CompactionPlan:
        """What compacting a counter would do now; nothing is written.

        Raises:
            As `Compactor.plan`.
        """
        return self._for(counter)[1].plan(counter)

    def _for(self, counter: str) -> tuple[Schedule | None, Compactor]:
        counter = keys.check_counter(counter)
        return self._under(keys.namespace_of(counter))

    def _under(self, namespace: str) -> tuple[Schedule | None, Compactor]:
        if namespace not in self._compactors:
            schedule = stored_schedule(self.connection, namespace)
            self._compactors[namespace] = schedule, self._compactor_for(schedule)
        return self._compactors[namespace]

    def _rule(self, schedule: Schedule | None, compactor: Compactor) -> DueRule | None:
        if schedule is None:
            return None
        limit = compactor.limit(self.namespaces.get(schedule.namespace))
        return DueRule(schedule.min_entries, limit.age_ms)


def _failed(counter: str, error: CountledgerError) -> CompactionReport:
    return CompactionReport(
        counter=counter, outcome=RunOutcome.FAILED, detail=str(error), error=error
    )


@dataclass(slots=True)
class BatchResult:
    """The result of a batch of messages.

    Attributes:
        write_units: what that consumed in the home region.
        left: for how many counters no time was left.
        again: the ids of the messages that must be delivered again.
        bad: messages that failed, but not by their counter's failure, with the reason.
    """

    outcomes: Counter[RunOutcome] = field(default_factory=Counter)
    merged: int = 0
    write_units: float = 0.0
    not_due: int = 0
    left: int = 0
    again: list[str] = field(default_factory=list)
    bad: dict[str, str] = field(default_factory=dict)
    work: dict[str, WorkDone] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        return self.outcomes[RunOutcome.FAILED] + len(self.bad)

    @property
    def tampered(self) -> int:
        return self.outcomes[RunOutcome.TAMPERED]


class WorkBatch:
    """Processes batches of messages until the deadline, in the home region."""

    def __init__(
        self,
        connection: Connection,
        note: Callable[[CompactionReport], None],
        worker: Worker | None = None,
        queue: WorkQueue | None = None,
        *,
        page_size: int | None = None,
    ) -> None:
        self.connection, self.note = connection, note
        self.worker = worker or Worker(connection)
        self.queue = queue or WorkQueue(connection)
        self.sweeper = Sweeper(connection, page_size)

    def run(self, messages: Mapping[str, str], deadline_ms: int) -> BatchResult:
        """Process messages, by their ids; a write unit for each namespace, for its last run."""
        result = BatchResult()
        for message, body in messages.items():
            try:
                work = parse_work(body)
                if isinstance(work, CompactCounter):
                    good = self._compact(work.counter, deadline_ms, result)
                else:
                    good = self._sweep(work, deadline_ms)
            except CountledgerError as error:
                result.bad[message] = str(error)
                good = False
            if not good:
                result.again.append(message)
        last_runs = LastRunStore(self.connection)
        for namespace, done in result.work.items():
            last_runs.add(namespace, done)
        return result

    def _compact(self, counter: str, deadline_ms: int, result: BatchResult) -> bool:
        """Whether the message need not be delivered again."""
        if self.connection.clock.now_ms() >= deadline_ms:
            result.left += 1
            return True
        report = self.worker.compact_if_due(counter, deadline_ms=deadline_ms)
        if report is None:
            result.not_due += 1
            return True
        self.note(report)
        result.work.setdefault(keys.namespace_of(counter), WorkDone()).take(report)
        result.outcomes[report.outcome] += 1
        result.merged += report.merged
        result.write_units += report.write_units
        # Repeating does not help a tampered counter: each run reports it.
        return report.outcome is not RunOutcome.FAILED

    def _sweep(self, work: SweepSegment, deadline_ms: int) -> bool:
        rule = self.worker.rule_of(work.namespace)
        if rule is None:
            return True
        left = self.sweeper.sweep(work, rule, deadline_ms)
        if left is not None and not self.queue.send([left]):
            raise ServiceFailed(f"the rest of the sweep of {work.namespace!r} could not be queued")
        return True
