"""The probe on the deployed stack, under its own policy."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from countledger.infra.local.stack import LocalStack
from countledger.probe import COUNTER, NAMESPACE
from tests.e2e.world import client_of, invoke, logged


@pytest.fixture(scope="module")
def probed() -> Iterator[LocalStack]:
    """A stack with IAM enforced and a probe, whose functions are traced."""
    parameters = {"Probe": "on", "Tracing": "on"}
    with LocalStack(name="countledger-probed", auth=True, parameters=parameters) as running:
        yield running


def test_a_minute_counts_once_and_is_measured(probed: LocalStack) -> None:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:00Z}"
    function = probed.outputs["ProbeFunctionName"]
    first, again = (invoke(probed, function, {"time": now}) for _ in range(2))

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
    metrics: list[dict[str, Any]] = []
    while len(metrics) < 2 and time.monotonic() < end:
        time.sleep(0.5)
        lines = logged(probed, "ProbeLogs", "ProbeFunction")
        metrics = [one for one in lines if "_aws" in one]

    assert len(metrics) >= 2
    assert {one["service"] for one in metrics} == {"countledger-probed-probe"}
    assert all(one["EmitToTotalSeconds"][0] < 30 for one in metrics)
