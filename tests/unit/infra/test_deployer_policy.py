"""The deployer's policy has what CloudFormation's own schemas say that each resource needs."""

import json
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

import cfnlint
import pytest

from countledger.infra.deploy.deployer_policy import (
    Place,
    caller_policy,
    parts_of,
    pass_role,
    resource_policy,
)
from countledger.infra.deploy.template_limits import POLICY_MAX
from countledger.infra.template import load_template

PLACE = Place("shop", "aws", "eu-west-1", "123456789012", "code")
TYPES = sorted({one["Type"] for one in load_template()["Resources"].values()})
# By the feature that our resources do not use: no network, file system, layer or signing; metrics
# that the service writes for itself. A key of one's own has a key policy for who deploys.
UNUSED: Final = (
    "cloudwatch:PutMetricData",
    "ec2:*",
    "elasticfilesystem:*",
    "firehose:*",
    "kms:*",
    "lambda:*CodeSigning*",
    "lambda:GetLayerVersion",
    "lambda:PassCapacityProvider",
    # No definition of an API is read from a bucket.
    "s3:getObject",
    "s3:REST.PUT.OBJECT",
    "s3files:*",
    "sns:*",
    # The template attaches no policy to a group or user.
    "iam:*GroupPolicy",
    "iam:*UserPolicy",
)
# What AWS documents for the access log of an HTTP API, beyond the schemas.
DOCUMENTED: Final = {
    "AWS::ApiGatewayV2::Stage": {
        "logs:CreateLogDelivery",
        "logs:DeleteLogDelivery",
        "logs:DescribeResourcePolicies",
        "logs:GetLogDelivery",
        "logs:ListLogDeliveries",
        "logs:PutResourcePolicy",
        "logs:UpdateLogDelivery",
    }
}


@cache
def needed() -> dict[str, set[str]]:
    """A type of the template -> the actions with which CloudFormation handles it."""
    schemas = Path(cfnlint.__file__).parent / "data/schemas/resources"
    found: dict[str, set[str]] = {kind: set(actions) for kind, actions in DOCUMENTED.items()}
    for path in schemas.glob("*.json"):
        schema = json.loads(path.read_text())
        if schema["typeName"] in TYPES:
            handlers = schema.get("handlers", {})
            actions = found.setdefault(schema["typeName"], set())
            for name in ("create", "read", "update", "delete"):
                actions |= set(handlers.get(name, {}).get("permissions", ()))
    return found


def allowed(document: dict[str, Any]) -> list[str]:
    return [action for one in document["Statement"] for action in one["Action"]]


@pytest.mark.parametrize("kind", TYPES)
def test_it_allows_what_a_resource_needs(kind: str) -> None:
    patterns = [*allowed(resource_policy(PLACE)), *UNUSED]

    missing = {
        one for one in needed()[kind] if not any(fnmatchcase(one, each) for each in patterns)
    }

    assert needed()[kind]
    assert missing == set()


def test_every_action_of_it_is_needed() -> None:
    """A pattern that no resource of the template needs goes."""
    used = set().union(*needed().values())

    for pattern in allowed(resource_policy(PLACE)):
        assert any(fnmatchcase(one, pattern) or one == pattern for one in used), pattern


def test_it_fits_and_names_resources_wherever_iam_can() -> None:
    whole = caller_policy(PLACE)["Statement"] + resource_policy(PLACE)["Statement"]
    everywhere = [one["Sid"] for one in whole if one["Resource"] == "*"]

    assert everywhere == ["SeeTheAccount", "Anywhere"]
    assert len(json.dumps(whole, separators=(",", ":"))) < POLICY_MAX


def test_a_role_is_given_to_cloudformation_alone() -> None:
    statement = pass_role("arn:aws:iam::123456789012:role/x")

    assert statement["Condition"]["StringEquals"] == {
        "iam:PassedToService": "cloudformation.amazonaws.com"
    }


def test_a_stack_of_several_regions_is_changed_in_each_and_nowhere_else() -> None:
    other = ("us-east-1", "code-us")
    place = replace(PLACE, others=(other,))
    whole = caller_policy(place)["Statement"] + resource_policy(place)["Statement"]
    tables = next(one for one in whole if one["Sid"] == "Tables")["Resource"]

    assert [arn.split(":")[3] for arn in tables] == [PLACE.region, "us-east-1"]
    assert "MakeAndVerifyTotals" in {one["Sid"] for one in whole}
    # IAM and the dashboards know no region: named once.
    for one in whole:
        assert len(set(one["Resource"])) == len(one["Resource"])
    assert "MakeAndVerifyTotals" not in json.dumps(caller_policy(PLACE))
    # A document for the caller and one for the role: both fit with one more region.
    for document in (caller_policy(place), resource_policy(place)):
        assert len(parts_of(document)) == 1


def test_with_four_more_regions_each_part_fits_and_nothing_is_left_out() -> None:
    names = ("us-east-1", "ap-northeast-1", "ap-southeast-2", "us-gov-west-1")
    place = replace(PLACE, stack="s" * 60, others=tuple((one, f"code-{one}") for one in names))
    for document in (caller_policy(place), resource_policy(place)):
        whole = {**document, "Statement": document["Statement"]}

        parts = parts_of(whole)

        assert [one for part in parts for one in part["Statement"]] == whole["Statement"]
        for part in parts:
            assert part["Version"] == whole["Version"]
            assert len(json.dumps(part, separators=(",", ":"))) <= POLICY_MAX
    # IAM takes ten managed policies for a role or user, unless more are asked for.
    assert len(parts_of(caller_policy(place))) + len(parts_of(resource_policy(place))) < 10
    assert len(parts_of(caller_policy(PLACE))) == 1
