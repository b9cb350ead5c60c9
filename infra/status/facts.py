"""What is known of a stack at one moment, as values; and what CloudWatch adds to it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from countledger.consumers.audit import ForeignItems
from countledger.infra.deploy.account_limits import ServiceQuotas
from countledger.ledger.clock import SystemClock, to_datetime, to_ms
from countledger.ledger.errors import AccessDenied
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from countledger.compaction.report import LastRun
    from countledger.compaction.schedule import Schedule
    from countledger.infra.status.findings import StatusFinding
    from countledger.infra.status.gathering import RegionFact, SilentFact, WindowsFact
    from countledger.ledger.connection import Connection


@dataclass(frozen=True, slots=True)
class StackFact:
    """The stack as CloudFormation has it.

    Attributes:
        bundle: the key of the functions' code in its bucket, named by its content.
        pumped: the mappings, by their names in the template, whose work pumps on this machine do.
        http_url: the address of the HTTP API; empty: it is switched off.
    """

    name: str
    status: str
    reason: str
    changed_at_ms: int
    bundle: str
    pumped: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    http_url: str = ""


@dataclass(frozen=True, slots=True)
class MappingFact:
    """An event source mapping.

    Attributes:
        state: such as `Enabled`; `missing`, where Lambda knows it no more.
        played: whether a pump on this machine does its work, so that it has to be disabled.
    """

    name: str
    id: str
    state: str
    result: str
    played: bool = False


@dataclass(frozen=True, slots=True)
class QueueFact:
    """A queue, approximately; the age of its oldest message is as CloudWatch last measured."""

    name: str
    waiting: int
    in_flight: int
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AlarmFact:
    """An alarm, whose description says what it means and what to do."""

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
    """A schedule of compaction: its trigger is `enabled`, `disabled` or `missing`.

    Due counters are counted up to `due_max`.
    """

    schedule: Schedule
    state: str
    due: int
    due_max: int
    last: LastRun | None


@dataclass(frozen=True, slots=True)
class IteratorFact:
    """The greatest age of a record that a function was given in the last minutes.

    As CloudWatch measured; None: unknown, or nothing was read.
    """

    name: str
    age_ms: int | None


@dataclass(frozen=True, slots=True)
class QuarantinedFact:
    """What of one source waits in quarantine, also once its queue has forgotten it.

    Counting ends at `waiting_max`, and the oldest one is of those that were counted.
    """

    source: str
    waiting: int
    waiting_max: int
    oldest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of it.

    Attributes:
        stack: the stack; None: it could not be asked about.
        overdue_holds_ms: for how long the oldest expired hold could have been released; 0: none.
        silent: the rules on one counter that wait for its next crossing; None: nobody may look.
        foreign: the foreign items of `ledger` that the last complete audit found.
        unseen: what could not be read, and why.
    """

    at_ms: int
    stack: StackFact | None = None
    mappings: tuple[MappingFact, ...] = ()
    iterators: tuple[IteratorFact, ...] = ()
    queues: tuple[QueueFact, ...] = ()
    alarms: tuple[AlarmFact, ...] = ()
    region: RegionFact | None = None
    freshness: FreshnessFact | None = None
    schedules: tuple[ScheduleFact, ...] = ()
    windows: tuple[WindowsFact, ...] = ()
    quarantined: tuple[QuarantinedFact, ...] = ()
    overdue_holds_ms: int = 0
    silent: tuple[SilentFact, ...] | None = ()
    foreign: ForeignItems = field(default_factory=ForeignItems)
    quotas: ServiceQuotas = field(default_factory=ServiceQuotas)
    unseen: dict[str, str] = field(default_factory=dict)


# So many alarms are described at once.
_NAMES_MAX: Final = 100
# SQS and Lambda publish each minute, with some delay.
_BACK: Final = timedelta(minutes=15)
_PERIOD_S: Final = 60


