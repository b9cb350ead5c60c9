"""What CloudWatch knows of a stack: its alarms, and the ages that only it measures."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.status.facts import AlarmFact, IteratorFact
from countledger.ledger.clock import SystemClock, to_datetime, to_ms
from countledger.ledger.errors import AccessDenied
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.ledger.connection import Connection

# So many alarms are described at once.
_NAMES_MAX: Final = 100
# SQS and Lambda tell each minute, and the telling takes some.
_BACK: Final = timedelta(minutes=15)
_PERIOD_S: Final = 60


def alarms_of(connection: Connection, names: Mapping[str, str]) -> tuple[AlarmFact, ...]:
    """The alarms of a stack, by their names in the template. One call for each hundred.

    Args:
        connection: to the stack.
        names: name in the template -> name of the alarm.
    """
    ours = {made: name for name, made in names.items()}
    asked = sorted(ours)
    found: list[AlarmFact] = []
    client = connection.metrics()
    for begin in range(0, len(asked), _NAMES_MAX):
        with translated("DescribeAlarms"):
            answer = client.describe_alarms(
                AlarmNames=asked[begin : begin + _NAMES_MAX], MaxRecords=_NAMES_MAX
            )
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
    it is forbidden nothing is known, and the alarms on the same ages tell.

    Args:
        connection: to the stack.
        queues: name in the template -> URL.
        functions: name in the template -> name of the function.
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
    """The newest value of each metric, or None."""
    if not metrics:
        return []
    now = to_datetime(SystemClock().now_ms())
    queries = [
        {
            "Id": f"m{number}",
            "MetricStat": {"Metric": metric, "Period": _PERIOD_S, "Stat": "Maximum"},
        }
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
