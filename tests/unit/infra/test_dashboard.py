"""Dashboard and alarms look at metrics that there are: emitted by our code, or by their service."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from countledger.infra.template import load_template
from tests.unit.infra.metric_math import listed

ROOT = Path(__file__).parents[3]
RESOURCES: dict[str, Any] = load_template()["Resources"]
BODY, NAMES = RESOURCES["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
WIDGETS: list[dict[str, Any]] = json.loads(BODY)["widgets"]
METRICS: list[list[Any]] = [one for w in WIDGETS for one in w["properties"]["metrics"]]
OURS = [one for one in METRICS if one[0] == "countledger"]
THEIRS = [one for one in METRICS if one[0] != "countledger"]
ALARMS = {
    name: one["Properties"]
    for name, one in RESOURCES.items()
    if one["Type"] == "AWS::CloudWatch::Alarm"
}
# What the services' own documentation lists, with the dimension and what it names.
LAMBDA = {"Errors", "Invocations", "IteratorAge", "Throttles"}
POLLING = {"FailedInvokeEventCount", "FilteredOutEventCount", "PolledEventCount"}
TABLE = {
    "ConsumedReadCapacityUnits",
    "ConsumedWriteCapacityUnits",
    "ReplicationLatency",
    "WriteThrottleEvents",
}
BACKUPS = {
    "NumberOfBackupJobsAborted",
    "NumberOfBackupJobsExpired",
    "NumberOfBackupJobsFailed",
    "NumberOfCopyJobsFailed",
}
GATEWAY = {"4xx", "5xx", "Count", "Latency"}
SERVICES = {
    ("AWS/ApiGateway", "ApiId"): (GATEWAY, "AWS::ApiGatewayV2::Api"),
    ("AWS/Backup", "BackupVaultName"): (BACKUPS, "AWS::Backup::BackupVault"),
    ("AWS/Lambda", "FunctionName"): (LAMBDA, "AWS::Lambda::Function"),
    ("AWS/Lambda", "EventSourceMappingUUID"): (POLLING, "AWS::Lambda::EventSourceMapping"),
    ("AWS/SQS", "QueueName"): (
        {"ApproximateAgeOfOldestMessage", "ApproximateNumberOfMessagesVisible"},
        "AWS::SQS::Queue",
    ),
    ("AWS/DynamoDB", "TableName"): (TABLE, "AWS::DynamoDB::GlobalTable"),
    ("AWS/Kinesis", "StreamName"): ({"IncomingRecords"}, "AWS::Kinesis::Stream"),
    ("AWS/Scheduler", "ScheduleGroup"): (
        {"InvocationDroppedCount", "TargetErrorCount"},
        "AWS::Scheduler::ScheduleGroup",
    ),
}


def watched(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    """The metrics of an alarm: its own, or those of its expression."""
    if "Metrics" not in alarm:
        return [alarm]
    return [one["MetricStat"]["Metric"] for one in listed(alarm) if "MetricStat" in one]


def referred(value: dict[str, Any]) -> str:
    """The resource that a value names, also where its stack may be without it."""
    ((function, found),) = value.items()
    if function == "Fn::If":
        return referred(found[1])
    return str(found if isinstance(found, str) else found[0])


def emitted_by(service: str) -> set[str]:
    """The metrics that the function of a service adds, as its handler's source says."""
    for one in RESOURCES.values():
        properties = one["Properties"]
        variables = properties.get("Environment", {}).get("Variables", {})
        if variables.get("POWERTOOLS_SERVICE_NAME") == {"Fn::Sub": service}:
            assert variables["POWERTOOLS_METRICS_NAMESPACE"] == "countledger"
            module = properties["Handler"].rpartition(".")[0].removeprefix("countledger.")
            source = (ROOT / f"countledger/{module.replace('.', '/')}.py").read_text()
            named = set(re.findall(r'add_metric\(\s*"(\w+)"', source))
            if "for name, value in numbers.items():" in source:
                named |= set(re.findall(r'^        "(\w+)": tally\.', source, re.MULTILINE))
            return named
    raise AssertionError(f"no function has the service {service}")


@pytest.mark.parametrize("metric", OURS, ids=lambda one: f"{one[1]}-{one[3][18:]}")
def test_our_metrics_are_emitted_where_the_dashboard_looks(metric: list[Any]) -> None:
    _, name, dimension, service, _ = metric

    assert dimension == "service"
    assert name in emitted_by(service)


@pytest.mark.parametrize("metric", THEIRS, ids=lambda one: f"{one[1]}-{one[3]}")
def test_the_services_metrics_are_those_of_our_resources(metric: list[Any]) -> None:
    namespace, name, dimension, value, _ = metric
    names, kind = SERVICES[namespace, dimension]
    found = re.fullmatch(r"\$\{(\w+)(?:\.\w+)?\}", value)
    assert found is not None
    logical = found[1]
    if logical in NAMES:
        logical = referred(NAMES[logical])

    assert name in names
    assert RESOURCES[logical]["Type"] == kind


@pytest.mark.parametrize("name", ALARMS)
def test_an_alarm_watches_what_there_is(name: str) -> None:
    """One that looks elsewhere never goes off, and nobody hears of it."""
    for metric in watched(ALARMS[name]):
        dimension, *index = metric["Dimensions"]
        if metric["Namespace"] == "countledger":
            assert dimension["Name"] == "service"
            assert metric["MetricName"] in emitted_by(dimension["Value"]["Fn::Sub"])
            continue
        names, kind = SERVICES[metric["Namespace"], dimension["Name"]]
        table = RESOURCES[referred(dimension["Value"])]
        assert metric["MetricName"] in names
        assert table["Type"] == kind
        if metric["MetricName"] == "ReplicationLatency":
            (receiver,) = index
            assert receiver["Name"] == "ReceivingRegion"
            assert "ReplicaRegions" in str(receiver["Value"])
            continue
        for one in index:
            assert one["Name"] == "GlobalSecondaryIndexName"
            indexes = table["Properties"]["GlobalSecondaryIndexes"]
            assert one["Value"] in {found["IndexName"] for found in indexes}


def test_every_function_that_emits_is_on_the_dashboard() -> None:
    services = {
        one["Properties"]["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]["Fn::Sub"]
        for name, one in RESOURCES.items()
        # The gateway measures what this one does.
        if one["Type"] == "AWS::Lambda::Function" and name != "HttpFunction"
    }

    assert services == {metric[3] for metric in OURS}


def test_widgets_lie_side_by_side() -> None:
    taken: set[tuple[int, int]] = set()
    for one in WIDGETS:
        cells = {
            (x, y)
            for x in range(one["x"], one["x"] + one["width"])
            for y in range(one["y"], one["y"] + one["height"])
        }
        assert not cells & taken
        assert all(x < 24 for x, _ in cells)
        taken |= cells
