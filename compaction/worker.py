"""One counter at a time: is it due, compact it, leave the index as it has to be. I/O by others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from countledger.compaction.report import CompactionReport, RunOutcome
from countledger.ledger import keys
from countledger.ledger.due import DueRule
from countledger.ledger.errors import CountledgerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.compactor import Compactor
    from countledger.compaction.due import DueIndex
    from countledger.compaction.report import CompactionPlan, CompactionStep
    from countledger.compaction.schedule import Schedule
    from countledger.ledger.namespace import Namespaces

# After these a counter's place in the index is settled; after all others it stays due as it was, so
# that the next run goes on with it.
_COMPLETE: Final = frozenset({RunOutcome.MERGED, RunOutcome.NOTHING})


@dataclass(frozen=True, slots=True)
class Worker:
    """Compacts counters as their namespaces' schedules say; made anew for each batch of work.

    Attributes:
        index: the due index.
        namespaces: tell the horizon.
        schedule_of: the schedule of a namespace, or None.
        compactor_for: a compactor for a schedule; for None one by the defaults.
    """

    index: DueIndex
    namespaces: Namespaces
    schedule_of: Callable[[str], Schedule | None]
    compactor_for: Callable[[Schedule | None], Compactor]
    _compactors: dict[str, tuple[Schedule | None, Compactor]] = field(
        default_factory=dict, repr=False
    )

    def compact(
        self,
        counter: str,
        *,
        deadline_ms: int | None = None,
        on_step: Callable[[CompactionStep], None] = lambda _: None,
    ) -> CompactionReport:
        """Compact a counter, due or not, and settle its place in the index.

        What the compactor costs, and up to four units. Errors are values in the report: one
        counter's failure is no other's.
        """
        try:
            schedule, compactor = self._for(counter)
        except CountledgerError as error:
            return _failed(counter, error)
        report = compactor.compact(counter, deadline_ms=deadline_ms, on_step=on_step)
        if report.outcome in _COMPLETE and report.compacted is not None:
            try:
                rule = self._rule(schedule, compactor)
                self.index.settle(counter, report.compacted, rule)
            except CountledgerError as error:
                detail = f"{report.detail}; its place in the due index is not settled: {error}"
                return replace(report, outcome=RunOutcome.FAILED, detail=detail, error=error)
        return report

    def compact_if_due(
        self,
        counter: str,
        *,
        deadline_ms: int | None = None,
        on_step: Callable[[CompactionStep], None] = lambda _: None,
    ) -> CompactionReport | None:
        """Compact a counter unless it is due no more; then None, for a read unit."""
        try:
            if not self.index.is_due(keys.check_counter(counter)):
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
        return self._under(keys.namespace_of(keys.check_counter(counter)))

    def _under(self, namespace: str) -> tuple[Schedule | None, Compactor]:
        """The schedule of a namespace, read once, and a compactor for it."""
        if namespace not in self._compactors:
            schedule = self.schedule_of(namespace)
            self._compactors[namespace] = schedule, self.compactor_for(schedule)
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
