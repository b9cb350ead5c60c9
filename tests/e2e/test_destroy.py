"""A stack is removed, or taken up again, whatever an earlier call of ours came to."""

import json
from dataclasses import replace
from typing import Any

import pytest

from countledger.infra.deploy.deployment import Deployment
from countledger.infra.deploy.destruction import Destruction
from countledger.infra.deploy.stack_operation import DeployFailed
from countledger.infra.local.stack import LocalStack
from countledger.infra.template import template_text
from tests.e2e.command import Command, Finished
from tests.e2e.conftest import Deploy
from tests.e2e.world import release, stacks_of

_OPEN = ("--parameter", "DeletionProtection=false")


def tables(stack: LocalStack, name: str) -> set[str]:
    """The tables of the stack of a test that exist."""
    listed = stack.client("dynamodb").list_tables()["TableNames"]
    return {one for one in listed if one.startswith(f"{name}-")}


def destroy(command: Command, name: str, *arguments: str) -> Finished:
    return command("destroy", "--stack-name", name, "--yes", name, *arguments)


def attach(stack: LocalStack, arn: str, user: str) -> None:
    iam = stack.client("iam")
    iam.create_user(UserName=user)
    iam.attach_user_policy(UserName=user, PolicyArn=arn)


@pytest.mark.parametrize("protected", ["true", "false"])
def test_tables_outlive_their_stack_and_are_adopted_with_their_items(
    stack: LocalStack, command: Command, deploy: Deploy, name: str, protected: str
) -> None:
    given = ("--parameter", f"DeletionProtection={protected}")
    first = deploy("--json", *given).json["outputs"]
    assert command("emit", "likes:a", "3", "--stack-name", name).code == 0
    kept = f"{first['LedgerTableName']},{first['CountersTableName']}"

    gone = destroy(command, name, "--json")
    again = destroy(command, name)
    shown = deploy("--plan")
    back = deploy("--adopt", kept, "--json", *given)

    assert gone.code == 0, gone.err
    assert {one["table"]: one["deleted"] for one in gone.json["tables"]} == dict.fromkeys(
        kept.split(","), False
    )
    assert (again.code, "there is no stack" in again.err) == (0, True)
    assert f"--adopt {kept}" in shown.err
    assert back.code == 0, back.err
    assert back.json["outputs"]["LedgerTableName"] == first["LedgerTableName"]
    found = command("entries", "likes:a", "--stack-name", name, "--json").items
    assert [one["delta"] for one in found] == ["3"]
    assert tables(stack, name) == set(kept.split(","))


def test_data_is_deleted_on_request_alone_and_also_after_the_stack(
    stack: LocalStack, command: Command, deploy: Deploy, name: str
) -> None:
    assert deploy("--parameter", "DeletionProtection=true").code == 0
    wrong = command("destroy", "--stack-name", name, "--delete-data", "--yes", "other")
    nobody = command("destroy", "--stack-name", name)
    assert (wrong.code, nobody.code, name in stacks_of(stack)) == (2, 2, True)

    # As after a crash between the two steps.
    assert destroy(command, name).code == 0
    assert len(tables(stack, name)) == 2
    assert destroy(command, name, "--delete-data").code == 0

    assert tables(stack, name) == set()
    assert name not in stacks_of(stack)


def test_a_policy_in_use_stops_it_until_it_is_detached(
    stack: LocalStack, command: Command, deploy: Deploy, name: str
) -> None:
    outputs = deploy("--json", *_OPEN).json["outputs"]
    attach(stack, outputs["ReadPolicyArn"], f"app-{name}")

    refused = destroy(command, name)
    assert (refused.code, name in stacks_of(stack)) == (2, True)
    assert f"ReadPolicy by user app-{name}" in refused.err
    assert destroy(command, name, "--detach").code == 0

    assert name not in stacks_of(stack)


def test_a_stack_with_the_http_api_leaves_nothing_of_it(
    stack: LocalStack, command: Command, deploy: Deploy, name: str
) -> None:
    """Its policies are of callers, who may still have them."""
    outputs = deploy("--json", "--parameter", "HttpApi=iam", *_OPEN).json["outputs"]
    attach(stack, outputs["HttpWritePolicyArn"], f"caller-{name}")
    made = of_the_api(stack, name)
    assert {kind for kind, found in made.items() if found} == set(made)

    refused = destroy(command, name)
    assert (refused.code, name in stacks_of(stack)) == (2, True)
    assert f"HttpWritePolicy by user caller-{name}" in refused.err
    gone = destroy(command, name, "--detach", "--delete-data")

    assert gone.code == 0, gone.err
    assert not any(of_the_api(stack, name).values())
    assert name not in stacks_of(stack)
    assert tables(stack, name) == set()


def of_the_api(stack: LocalStack, name: str) -> dict[str, set[str]]:
    """What is there of the HTTP API of a stack, by kind."""
    apis = stack.client("apigatewayv2").get_apis()["Items"]
    functions = stack.client("lambda").get_paginator("list_functions").paginate()
    groups = stack.client("logs").get_paginator("describe_log_groups").paginate()
    policies = stack.client("iam").get_paginator("list_policies").paginate(Scope="Local")
    found = {
        "gateway": [one["Name"] for one in apis],
        "function": [one["FunctionName"] for page in functions for one in page["Functions"]],
        "log": [one["logGroupName"] for page in groups for one in page["logGroups"]],
        "policy": [one["PolicyName"] for page in policies for one in page["Policies"]],
    }
    return {
        kind: {one for one in names if name in one and (kind == "gateway" or "Http" in one)}
        for kind, names in found.items()
    }


