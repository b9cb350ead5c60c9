"""What a deployment refuses before anything is made; what the engine refuses as AWS does."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from threading import Timer
from typing import Any
from urllib.parse import unquote

import pytest

from countledger.infra.cli.deploy import ALARMS
from countledger.infra.deploy.deployment import Deployment, Watched
from countledger.infra.deploy.stack_operation import DeployFailed
from countledger.infra.deploy.template_limits import POLICY_MAX, Surroundings, sizes
from countledger.infra.local.stack import LocalStack
from countledger.infra.template import load_template, template_text
from tests.e2e.conftest import Deploy
from tests.e2e.proxy import PassingRequest, ProxyAnswer, proxy_before
from tests.e2e.world import bundle_of, release, stacks_of

_DELAY_S = 1.0


def topics(count: int) -> str:
    """So many ARNs, as a parameter has them."""
    return ",".join(f"arn:aws:sns:us-east-1:123456789012:alerts-{i:04}" for i in range(count))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--parameter", f"AlertTopicArns={topics(80)}"], "managed policy OperatePolicy would"),
        (["--parameter", "MaterializerConcurrency=9999"], "Lambda keeps 100 unreserved"),
        (["--bucket", "elsewhere-{name}"], "is in eu-west-1, and the stack in us-east-1"),
    ],
    ids=["a policy over IAM's size", "the account's concurrency", "a bucket of another region"],
)
def test_what_would_fail_midway_is_refused_before_anything_is_made(
    stack: LocalStack,
    deploy: Deploy,
    name: str,
    arguments: list[str],
    reason: str,
) -> None:
    abroad: Any = stack.session().client("s3", endpoint_url=stack.url, region_name="eu-west-1")
    abroad.create_bucket(
        Bucket=f"elsewhere-{name}", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
    )

    done = deploy(*(one.replace("{name}", name) for one in arguments))

    assert done.code == 2
    assert reason in done.err
    assert name not in stacks_of(stack)


def test_warm_throughput_is_not_lowered(stack: LocalStack, deploy: Deploy, name: str) -> None:
    """DynamoDB refuses it in the middle of the update."""
    given = ("--parameter", "DeletionProtection=false", "--parameter")
    assert deploy(*given, "CountersWarmWriteUnits=24000").code == 0

    done = deploy(*given, "CountersWarmWriteUnits=12000")

    assert done.code == 2
    assert "CountersWarmWriteUnits=12000 is less than the 24000 write units" in done.err
    listed = stack.client("cloudformation").list_change_sets(StackName=name)["Summaries"]
    assert {one["ExecutionStatus"] for one in listed} <= {"EXECUTE_COMPLETE"}
    assert stacks_of(stack)[name]["StackStatus"] == "CREATE_COMPLETE"


@pytest.mark.parametrize(
    ("key", "ending"),
    [
        ("", ""),
        ("1234abcd-12ab-34cd-56ef-1234567890ab", "-1234abcd"),
        ("mrk-1234abcd12ab34cd56ef1234567890ab", "-1234abcd12ab34cd56ef1234567890ab"),
    ],
)
def test_a_vault_is_named_by_what_distinguishes_its_key(
    stack: LocalStack, name: str, key: str, ending: str
) -> None:
    """Ids of multi-Region keys all begin with mrk-; a vault cannot have another key later."""
    whole = load_template()
    named = {"Name": {"Value": {"Ref": "BackupVault"}}}
    vault = {"BackupVault": whole["Resources"]["BackupVault"]}
    template = {**whole, "Resources": vault, "Outputs": named, "Rules": {}, "Metadata": {}}
    arn = f"arn:aws:kms:us-east-1:000000000000:key/{key}" if key else ""
    given = {"CodeBucket": name, "CodeKey": "k", "BackupSchedule": "cron(0 3 * * ? *)"}
    given["KmsKeyArn"] = arn

    cloudformation = stack.client("cloudformation")
    cloudformation.create_stack(
        StackName=name,
        TemplateBody=json.dumps(template),
        Parameters=[{"ParameterKey": k, "ParameterValue": v} for k, v in given.items()],
    )
    cloudformation.get_waiter("stack_create_complete").wait(
        StackName=name, WaiterConfig={"Delay": 1}
    )
    (made,) = stacks_of(stack)[name]["Outputs"]
    stack_id = stacks_of(stack)[name]["StackId"].rpartition("/")[2].partition("-")[0]

    assert made["OutputValue"].endswith(f"-{stack_id}{ending}")
    assert re.fullmatch("[a-zA-Z0-9_-]{2,50}", made["OutputValue"])


def test_the_size_that_is_checked_is_the_one_that_iam_counts(stack: LocalStack) -> None:
    """The names that CloudFormation makes up differ by a character or two in length."""
    parameters = {"AlertTopicArns": "arn:aws:sns:us-east-1:*:*"}
    around = Surroundings(stack.name, "us-east-1", "aws")
    computed = {name: size for name, _, size, _ in sizes(load_template(), parameters, around)}
    iam = stack.client("iam")
    for output in ("OperatePolicyArn", "ReadPolicyArn", "StatusPolicyArn"):
        version = iam.get_policy_version(PolicyArn=stack.outputs[output], VersionId="v1")
        text = json.dumps(version["PolicyVersion"]["Document"], separators=(",", ":"))
        counted = len(text.replace(" ", ""))
        assert abs(counted - computed[output.removesuffix("Arn")]) <= 10


def test_the_engine_refuses_a_policy_that_iam_refuses(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("countledger.infra.deploy.template_limits.POLICY_MAX", 10 * POLICY_MAX)
    large = template_text().replace("Sid: FindTheReplicas", f"Sid: {'FindTheReplicas' * 500}")

    with pytest.raises(DeployFailed, match=r"CompactPolicy: .*PolicySize: 6144"):
        release(deployment, large)


def late_answers(bodies: list[str]) -> Callable[[PassingRequest], ProxyAnswer]:
    """Answers ExecuteChangeSet at once and lets it begin a second later, as AWS may.

    Args:
        bodies: where the bodies of all requests are appended.
    """

    def answer(request: PassingRequest) -> ProxyAnswer:
        bodies.append(unquote(request.body.decode()))
        if b"Action=ExecuteChangeSet" not in request.body:
            return request.forward()
        Timer(_DELAY_S, request.forward).start()
        empty = b"<ExecuteChangeSetResponse><ExecuteChangeSetResult/>"
        return 200, "text/xml", empty + b"</ExecuteChangeSetResponse>"

    return answer


def test_an_update_is_over_when_its_own_events_say_so(
    stack: LocalStack, deployment: Deployment
) -> None:
    """The status before it reads as the end of an update until CloudFormation begins."""
    release(deployment, template_text())
    more = '\nOutputs:\n  Later: {Value: "yes", Description: What the update adds.}\n'
    changed = (
        template_text().replace("\nOutputs:\n", more).replace("Default: INFO", "Default: DEBUG")
    )
    alarm = "arn:aws:cloudwatch:us-east-1:000000000000:alarm:a"
    requests: list[str] = []
    with proxy_before(stack.url, late_answers(requests)) as url:
        client: Any = stack.session().client("cloudformation", endpoint_url=url)
        late = replace(deployment, stack=replace(deployment.stack, cloudformation=client))
        made = late.propose(
            bucket=deployment.stack.name,
            bundle=bundle_of("2"),
            parameters={"LogRetentionDays": "7"},
            template=changed,
            watched=Watched((alarm,), 10),
        )
        assert made is not None

        assert late.execute(made)["Later"] == "yes"
    # The engine ignores it, so the request is read.
    asked = next(one for one in requests if "Action=CreateChangeSet" in one)
    assert f"RollbackConfiguration.RollbackTriggers.member.1.Arn={alarm}&" in asked
    assert "RollbackConfiguration.MonitoringTimeInMinutes=10" in asked


def test_the_watched_alarms_exist_and_are_as_many_as_cloudformation_takes() -> None:
    kinds = {name: one["Type"] for name, one in load_template()["Resources"].items()}

    assert {kinds[name] for name in ALARMS} == {"AWS::CloudWatch::Alarm"}
    assert len(set(ALARMS)) <= 5
