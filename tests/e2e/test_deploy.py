"""`countledger deploy` and `package`: a stack of one's own, from nothing to its next release."""

import os
import shutil
import subprocess
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from countledger.infra.deploy.deployment import Deployment, Effect, parameters_in
from countledger.infra.deploy.stack_operation import DeployFailed
from countledger.infra.local.stack import LocalStack
from countledger.infra.template import load_template, parse_template, template_text
from tests.e2e.command import Command
from tests.e2e.conftest import Deploy
from tests.e2e.world import bundle_of, release, stacks_of


def tags_of(stack: LocalStack, table: str) -> dict[str, str]:
    """The tags of a table that a person gave."""
    dynamodb = stack.client("dynamodb")
    arn = dynamodb.describe_table(TableName=table)["Table"]["TableArn"]
    listed = dynamodb.list_tags_of_resource(ResourceArn=arn)["Tags"]
    return {one["Key"]: one["Value"] for one in listed if not one["Key"].startswith("aws:")}


def test_from_nothing_to_a_stack_that_counts(
    stack: LocalStack, command: Command, deploy: Deploy, name: str
) -> None:
    done = deploy("--parameter", "DeletionProtection=false", "--tag", "team=web", "--json")

    assert done.code == 0, done.err
    assert done.json["deployed"] is True
    assert {one["effect"] for one in done.json["changes"]} == {Effect.ADD}
    assert f"make stack {name}" in done.err
    described = stacks_of(stack)[name]
    assert {"Key": "team", "Value": "web"} in described["Tags"]
    bucket = f"countledger-code-000000000000-{stack.client('s3').meta.region_name}"
    access = stack.client("s3").get_public_access_block(Bucket=bucket)
    assert all(access["PublicAccessBlockConfiguration"].values())
    assert done.json["outputs"] == {
        one["OutputKey"]: one["OutputValue"] for one in described["Outputs"]
    }
    assert command("emit", "likes:a", "3", "--stack-name", name).code == 0


def test_an_update_changes_what_is_given_and_keeps_the_rest(
    stack: LocalStack, command: Command, deploy: Deploy, name: str
) -> None:
    given = ("--parameter", "DeletionProtection=false", "--parameter", "LogLevel=DEBUG")
    assert deploy("--tag", "team=web", *given).code == 0
    assert command("emit", "likes:a", "3", "--stack-name", name).code == 0

    same = deploy("--json")
    other = deploy("--json", "--parameter", "LogRetentionDays=7", "--tag", "cost=1", code="2")

    assert (same.code, same.json["deployed"], same.json["changes"]) == (0, False, [])
    assert "is up to date" in same.err
    assert other.code == 0, other.err
    assert any(one["type"] == "AWS::Lambda::Function" for one in other.json["changes"])
    parameters = {
        one["ParameterKey"]: one["ParameterValue"] for one in stacks_of(stack)[name]["Parameters"]
    }
    assert (parameters["LogLevel"], parameters["LogRetentionDays"]) == ("DEBUG", "7")
    tags = {one["Key"]: one["Value"] for one in stacks_of(stack)[name]["Tags"]}
    assert tags == {"team": "web", "cost": "1"}
    # CloudFormation leaves the table of the entries without them.
    for table in ("LedgerTableName", "CountersTableName"):
        assert tags_of(stack, other.json["outputs"][table]) == tags
    kept = command("entries", "likes:a", "--stack-name", name, "--json").items
    assert [one["delta"] for one in kept] == ["3"]


