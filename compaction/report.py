"""What runs report: each run its steps and its end, and the last run of each schedule."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, optional
from countledger.ledger.clock import Clock, SystemClock
from countledger.ledger.errors import CountledgerError
from countledger.ledger.operations import Add, Assign, Compare, Drop, Update

if TYPE_CHECKING:
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Clause

# A reason may quote an item; people read its beginning.
_TROUBLE_MAX: Final = 500
_SUMS: Final = ("counters", "merged", "write_units", "failed", "tampered")


class RunOutcome(StrEnum):
    """How a run ended."""

    MERGED = "merged"
    NOTHING = "nothing"
    WAITING = "waiting"
    STOPPED = "stopped"
    OVERTAKEN = "overtaken"
    TAMPERED = "tampered"
    FAILED = "failed"


class RunEnd(NamedTuple):
    """How a run ends, and why."""

    outcome: RunOutcome
    detail: str


class Verb(StrEnum):
    """What a run does, in this order, once for each generation."""

    AWAIT = "await"
    ARCHIVE = "archive"
    RETIRE = "retire"
    WAIT_UNTIL_DELETED = "wait until deleted"
    SELECT = "select"
    PUBLISH = "publish"


@dataclass(frozen=True, slots=True)
class CompactionStep:
    """A step that begins.

    Attributes:
        counter: of which counter.
        verb: what is done.
        generation: of the head that it works on.
        merged: how many entries this run has merged so far.
    """

    counter: str
    verb: Verb
    generation: int
    merged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """The result of one run over one counter.

    Attributes:
        counter: its name.
        outcome: `merged`: everything that was old enough; `nothing` was old enough; `waiting`:
            another region is late, the next run continues; `stopped` at the deadline; `overtaken`
            by another run; `tampered`: a merged entry was changed by hand; `failed`.
        merged: how many entries this run merged into the head.
        generations: how many heads it published, including the closing one.
        compacted: how many entries the head contains now; None if it was not read.
        write_units: consumed by the run in the home region; replication comes on top.
        read_units: consumed by the run in all regions.
        detail: one line for people.
        error: why it failed, or None.
    """

    counter: str
    outcome: RunOutcome
    merged: int = 0
    generations: int = 0
    compacted: int | None = None
    write_units: float = 0.0
    read_units: float = 0.0
    detail: str = ""
    error: CountledgerError | None = None


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a run would do now if no other region were late.

    Attributes:
        counter: its name.
        entries: how many it would merge.
        oldest_at_ms: when the oldest of them was made; None if there are none.
        newest_at_ms: when the newest of them was made; None if there are none.
        write_units: what it would consume in the home region.
        age_ms: the age that an entry must have to be merged; None: it was not determined.
    """

    counter: str
    entries: int
    oldest_at_ms: int | None
    newest_at_ms: int | None
    write_units: float
    age_ms: int | None = None


@dataclass(slots=True)
class WorkDone:
    """What workers did for a namespace.

    Attributes:
        counters: how many counters they processed.
        merged: how many entries they merged.
        write_units: what that consumed in the home region.
        failed: how many attempts failed.
        tampered: how many counters have a merged entry that was changed by hand.
        trouble: the last failed or tampered counter, with outcome and reason; empty if none.
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
    """Stores the last run of each schedule, one item per namespace in `counters`, for people.

    No other part reads it, so a failed write stops no work. The SDK may repeat a write that got no
    answer, so the sums are approximate. Two write units for each tick, one for each batch and
    namespace.

    Attributes:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        clock: the time.
    """

    dynamo: DynamoClient
    table: str
    clock: Clock = field(default_factory=SystemClock)

    def begin(self, namespace: str) -> int:
        """Replace the run before by a tick that begins now; its time identifies it in `end`."""
        now_ms = self.clock.now_ms()
        self._note(
            namespace,
            Assign("ticked_at", now_ms),
            *(Assign(name, 0) for name in _SUMS),
            *map(Drop, ("due", "sent", "worked_at", "trouble")),
        )
        return now_ms

    def end(self, namespace: str, ticked_at_ms: int, due: int, sent: int) -> None:
        """Note the end of a tick, unless another one has begun."""
        clauses = (Assign("due", due), Assign("sent", sent))
        self._note(namespace, *clauses, when=Compare("ticked_at", "=", ticked_at_ms))

    def add(self, namespace: str, work: WorkDone) -> None:
        """Add a worker's batch."""
        trouble = (Assign("trouble", work.trouble),) if work.trouble else ()
        sums = (Add(name, round(getattr(work, name))) for name in _SUMS)
        self._note(namespace, Assign("worked_at", self.clock.now_ms()), *trouble, *sums)

    def last(self, namespace: str) -> LastRun | None:
        """The last run, or None if no schedule ever ticked. Half a read unit.

        Raises:
            CorruptItem: the item cannot be read.
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
