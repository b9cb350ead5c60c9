"""Verify, repair and the scheduled audit on the deployed stack, each under its own policy."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from countledger import CountLedger
from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command
from tests.e2e.world import alter_total, client_of, invoke, logged


@pytest.fixture(scope="module")
def audited() -> Iterator[LocalStack]:
    """A stack with IAM enforced whose audit is on, and repairs."""
    parameters = {"AuditSchedule": "rate(1 day)", "AuditMode": "repair"}
    with LocalStack(name="countledger-audit", auth=True, parameters=parameters) as running:
        yield running


def _recorded(stack: LocalStack, counter: str, *deltas: int) -> CountLedger:
    everything = client_of(stack)
    for delta in deltas:
        everything.record(counter, delta)
    stack.pump.drain()
    return everything


def _lose(stack: LocalStack, counter: str) -> None:
    stack.client("dynamodb").delete_item(
        TableName=stack.outputs["CountersTableName"],
        Key={"counter": {"S": counter}, "part": {"S": "total"}},
    )


def test_the_command_line_repairs_all(stack: LocalStack, counter: str, tmp_path: Path) -> None:
    command = Command(stack.environment())
    lost = f"{counter}/lost"
    _recorded(stack, counter, 5)
    _recorded(stack, lost, 7)
    alter_total(stack, counter, 1)
    _lose(stack, lost)
    resume = ("--all", "--segments", "3", "--resume", str(tmp_path / "place.json"), "--json")

    found = command("verify", *resume)
    planned = command("repair", *resume, "--dry-run")
    done = command("repair", *resume)
    after = command("verify", *resume)

    assert [found.code, planned.code, done.code, after.code] == [1, 1, 0, 0]
    assert _listed(found.json["items"], "verdict") >= {(counter, "drift"), (lost, "drift")}
    assert _listed(planned.json["items"], "remedy") >= {
        (counter, "would repair"),
        (lost, "would make"),
    }
    assert _listed(done.json["items"], "remedy") >= {(counter, "repaired"), (lost, "made")}
    assert after.json["items"] == []
    assert after.json["counts"]["exact"] >= 2
    assert list(tmp_path.iterdir()) == []


def _listed(rows: list[dict[str, Any]], name: str) -> set[tuple[str, str]]:
    return {(row["counter"], row[name]) for row in rows}


def test_a_file_of_another_walk_is_refused(stack: LocalStack, tmp_path: Path) -> None:
    """Going on with it would leave counters out."""
    (tmp_path / "place.json").write_text('{"format": 1, "purpose": "x", "lanes": [], "counts": {}}')

    done = Command(stack.environment())("verify", "--all", "--resume", str(tmp_path / "place.json"))

    assert done.code == 2
    assert "belongs to 'x'" in done.err


def test_the_scheduled_audit_repairs_and_tells(audited: LocalStack, counter: str) -> None:
    everything = _recorded(audited, counter, 5)
    alter_total(audited, counter, 1)
    schedules = audited.client("scheduler").list_schedules()["Schedules"]
    (timer,) = [one for one in schedules if "Audit" in one["Name"]]
    target = audited.client("scheduler").get_schedule(
        Name=timer["Name"], GroupName=timer["GroupName"]
    )["Target"]

    first, second = (invoke(audited, target["Arn"], json.loads(target["Input"])) for _ in range(2))

    assert first["compared"] == {"drift": 1}
    assert second["compared"] == {"exact": 1}
    assert first["done"] is second["done"] is True
    assert everything.total(counter).value == 5
    metrics = _metrics(audited, target["Arn"])
    assert [one["DriftedCounters"] for one in metrics] == [[1], [0]]
    assert [one["RepairedCounters"] for one in metrics] == [[1], [0]]
    assert {one["service"] for one in metrics} == {"countledger-audit-audit"}


def _metrics(stack: LocalStack, function: str) -> list[dict[str, Any]]:
    """The lines of the embedded metric format in the function's log, in order."""
    lines = logged(stack, function.rpartition(":")[2], "AuditLogs")
    metrics = [line for line in lines if "_aws" in line]
    return sorted(metrics, key=lambda line: line["_aws"]["Timestamp"])