def test_what_would_be_lost_goes_only_with_allow_replace(
    stack: LocalStack, deployment: Deployment, deploy: Deploy, name: str
) -> None:
    extra = "Resources:\n  Extra:\n    Type: AWS::SQS::Queue\n    Properties: {DelaySeconds: 1}\n"
    release(deployment, template_text().replace("Resources:\n", extra, 1))

    refused = deploy("--bucket", name)
    still_there = stacks_of(stack)[name]["StackStatus"]
    allowed = deploy("--bucket", name, "--allow-replace", "--json")

    assert refused.code == 2
    assert "delete or replace Extra (delete)" in refused.err
    assert still_there == "CREATE_COMPLETE"
    assert allowed.code == 0, allowed.err
    lost = {"effect": "delete", "resource": "Extra", "type": "AWS::SQS::Queue"}
    assert lost in allowed.json["changes"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("      MetricName: IteratorAge\n", "", r"LagAlarm: .*MetricName"),
        ("AWS::SQS::QueuePolicy", "AWS::SQS::NoSuchThing", "NoSuchThing"),
    ],
    ids=["a resource that fails is named first", "a template that is not even begun"],
)
def test_a_failure_names_its_reason(
    deployment: Deployment, old: str, new: str, reason: str
) -> None:
    with pytest.raises(DeployFailed, match=reason):
        release(deployment, template_text().replace(old, new))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--parameter", "LogLevel"], "'LogLevel' is not KEY=VALUE"),
        (["--parameter", "A=1", "--parameter", "A=2"], "--parameter 'A' is given twice"),
        (["--parameter", "Colour=red"], "the template has no parameter 'Colour'"),
        (["--bucket", "no-such-bucket-of-ours"], "does not exist: create it first"),
        (["--parameter", "HomeRegion=eu-west-1"], "HomeRegion must be the region of the stack"),
    ],
    ids=str,
)
def test_bad_input_is_one_line(deploy: Deploy, arguments: list[str], reason: str) -> None:
    done = deploy(*arguments)

    assert done.code != 0
    assert reason in done.err
    assert "Traceback" not in done.err


def test_without_a_terminal_or_yes_nothing_is_left(
    stack: LocalStack, deploy: Deploy, name: str
) -> None:
    done = deploy(yes=False)

    assert done.code == 2
    assert "give --yes" in done.err
    assert name not in stacks_of(stack)


def test_a_packaged_template_deploys_by_itself(
    stack: LocalStack, command: Command, name: str, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.zip"
    bundle.write_bytes(bundle_of())

    text = command("package", "--bundle", str(bundle))
    as_json = command("package", "--bundle", str(bundle), "--json")

    assert text.code == as_json.code == 0, text.err + as_json.err
    assert as_json.json["Resources"].keys() == load_template()["Resources"].keys()
    module, construct = tmp_path / "module", tmp_path / "construct"
    both = ("--terraform", str(module), "--cdk", str(construct))
    wrapped = command("package", "--bundle", str(bundle), *both)
    assert wrapped.out.splitlines()[-1] == str(construct / "app.py")
    for folder in (module, construct):
        assert (folder / "countledger.yaml").read_text() == text.out
    deployed = deployed_as_aws_does(stack, name, text.out)
    assert "EmitPolicyArn" in {one["OutputKey"] for one in deployed["Outputs"]}


def deployed_as_aws_does(stack: LocalStack, name: str, text: str) -> dict[str, Any]:
    """The stack after `aws cloudformation deploy`, which keeps each parameter that it knows."""
    s3, cloudformation = stack.client("s3"), stack.client("cloudformation")
    now = stacks_of(stack).get(name)
    key = f"{sha256(text.encode()).hexdigest()}.yaml"
    if now is None:
        s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key=key, Body=text.encode())
    kept = {one["ParameterKey"] for one in now["Parameters"]} if now else set()
    made = cloudformation.create_change_set(
        StackName=name,
        ChangeSetName=f"c{key[:20]}",
        ChangeSetType="UPDATE" if now else "CREATE",
        TemplateURL=f"{s3.meta.endpoint_url}/{name}/{key}",
        Capabilities=["CAPABILITY_IAM"],
        Parameters=[
            {"ParameterKey": one, "UsePreviousValue": True}
            for one in sorted(kept & parse_template(text)["Parameters"].keys())
        ],
    )
    cloudformation.execute_change_set(StackName=name, ChangeSetName=made["Id"])
    waiter = cloudformation.get_waiter(f"stack_{'update' if now else 'create'}_complete")
    waiter.wait(StackName=name, WaiterConfig={"Delay": 1})
    return stacks_of(stack)[name]


