"""What is known of a stack at one moment. Values only: who gathered them stands elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from countledger.compaction.report import LastRun
    from countledger.compaction.schedule import Schedule


@dataclass(frozen=True, slots=True)
class StackFact:
    """The stack as CloudFormation has it.

    Attributes:
        name: of the stack.
        status: such as `UPDATE_COMPLETE`.
        reason: why, where CloudFormation says so; else empty.
        changed_at_ms: when it was last changed, ms since the epoch.
        bundle: the key of the functions' code in its bucket, named by its content.
        pumped: the mappings, by their names in the template, whose work pumps on this machine do.
    """

    name: str
    status: str
    reason: str
    changed_at_ms: int
    bundle: str
    pumped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MappingFact:
    """An event source mapping.

    Attributes:
        name: in the template, as `MaterializerMapping`.
        id: its UUID.
        state: such as `Enabled`; `missing`, where Lambda knows it no more.
        result: of its last poll, as Lambda says it.
        played: whether a pump on this machine does its work, so that it has to be disabled.
    """

    name: str
    id: str
    state: str
    result: str
    played: bool = False


@dataclass(frozen=True, slots=True)
class QueueFact:
    """A queue.

    Attributes:
        name: in the template, as `Quarantine`.
        waiting: about how many messages nobody has taken.
        in_flight: about how many somebody is working on.
        oldest_ms: how old the oldest message is, as CloudWatch last measured; None: unknown.
    """

    name: str
    waiting: int
    in_flight: int
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AlarmFact:
    """An alarm.

    Attributes:
        name: in the template, as `LagAlarm`.
        state: `OK`, `ALARM` or `INSUFFICIENT_DATA`.
        since_ms: since when, ms since the epoch.
        reason: why, as CloudWatch says it.
        description: what it means and what to do.
    """

    name: str
    state: str
    since_ms: int
    reason: str
    description: str


@dataclass(frozen=True, slots=True)
class FreshnessFact:
    """How far the totals are.

    Attributes:
        handled_through_ms: up to when the slowest shard has been handled; None: nothing was.
        waiting_since_ms: when the stream made the oldest change that no total has; None: all have.
        idle: how many open shards never had a change.
    """

    handled_through_ms: int | None
    waiting_since_ms: int | None
    idle: int


@dataclass(frozen=True, slots=True)
class ScheduleFact:
    """A schedule of compaction.

    Attributes:
        schedule: as it was made.
        state: of its trigger: `enabled`, `disabled` or `missing`.
        due: how many counters are due now, counted up to `due_max`.
        due_max: where counting ended.
        last: its last run; None: it never ran.
    """

    schedule: Schedule
    state: str
    due: int
    due_max: int
    last: LastRun | None


@dataclass(frozen=True, slots=True)
class IteratorFact:
    """How old the last record was that a function was given, as CloudWatch measured.

    Attributes:
        name: of the function in the template.
        age_ms: the greatest age of the last minutes; None: unknown, or nothing was read.
    """

    name: str
    age_ms: int | None


@dataclass(frozen=True, slots=True)
class QuarantinedFact:
    """What of one source waits in quarantine, also once its queue has forgotten it.

    Attributes:
        source: `ledger`, `counters` or `kinesis`.
        waiting: how many records, counted up to `waiting_max`.
        waiting_max: where counting ended.
        oldest_ms: the age of the oldest of those.
    """

    source: str
    waiting: int
    waiting_max: int
    oldest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of it.

    Attributes:
        at_ms: when it was gathered, ms since the epoch.
        stack: the stack; None: it could not be asked about.
        unseen: what could not be looked at, and why.
    """

    at_ms: int
    stack: StackFact | None = None
    mappings: tuple[MappingFact, ...] = ()
    iterators: tuple[IteratorFact, ...] = ()
    queues: tuple[QueueFact, ...] = ()
    alarms: tuple[AlarmFact, ...] = ()
    freshness: FreshnessFact | None = None
    schedules: tuple[ScheduleFact, ...] = ()
    quarantined: tuple[QuarantinedFact, ...] = ()
    unseen: dict[str, str] = field(default_factory=dict)
