"""Verify, repair and the scheduled audit on the deployed stack, each under its own policy."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from countledger import CountLedger, Judgement, Remedy, Settings
from countledger.infra.local.stack import LocalStack
from countledger.ledger.errors import AccessDenied
from tests.e2e.command import Command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def audited() -> Iterator[LocalStack]:
    """A stack with IAM enforced whose audit is on, and repairs."""
    parameters = {"AuditSchedule": "rate(1 day)", "AuditMode": "repair"}
    with LocalStack(name="countledger-audit", auth=True, parameters=parameters) as running:
        yield running


@pytest.fixture
def counter() -> str:
    """A counter of this test alone."""
    return f"audit:{uuid.uuid4().hex}"


def _actor(stack: LocalStack, policy: str) -> CountLedger:
    session = stack.session(stack.credentials_for(policy))
    return CountLedger(Settings(stack_name=stack.name), session=session, endpoint_url=stack.url)


def _recorded(stack: LocalStack, counter: str, *deltas: int) -> CountLedger:
    everything = CountLedger(
        Settings(stack_name=stack.name), session=stack.session(), endpoint_url=stack.url
    )
    for delta in deltas:
        everything.record(counter, delta)
    stack.pump.drain()
    return everything


def _alter(stack: LocalStack, counter: str, amount: int) -> None:
    """Change a total behind the materializer's back."""
    stack.client("dynamodb").update_item(
        TableName=stack.outputs["CountersTableName"],
        Key={"counter": {"S": counter}, "part": {"S": "total"}},
        UpdateExpression="ADD #t :a",
        ExpressionAttributeNames={"#t": "total"},
        ExpressionAttributeValues={":a": {"N": str(amount)}},
    )


def _lose(stack: LocalStack, counter: str) -> None:
    stack.client("dynamodb").delete_item(
        TableName=stack.outputs["CountersTableName"],
        Key={"counter": {"S": counter}, "part": {"S": "total"}},
    )


def test_an_operator_repairs_and_redelivery_doubles_nothing(
    auth_stack: LocalStack, counter: str
) -> None:
    """Under the operators' policy; a second reader of the whole stream finds all of it applied."""
    everything = _recorded(auth_stack, counter, 5, 7)
    operator = _actor(auth_stack, "OperatePolicyArn")
    _alter(auth_stack, counter, 3)

    assert operator.audit.repair(counter, dry_run=True).remedy is Remedy.WOULD_REPAIR
    assert everything.total(counter).total == 15
    assert operator.audit.repair(counter).remedy is Remedy.REPAIRED
    assert everything.total(counter).total == 12

    _lose(auth_stack, counter)
    assert operator.audit.repair(counter).remedy is Remedy.MADE
    auth_stack.new_pump().drain()

    assert everything.total(counter).total == 12
    assert operator.audit.verify(counter).verdict is Judgement.EXACT
    _alter(auth_stack, counter, 1)
    with pytest.raises(AccessDenied):
        _actor(auth_stack, "ReadPolicyArn").audit.repair(counter)
    operator.audit.repair(counter)


def test_the_command_line_repairs_all(stack: LocalStack, counter: str, tmp_path: Path) -> None:
    """Dry run, repair, verify: exit 1 while something is wrong, and a file to go on from."""
    command = Command(stack.environment())
    lost = f"{counter}/lost"
    _recorded(stack, counter, 5)
    _recorded(stack, lost, 7)
    _alter(stack, counter, 1)
    _lose(stack, lost)
    resume = ("--all", "--segments", "3", "--resume", str(tmp_path / "place.json"), "--json")

    found = command("verify", *resume)
    planned = command("repair", *resume, "--dry-run")
    done = command("repair", *resume)
    after = command("verify", *resume)

    assert [found.code, planned.code, done.code, after.code] == [1, 1, 0, 0]
    assert _listed(found.json["verdicts"], "verdict") >= {(counter, "drift"), (lost, "drift")}
    assert _listed(planned.json["repairs"], "remedy") >= {
        (counter, "would repair"),
        (lost, "would make"),
    }
    assert _listed(done.json["repairs"], "remedy") >= {(counter, "repaired"), (lost, "made")}
    assert after.json["verdicts"] == []
    assert after.json["counts"]["exact"] >= 2
    assert list(tmp_path.iterdir()) == []


def _listed(rows: list[dict[str, Any]], name: str) -> set[tuple[str, str]]:
    return {(row["counter"], row[name]) for row in rows}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["repair"], "give counters, or --all"),
        (["repair", "a:b", "--all"], "give counters, or --all"),
        (["repair", "a:b", "--resume", "x"], "--resume goes with --all"),
        (["verify", "--all", "--segments", "65"], "segments"),
        (["repair", "a#b"], "'#'"),
    ],
    ids=str,
)
def test_bad_usage_is_one_line(stack: LocalStack, arguments: list[str], says: str) -> None:
    """Exit 2 before anything is read."""
    done = Command(stack.environment())(*arguments)

    assert done.code == 2
    assert says in done.err
    assert "Traceback" not in done.err


def test_a_file_of_another_walk_is_refused(stack: LocalStack, tmp_path: Path) -> None:
    """Going on with it would leave counters out."""
    (tmp_path / "place.json").write_text('{"format": 1, "purpose": "x", "lanes": [], "counts": {}}')

    done = Command(stack.environment())("verify", "--all", "--resume", str(tmp_path / "place.json"))

    assert done.code == 2
    assert "belongs to 'x'" in done.err


def test_the_scheduled_audit_repairs_and_tells(audited: LocalStack, counter: str) -> None:
    """Under its own role, with the input of its schedule; the drift is in its metric."""
    everything = _recorded(audited, counter, 5)
    _alter(audited, counter, 1)
    schedules = audited.client("scheduler").list_schedules()["Schedules"]
    (timer,) = [one for one in schedules if "Audit" in one["Name"]]
    target = audited.client("scheduler").get_schedule(Name=timer["Name"])["Target"]

    first = _invoke(audited, target)
    second = _invoke(audited, target)

    assert first["compared"] == {"drift": 1}
    assert second["compared"] == {"exact": 1}
    assert first["done"] is second["done"] is True
    assert everything.total(counter).total == 5
    metrics = _metrics(audited, target["Arn"])
    assert [one["DriftedCounters"] for one in metrics] == [[1], [0]]
    assert [one["RepairedCounters"] for one in metrics] == [[1], [0]]
    assert {one["service"] for one in metrics} == {"countledger-audit-audit"}


def _invoke(stack: LocalStack, target: dict[str, Any]) -> dict[str, Any]:
    answer = stack.client("lambda").invoke(FunctionName=target["Arn"], Payload=target["Input"])
    content = answer["Payload"].read()
    assert "FunctionError" not in answer, content
    result: dict[str, Any] = json.loads(content)
    return result


def _metrics(stack: LocalStack, function: str) -> list[dict[str, Any]]:
    """The lines of the embedded metric format in the function's log, in order."""
    logs = stack.client("logs")
    name = function.rpartition(":")[2]
    groups = [one["logGroupName"] for one in logs.describe_log_groups()["logGroups"]]
    found = []
    for group in (one for one in groups if name in one or "AuditLogs" in one):
        for event in logs.filter_log_events(logGroupName=group)["events"]:
            message = event["message"].strip()
            if message.startswith("{") and "_aws" in message:
                found.append(json.loads(message))
    return sorted(found, key=lambda line: line["_aws"]["Timestamp"])