def test_a_later_package_runs_its_own_code_although_parameters_are_kept(
    stack: LocalStack, command: Command, name: str, tmp_path: Path
) -> None:
    bundle, functions = tmp_path / "bundle.zip", stack.client("lambda")
    for text in ("1", "2"):
        bundle.write_bytes(bundle_of(text))
        made = command("package", "--bundle", str(bundle))
        deployed_as_aws_does(stack, name, made.out)

        resources = stack.home.deployment(name).stack.resources().values()
        running = {
            functions.get_function(FunctionName=made)["Configuration"]["CodeSha256"]
            for kind, made in resources
            if kind == "AWS::Lambda::Function"
        }
        digest = sha256(bundle.read_bytes())
        assert running == {b64encode(digest.digest()).decode()}
        shown = command("status", "--stack-name", name, "--json").json["stack"]
        assert digest.hexdigest()[:32] in shown["bundle"]


PROVIDER = """
provider "aws" {{
  region                      = "us-east-1"
  access_key                  = "{key}"
  secret_key                  = "{secret}"
  s3_use_path_style           = true
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true
  endpoints {{
    cloudformation = "{url}"
    s3             = "{url}"
    sts            = "{url}"
  }}
}}

module "countledger" {{
  source              = "../"
  stack_name          = "{name}"
  deletion_protection = "false"
  log_level           = "{level}"
}}
"""
PLUGINS = os.environ.get("COUNTLEDGER_TERRAFORM_PLUGINS")


@pytest.mark.skipif(
    PLUGINS is None or shutil.which("terraform") is None,
    reason="COUNTLEDGER_TERRAFORM_PLUGINS names no folder of providers for terraform",
)
def test_terraform_keeps_what_the_commands_for_regions_have_changed(
    stack: LocalStack, command: Command, deployment: Deployment, name: str, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.zip"
    key = stack.session().get_credentials()
    assert key is not None
    known = {**os.environ, "TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1"}

    def terraform(*arguments: str) -> None:
        line = ["terraform", *arguments, "-no-color", "-input=false"]
        at = tmp_path / "module/example"
        done = subprocess.run(line, cwd=at, env=known, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def applied(bundle_text: str, level: str) -> dict[str, str]:
        bundle.write_bytes(bundle_of(bundle_text))
        made = command("package", "--bundle", str(bundle), "--terraform", str(tmp_path / "module"))
        assert made.code == 0, made.err
        # The engine has no names of buckets as hosts.
        module, host = tmp_path / "module/main.tf", "data.aws_s3_bucket.code"
        hosted = f"https://${{{host}.bucket_regional_domain_name}}"
        text = module.read_text()
        assert hosted in text
        module.write_text(text.replace(hosted, f"{stack.url}/${{{host}.id}}"))
        main = tmp_path / "module/example/main.tf"
        main.write_text(
            PROVIDER.format(
                key=key.access_key, secret=key.secret_key, url=stack.url, name=name, level=level
            )
        )
        terraform("init", f"-plugin-dir={PLUGINS}")
        terraform("apply", "-auto-approve")
        return parameters_in(stacks_of(stack)[name])

    assert applied("1", "INFO")["ReplicaRegions"] == ""
    proposal = deployment.propose_parameters(
        {"ReplicaRegions": "eu-west-1", "HomeRegion": "eu-west-1"}
    )
    assert proposal is not None
    deployment.execute(proposal)
    terraform("plan", "-detailed-exitcode")  # 2, if it would change something

    later = applied("2", "DEBUG")

    assert later["LogLevel"] == "DEBUG"
    assert (later["ReplicaRegions"], later["HomeRegion"]) == ("eu-west-1", "eu-west-1")