def alarms_of(connection: Connection, names: Mapping[str, str]) -> tuple[AlarmFact, ...]:
    """The alarms of a stack, by their names in the template. One call for each hundred."""
    ours = {made: name for name, made in names.items()}
    asked = sorted(ours)
    found: list[AlarmFact] = []
    client = connection.metrics()
    for begin in range(0, len(asked), _NAMES_MAX):
        with translated("DescribeAlarms"):
            some = asked[begin : begin + _NAMES_MAX]
            answer = client.describe_alarms(AlarmNames=some, MaxRecords=_NAMES_MAX)
        found += [
            AlarmFact(
                ours[one["AlarmName"]],
                one["StateValue"],
                to_ms(one["StateUpdatedTimestamp"]),
                one.get("StateReason", ""),
                one.get("AlarmDescription", ""),
            )
            for one in answer["MetricAlarms"]
        ]
    return tuple(sorted(found, key=lambda one: one.name))


def measured(
    connection: Connection, queues: Mapping[str, str], functions: Mapping[str, str]
) -> tuple[dict[str, int], tuple[IteratorFact, ...]]:
    """The age of each queue's oldest message, and of what each function was last given.

    One call. IAM cannot bound who may read metrics, so the stack's policies do not allow it: where
    it is forbidden nothing is known, and the alarms on the same ages report them.
    """
    asked: list[tuple[str, dict[str, Any]]] = [
        (name, _metric("AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", _last(url)))
        for name, url in queues.items()
    ] + [
        (name, _metric("AWS/Lambda", "IteratorAge", "FunctionName", made))
        for name, made in functions.items()
    ]
    try:
        values = _latest(connection, [metric for _, metric in asked])
    except AccessDenied:
        values = [None] * len(asked)
    of = dict(zip((name for name, _ in asked), values, strict=True))
    ages_ms = {name: int(value * SECOND_MS) for name in queues if (value := of[name]) is not None}
    iterators = tuple(
        IteratorFact(name, None if (value := of[name]) is None else int(value))
        for name in functions
    )
    return ages_ms, iterators


def _metric(namespace: str, name: str, dimension: str, value: str) -> dict[str, Any]:
    return {
        "Namespace": namespace,
        "MetricName": name,
        "Dimensions": [{"Name": dimension, "Value": value}],
    }


def _latest(connection: Connection, metrics: list[dict[str, Any]]) -> list[float | None]:
    if not metrics:
        return []
    now = to_datetime(SystemClock().now_ms())
    stat = {"Period": _PERIOD_S, "Stat": "Maximum"}
    queries = [
        {"Id": f"m{number}", "MetricStat": {"Metric": metric, **stat}}
        for number, metric in enumerate(metrics)
    ]
    with translated("GetMetricData"):
        answer = connection.metrics().get_metric_data(
            MetricDataQueries=queries,
            StartTime=now - _BACK,
            EndTime=now + timedelta(seconds=_PERIOD_S),
            ScanBy="TimestampDescending",
        )
    by_id = {one["Id"]: one["Values"] for one in answer["MetricDataResults"]}
    return [next(iter(by_id.get(f"m{number}", ())), None) for number in range(len(metrics))]


def _last(url: str) -> str:
    return url.rpartition("/")[2]


# The state of a stack as one document for programs.


def document(facts: Facts, found: Sequence[StatusFinding]) -> dict[str, Any]:
    """The same for programs; times are ISO 8601 as everywhere, ages and counts are numbers."""
    texts = _times(asdict(facts))
    return {"healthy": not found, "findings": [asdict(one) for one in found], **texts}


def _times(value: Any) -> Any:  # noqa: ANN401 - any part of a document
    """Every `..._at_ms`, `..._since_ms` and `..._through_ms` as the moment that it is."""
    if isinstance(value, dict):
        return dict(_named(name, part) for name, part in value.items())
    if isinstance(value, list | tuple):
        return [_times(one) for one in value]
    return value


def _named(name: str, value: Any) -> tuple[str, Any]:  # noqa: ANN401 - any part of a document
    moment = name.removesuffix("_ms")
    if moment == name or not f"_{moment}".endswith(("_at", "_since", "_through")):
        return name, _times(value)
    return moment, None if value is None else to_datetime(value)