def test_a_deletion_that_failed_is_repeated(
    stack: LocalStack, command: Command, deploy: Deploy, name: str
) -> None:
    """The engine refuses to delete a policy in use, as AWS does."""
    outputs = deploy("--json", *_OPEN).json["outputs"]
    attach(stack, outputs["ReadPolicyArn"], f"app-{name}")
    cloudformation: Any = stack.client("cloudformation")
    cloudformation.delete_stack(StackName=name)
    with pytest.raises(Exception, match="DELETE_FAILED"):
        cloudformation.get_waiter("stack_delete_complete").wait(
            StackName=name, WaiterConfig={"Delay": 1}
        )

    said = deploy()
    assert (said.code, "could not be deleted" in said.err) != (0, False)
    assert destroy(command, name, "--detach", "--delete-data").code == 0

    assert name not in stacks_of(stack)
    assert tables(stack, name) == set()


def test_a_deletion_under_way_is_awaited(
    stack: LocalStack, deployment: Deployment, deploy: Deploy, name: str
) -> None:
    """As after a crash: the call that began it has ended."""
    outputs = deploy("--json", *_OPEN).json["outputs"]
    user = f"app-{name}"
    attach(stack, outputs["ReadPolicyArn"], user)
    cloudformation: Any = stack.client("cloudformation")
    destruction = Destruction(
        stack=deployment.stack, iam=stack.client("iam"), dynamodb=stack.client("dynamodb")
    )
    plan = destruction.plan()
    assert plan is not None
    under_way = replace(plan, status="DELETE_IN_PROGRESS")

    cloudformation.delete_stack(StackName=name)
    with pytest.raises(DeployFailed, match=r"DELETE_FAILED: .*ReadPolicy"):
        destruction.delete(under_way)
    stack.client("iam").detach_user_policy(UserName=user, PolicyArn=outputs["ReadPolicyArn"])
    cloudformation.delete_stack(StackName=name)
    destruction.delete(under_way)

    assert name not in stacks_of(stack)
    assert len(tables(stack, name)) == 2


def test_an_adoption_that_was_interrupted_is_completed(
    stack: LocalStack, deployment: Deployment, command: Command, deploy: Deploy, name: str
) -> None:
    outputs = deploy("--json", *_OPEN).json["outputs"]
    assert destroy(command, name).code == 0
    names = {"Ledger": outputs["LedgerTableName"], "Counters": outputs["CountersTableName"]}
    deployment.adopt(names, bucket=name, parameters={"DeletionProtection": "false"}, tags={})
    assert stacks_of(stack)[name]["StackStatus"] == "IMPORT_COMPLETE"

    again = deploy("--adopt", ",".join(names.values()), "--json")

    assert again.code == 0, again.err
    assert again.json["outputs"]["LedgerTableName"] == names["Ledger"]


def test_termination_protection_holds_until_it_is_lifted(
    stack: LocalStack, command: Command, deploy: Deploy, name: str
) -> None:
    assert deploy("--termination-protection", *_OPEN).code == 0

    refused = destroy(command, name)
    assert (refused.code, name in stacks_of(stack)) == (2, True)
    assert "--no-termination-protection" in refused.err
    assert deploy("--no-termination-protection").code == 0
    assert destroy(command, name, "--delete-data").code == 0


def fail(deployment: Deployment, protected: str) -> None:
    """A first creation that fails after the tables are made."""
    bad = template_text().replace("      MetricName: IteratorAge\n", "")
    with pytest.raises(DeployFailed, match="ROLLBACK"):
        release(deployment, bad, protected)


@pytest.mark.parametrize("protected", ["false", "true"])
def test_a_failed_creation_leaves_tables_only_if_they_are_protected(
    stack: LocalStack, deployment: Deployment, deploy: Deploy, name: str, protected: str
) -> None:
    fail(deployment, protected)
    assert len(tables(stack, name)) == (2 if protected == "true" else 0)

    refused = deploy()
    again = deploy("--remove-failed", "--json", *_OPEN)

    assert refused.code != 0
    assert "--remove-failed" in refused.err
    assert again.code == 0, again.err
    outputs = again.json["outputs"]
    assert tables(stack, name) == {outputs["LedgerTableName"], outputs["CountersTableName"]}


def test_a_table_with_items_is_never_removed_as_a_failed_one(
    stack: LocalStack, deployment: Deployment, deploy: Deploy, name: str
) -> None:
    fail(deployment, "true")
    ledger, counters = sorted(tables(stack, name), reverse=True)
    item = {"counter": {"S": "likes:a"}, "entry": {"S": "e"}}
    stack.client("dynamodb").put_item(TableName=ledger, Item=item)

    refused = deploy("--remove-failed")
    adopted = deploy("--remove-failed", "--adopt", f"{ledger},{counters}", "--json")

    assert refused.code == 2
    assert f"table {ledger} has items" in refused.err
    assert adopted.code == 0, adopted.err
    assert adopted.json["outputs"]["LedgerTableName"] == ledger
    assert stack.client("dynamodb").get_item(TableName=ledger, Key=item)["Item"] == item


def test_a_plan_changes_nothing_and_tells_by_its_exit_code(
    stack: LocalStack, deploy: Deploy, name: str
) -> None:
    new = deploy("--plan", "--json", yes=False)
    assert (new.code, name in stacks_of(stack)) == (1, False)
    assert len(new.json["changes"]) > 50
    assert deploy(*_OPEN).code == 0

    same = deploy("--plan", yes=False)
    other = deploy("--plan", "--json", "--parameter", "LogRetentionDays=7", yes=False)

    assert (same.code, other.code) == (0, 1)
    assert "AWS::Logs::LogGroup" in {one["type"] for one in other.json["changes"]}
    parameters = json.dumps(stacks_of(stack)[name]["Parameters"])
    assert '"LogRetentionDays", "ParameterValue": "30"' in parameters
