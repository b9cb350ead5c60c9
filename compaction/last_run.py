"""The run book: what the last run of a namespace's schedule came to, for people to see.

One item per namespace in `counters`. Nothing rests on it, so a note that fails keeps nobody from
working. The SDK may repeat a write whose answer was lost: the sums are about right, not exact.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.compaction.report import RunOutcome
from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, optional
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import CountledgerError
from countledger.ledger.expressions import Add, Assign, Compare, Drop
from countledger.ledger.operations import Update

if TYPE_CHECKING:
    from countledger.compaction.report import CompactionReport
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.expressions import Clause

# A reason may quote an item: what people read of it is its beginning.
_TROUBLE_MAX: Final = 500
_SUMS: Final = ("counters", "merged", "write_units", "failed", "tampered")


@dataclass(slots=True)
class WorkDone:
    """What workers did for a namespace.

    Attributes:
        counters: how many counters they looked at.
        merged: how many entries they merged.
        write_units: what that consumed, in the home region.
        failed: how many attempts failed.
        tampered: how many counters carried a merged entry that was changed by hand.
        trouble: the last of those, its outcome and why; empty: all went well.
    """

    counters: int = 0
    merged: int = 0
    write_units: float = 0.0
    failed: int = 0
    tampered: int = 0
    trouble: str = ""

    def take(self, report: CompactionReport) -> None:
        """Add the report of one counter."""
        self.counters += 1
        self.merged += report.merged
        self.write_units += report.write_units
        self.failed += report.outcome is RunOutcome.FAILED
        self.tampered += report.outcome is RunOutcome.TAMPERED
        if report.outcome in {RunOutcome.FAILED, RunOutcome.TAMPERED}:
            text = f"{report.counter}: {report.outcome}: {report.detail}"
            self.trouble = text[:_TROUBLE_MAX]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    """The last run of a namespace's schedule.

    Attributes:
        namespace: whose counters.
        ticked_at_ms: when the schedule's tick began, ms since the epoch.
        due: how many due counters it found; None: it has not ended.
        sent: how many of them it sent to the workers.
        worked_at_ms: when a worker last reported for this namespace; None: none has since.
        work: what the workers did since the tick.
    """

    namespace: str
    ticked_at_ms: int
    due: int | None
    sent: int | None
    worked_at_ms: int | None
    work: WorkDone


@dataclass(frozen=True, slots=True)
class LastRunStore:
    """Keeps the last runs; two write units for each tick, one for each batch and namespace.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        clock: tells the time.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)

    def begin(self, namespace: str) -> int:
        """A tick begins: what was noted of the one before is over. Its time, by which it ends."""
        now_ms = self.clock.now_ms()
        self._note(
            namespace,
            Assign("ticked_at", now_ms),
            *(Assign(name, 0) for name in _SUMS),
            *map(Drop, ("due", "sent", "worked_at", "trouble")),
        )
        return now_ms

    def end(self, namespace: str, ticked_at_ms: int, due: int, sent: int) -> None:
        """A tick ended; nothing is noted of one that another has followed."""
        clauses = (Assign("due", due), Assign("sent", sent))
        self._note(namespace, *clauses, when=Compare("ticked_at", "=", ticked_at_ms))

    def add(self, namespace: str, work: WorkDone) -> None:
        """A worker's batch is done."""
        trouble = (Assign("trouble", work.trouble),) if work.trouble else ()
        sums = (Add(name, round(getattr(work, name))) for name in _SUMS)
        self._note(namespace, Assign("worked_at", self.clock.now_ms()), *trouble, *sums)

    def last(self, namespace: str) -> LastRun | None:
        """The last run, or None where no schedule ever ticked. Half a read unit.

        Raises:
            CorruptItem: the item was corrupt by hand.
        """
        item = self.dynamo.get(self.table, keys.run_key(namespace))
        return None if item is None or "ticked_at" not in item else _decode(namespace, item)

    def _note(self, namespace: str, *clauses: Clause, when: Compare | None = None) -> None:
        with suppress(CountledgerError):
            self.dynamo.update(Update(self.table, keys.run_key(namespace), clauses, when))


def _decode(namespace: str, item: Item) -> LastRun:
    check_format(item)
    sums = {name: optional(item, name, int) or 0 for name in _SUMS}
    return LastRun(
        namespace=namespace,
        ticked_at_ms=optional(item, "ticked_at", int) or 0,
        due=optional(item, "due", int),
        sent=optional(item, "sent", int),
        worked_at_ms=optional(item, "worked_at", int),
        work=WorkDone(**sums, trouble=optional(item, "trouble", str) or ""),
    )
