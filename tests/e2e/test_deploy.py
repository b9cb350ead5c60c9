"""Deploying creates, updates and leaves alone; a failure names its reason."""

import io
import uuid
import zipfile
from typing import Any

import pytest

from countledger.infra.deploy.deployment import DeployFailed, Deployment, deploy
from countledger.infra.local.stack import LocalStack
from countledger.infra.template import template_text


class Target:
    """A stack name of one test, and what deploying to it takes."""

    def __init__(self, stack: LocalStack) -> None:
        self.stack = stack
        self.name = f"deploy-{uuid.uuid4().hex[:8]}"
        self.bucket = self.name
        self.s3 = stack.client("s3")
        self.s3.create_bucket(Bucket=self.bucket)
        self.deployment = Deployment(
            cloudformation=stack.client("cloudformation"),
            s3=self.s3,
            stack_name=self.name,
            poll_s=0.01,
        )

    def deploy(
        self, bundle: bytes, *, template: str | None = None, **parameters: str
    ) -> dict[str, str]:
        return deploy(
            self.deployment,
            bucket=self.bucket,
            bundle=bundle,
            parameters={"DeletionProtection": "false"} | parameters,
            template=template,
        )

    def function(self, outputs: dict[str, str]) -> Any:  # noqa: ANN401 - botocore's answer
        name = outputs["MaterializerFunctionName"]
        return self.stack.client("lambda").get_function_configuration(FunctionName=name)


@pytest.fixture
def target(stack: LocalStack) -> Target:
    return Target(stack)


def bundle(text: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        # A time of its own: on a busy machine the clock moves on between two equal bundles.
        archive.writestr(zipfile.ZipInfo("version.txt"), text)
    return buffer.getvalue()


def test_a_new_bundle_is_an_update_that_keeps_the_tables(target: Target) -> None:
    """Code and a given parameter change; tables, their items and other parameters stay."""
    first = target.deploy(bundle("1"), LogLevel="DEBUG")
    item = {"counter": {"S": "a:b"}, "entry": {"S": "x"}}
    dynamodb = target.stack.client("dynamodb")
    dynamodb.put_item(TableName=first["LedgerTableName"], Item=item)
    before = target.function(first)

    second = target.deploy(bundle("2"))
    after = target.function(second)

    assert second == first
    assert before["CodeSha256"] != after["CodeSha256"]
    assert after["Environment"]["Variables"]["POWERTOOLS_LOG_LEVEL"] == "DEBUG"
    assert dynamodb.get_item(TableName=first["LedgerTableName"], Key=item)["Item"] == item


def test_the_same_again_changes_nothing(target: Target) -> None:
    """Deploying twice is no error and no update."""
    first = target.deploy(bundle("1"))
    before = target.function(first)

    assert target.deploy(bundle("1")) == first
    assert target.function(first)["RevisionId"] == before["RevisionId"]


def test_a_failure_names_the_resource_and_the_reason(target: Target) -> None:
    """The first resource that failed, not the ones that were cancelled after it."""
    broken = template_text().replace("      MetricName: IteratorAge\n", "")

    with pytest.raises(DeployFailed, match=r"LagAlarm: .*MetricName"):
        target.deploy(bundle("1"), template=broken)


def test_a_refused_request_names_the_reason(target: Target) -> None:
    """What CloudFormation does not even begin."""
    broken = template_text().replace("AWS::SQS::QueuePolicy", "AWS::SQS::NoSuchThing")

    with pytest.raises(DeployFailed, match="NoSuchThing"):
        target.deploy(bundle("1"), template=broken)


def test_a_home_elsewhere_is_refused(target: Target) -> None:
    """A second stack in another region would be a second ledger, not a replica."""
    with pytest.raises(DeployFailed, match="HomeRegion must be the region of the stack"):
        target.deploy(bundle("1"), HomeRegion="eu-west-1")
