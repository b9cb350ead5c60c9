"""The probe on the deployed stack, under its own policy."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from countledger.infra.local.stack import LocalStack
from countledger.probe import COUNTER, NAMESPACE
from tests.e2e.world import client_of


@pytest.fixture(scope="module")
def probed() -> Iterator[LocalStack]:
    """A stack with IAM enforced and a probe, whose functions are traced."""
    parameters = {"Probe": "on", "Tracing": "on"}
    with LocalStack(name="countledger-probed", auth=True, parameters=parameters) as running:
        yield running


def _invoke(stack: LocalStack, at: datetime) -> dict[str, Any]:
    answer = stack.client("lambda").invoke(
        FunctionName=stack.outputs["ProbeFunctionName"],
        Payload=json.dumps({"time": at.strftime("%Y-%m-%dT%H:%M:%SZ")}),
    )
    content = answer["Payload"].read()
    assert "FunctionError" not in answer, content
    result: dict[str, Any] = json.loads(content)
    return result


def test_a_minute_counts_once_and_is_measured(probed: LocalStack) -> None:
    now = datetime.now(UTC).replace(second=0)
    first = _invoke(probed, now)
    again = _invoke(probed, now)

    assert first["recorded"]
    assert first["missing"] == 0
    assert 0 < first["lag_ms"] < 30_000
    assert (again["recorded"], again["lag_ms"]) == (False, None)
    client = client_of(probed)
    entries = client.total(COUNTER).entries
    assert entries == client.exact(COUNTER).entries
    assert client.namespaces.get(NAMESPACE).horizon_ms == 3_600_000


def test_every_function_is_traced_on_request(probed: LocalStack) -> None:
    """The engine keeps the setting and records no traces."""
    functions = probed.client("lambda").list_functions()["Functions"]

    assert {one["TracingConfig"]["Mode"] for one in functions} == {"Active"}


def test_the_schedule_runs_it_and_the_metric_is_the_alarms(probed: LocalStack) -> None:
    """Its first tick comes a minute after the deployment, with the time in its input."""
    end = time.monotonic() + 120
    logs = probed.client("logs")
    (group,) = [
        one["logGroupName"]
        for one in logs.describe_log_groups()["logGroups"]
        if "ProbeLogs" in one["logGroupName"] or "ProbeFunction" in one["logGroupName"]
    ][:1]
    metrics: list[dict[str, Any]] = []
    while len(metrics) < 2 and time.monotonic() < end:
        time.sleep(0.5)
        lines = [one["message"] for one in logs.filter_log_events(logGroupName=group)["events"]]
        metrics = [json.loads(one) for one in lines if "_aws" in one]

    assert len(metrics) >= 2
    assert {one["service"] for one in metrics} == {"countledger-probed-probe"}
    assert all(one["EmitToTotalSeconds"][0] < 30 for one in metrics)
