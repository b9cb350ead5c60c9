"""`countledger deploy` and `package`: a stack of one's own, from nothing to its next release."""

import io
import json
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from countledger.infra.deploy.change_set import Effect
from countledger.infra.deploy.deployment import Deployment
from countledger.infra.local.stack import LocalStack
from countledger.infra.template import load_template, template_text
from tests.e2e.command import Command, Finished

Deploy = Callable[..., Finished]


@pytest.fixture
def name() -> str:
    return f"deployed-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle with nothing of ours in it: the engine finds the installed package."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("bundle.json"), "{}")
    path = tmp_path / "bundle.zip"
    path.write_bytes(buffer.getvalue())
    return path


@pytest.fixture
def deploy(stack: LocalStack, name: str, bundle: Path) -> Deploy:
    """Runs `countledger deploy` for the stack of this test."""
    command = Command(stack.environment())

    def run(*arguments: str, stdin: str = "") -> Finished:
        common = ("deploy", "--stack-name", name, "--bundle", str(bundle))
        return command(*common, *arguments, stdin=stdin)

    return run


def stacks(stack: LocalStack) -> dict[str, dict[str, Any]]:
    described = stack.client("cloudformation").describe_stacks()["Stacks"]
    return {one["StackName"]: one for one in described}


def tags_of(stack: LocalStack, table: str) -> dict[str, str]:
    """Those that a person gave, by whichever way."""
    dynamodb = stack.client("dynamodb")
    arn = dynamodb.describe_table(TableName=table)["Table"]["TableArn"]
    listed = dynamodb.list_tags_of_resource(ResourceArn=arn)["Tags"]
    return {one["Key"]: one["Value"] for one in listed if not one["Key"].startswith("aws:")}


def test_from_nothing_to_a_stack_that_counts(stack: LocalStack, deploy: Deploy, name: str) -> None:
    """It makes its bucket, says what it makes, and leaves a stack that works."""
    done = deploy("--yes", "--parameter", "DeletionProtection=false", "--tag", "team=web", "--json")

    assert done.code == 0, done.err
    assert done.json["deployed"] is True
    assert {one["effect"] for one in done.json["changes"]} == {Effect.ADD}
    assert f"make stack {name}" in done.err
    described = stacks(stack)[name]
    assert {"Key": "team", "Value": "web"} in described["Tags"]
    bucket = f"countledger-code-000000000000-{stack.client('s3').meta.region_name}"
    access = stack.client("s3").get_public_access_block(Bucket=bucket)
    assert all(access["PublicAccessBlockConfiguration"].values())
    assert done.json["outputs"] == {
        one["OutputKey"]: one["OutputValue"] for one in described["Outputs"]
    }
    command = Command(stack.environment())
    emitted = command("emit", "likes:a", "3", "--stack-name", name)
    assert emitted.code == 0, emitted.err


def test_the_same_again_and_one_parameter(stack: LocalStack, deploy: Deploy, name: str) -> None:
    """Nothing to do is said; what is not given again stays, tags too."""
    given = ("--parameter", "DeletionProtection=false", "--parameter", "LogLevel=DEBUG")
    assert deploy("--yes", "--tag", "team=web", *given).code == 0

    same = deploy("--yes", "--json")
    other = deploy("--yes", "--json", "--parameter", "LogRetentionDays=7", "--tag", "cost=1")

    assert (same.code, same.json["deployed"], same.json["changes"]) == (0, False, [])
    assert "is up to date" in same.err
    assert other.code == 0, other.err
    parameters = {
        one["ParameterKey"]: one["ParameterValue"] for one in stacks(stack)[name]["Parameters"]
    }
    assert (parameters["LogLevel"], parameters["LogRetentionDays"]) == ("DEBUG", "7")
    tags = {one["Key"]: one["Value"] for one in stacks(stack)[name]["Tags"]}
    assert tags == {"team": "web", "cost": "1"}
    # CloudFormation leaves the table of the entries without them.
    for table in ("LedgerTableName", "CountersTableName"):
        assert tags_of(stack, other.json["outputs"][table]) == tags


def test_nobody_to_ask_and_nothing_is_left(stack: LocalStack, deploy: Deploy, name: str) -> None:
    """Without --yes and a terminal it refuses; no change set, no empty stack."""
    done = deploy()

    assert done.code == 2
    assert "give --yes" in done.err
    assert name not in stacks(stack)


def test_what_would_be_lost_is_refused(stack: LocalStack, deploy: Deploy, name: str) -> None:
    """The stack has a queue that this release does not know: it goes only if that is allowed."""
    template = template_text().replace(
        "Resources:\n",
        "Resources:\n  Extra:\n    Type: AWS::SQS::Queue\n    Properties: {DelaySeconds: 1}\n",
        1,
    )
    s3 = stack.client("s3")
    s3.create_bucket(Bucket=name)
    before = Deployment(
        cloudformation=stack.client("cloudformation"), s3=s3, stack_name=name, poll_s=0.01
    )
    made = before.propose(
        bucket=name, bundle=b"", parameters={"DeletionProtection": "false"}, template=template
    )
    assert made is not None
    before.execute(made)
    given = ("--yes", "--bucket", name)

    refused = deploy(*given)
    still_there = stacks(stack)[name]["StackStatus"]
    allowed = deploy(*given, "--allow-replace", "--json")

    assert refused.code == 2
    assert "delete or replace Extra (delete)" in refused.err
    assert still_there == "CREATE_COMPLETE"
    assert allowed.code == 0, allowed.err
    assert {"effect": "delete", "resource": "Extra", "type": "AWS::SQS::Queue"} in allowed.json[
        "changes"
    ]


def test_what_cloudformation_refuses_is_said(deploy: Deploy) -> None:
    """With its own reason."""
    done = deploy("--yes", "--parameter", "HomeRegion=eu-west-1")

    assert done.code != 0
    assert "HomeRegion must be the region of the stack" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--parameter", "LogLevel"], "'LogLevel' is not KEY=VALUE"),
        (["--tag", "=x"], "'=x' is not KEY=VALUE"),
        (["--parameter", "A=1", "--parameter", "A=2"], "gives 'A' twice"),
        (["--parameter", "Colour=red"], "the template has no parameter 'Colour'"),
        (["--bucket", "no-such-bucket-of-ours"], "does not exist: create it first"),
    ],
    ids=str,
)
def test_bad_input_is_one_line(
    stack: LocalStack, deploy: Deploy, name: str, arguments: list[str], says: str
) -> None:
    """Exit 2, and no stack."""
    done = deploy("--yes", *arguments)

    assert done.code == 2
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert name not in stacks(stack)


def test_a_packaged_template_deploys_by_itself(stack: LocalStack, name: str, bundle: Path) -> None:
    """Whatever creates it needs no parameter; the JSON form is the same template."""
    command = Command(stack.environment())

    text = command("package", "--bundle", str(bundle))
    as_json = command("package", "--bundle", str(bundle), "--json")

    assert text.code == as_json.code == 0, text.err + as_json.err
    assert as_json.json["Resources"] == json.loads(json.dumps(load_template()["Resources"]))
    s3, cloudformation = stack.client("s3"), stack.client("cloudformation")
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="t.yaml", Body=text.out.encode())
    cloudformation.create_stack(
        StackName=name,
        TemplateURL=f"{s3.meta.endpoint_url}/{name}/t.yaml",
        Capabilities=["CAPABILITY_IAM"],
    )
    cloudformation.get_waiter("stack_create_complete").wait(
        StackName=name, WaiterConfig={"Delay": 1}
    )
