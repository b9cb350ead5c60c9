"""The deployer's policy has what CloudFormation's own schemas say that each resource needs."""

import json
import re
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
    key_policy,
    parts_of,
    pass_role,
    resource_policy,
)
from countledger.infra.deploy.template_limits import POLICY_MAX
from countledger.infra.template import load_template

PLACE = Place("shop", "aws", "eu-west-1", "123456789012", "code")
TYPES = sorted({one["Type"] for one in load_template()["Resources"].values()})
# By the feature that our resources do not use: no network, file system, layer or signing; metrics
# that the service writes for itself.
UNUSED: Final = (
    "cloudwatch:PutMetricData",
    "ec2:*",
    "elasticfilesystem:*",
    "firehose:*",
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
# Of `dynamodb:Describe*`: how an SDK finds the service, global tables of the first version, and
# what is bought in advance.
UNREAD: Final = (
    "dynamodb:describeendpoints",
    "dynamodb:describeglobaltable*",
    "dynamodb:describereservedcapacity*",
)
# What AWS documents beyond the schemas: for the access log of an HTTP API; for a global table, in
# each region that takes part.
DOCUMENTED: Final = {
    "AWS::ApiGatewayV2::Stage": {
        "logs:CreateLogDelivery",
        "logs:DeleteLogDelivery",
        "logs:DescribeResourcePolicies",
        "logs:GetLogDelivery",
        "logs:ListLogDeliveries",
        "logs:PutResourcePolicy",
        "logs:UpdateLogDelivery",
    },
    "AWS::DynamoDB::GlobalTable": {
        "dynamodb:CreateGlobalTableWitness",
        "dynamodb:DeleteGlobalTableWitness",
        "dynamodb:DescribeLimits",
        "dynamodb:ListTables",
        "iam:CreateServiceLinkedRole",
    },
}
_DATA: Final = Path(cfnlint.__file__).parent / "data"


@cache
def needed() -> dict[str, set[str]]:
    """A type of the template -> the actions with which CloudFormation handles it."""
    found: dict[str, set[str]] = {kind: set(actions) for kind, actions in DOCUMENTED.items()}
    for path in (_DATA / "schemas/resources").glob("*.json"):
        schema = json.loads(path.read_text())
        if schema["typeName"] in TYPES:
            handlers = schema.get("handlers", {})
            actions = found.setdefault(schema["typeName"], set())
            for name in ("create", "read", "update", "delete"):
                actions |= set(handlers.get(name, {}).get("permissions", ()))
    return found


@cache
def services() -> dict[str, Any]:
    """What IAM documents: the actions of each service with their types of resources."""
    found: dict[str, Any] = json.loads((_DATA / "AdditionalSpecs/Policies.json").read_text())
    return found


def documented(pattern: str) -> dict[str, set[str]]:
    """The actions that a name or pattern means -> their types of resources; none: only `*`."""
    service, _, name = pattern.lower().partition(":")
    actions = services().get(service, {"Actions": {}})["Actions"]
    return {
        f"{service}:{one}": set(of.get("Resources", ()))
        for one, of in actions.items()
        if fnmatchcase(one, name) and not any(fnmatchcase(f"{service}:{one}", no) for no in UNREAD)
    }


def is_of(arn: str, service: str, kinds: set[str]) -> bool:
    """Whether a resource of one of these types has such an ARN."""
    resources = {kind.lower(): one for kind, one in services()[service]["Resources"].items()}
    formats = [
        text for kind in kinds for text in resources.get(kind.lower(), {}).get("ARNFormats", ())
    ]
    return any(re.fullmatch(re.sub(r"\$\{\w+\}", "[^:]*", text), arn) for text in formats)


def allowed(document: dict[str, Any]) -> list[str]:
    return [action for one in document["Statement"] for action in one["Action"]]


def is_allowed(document: dict[str, Any], action: str, kinds: set[str]) -> bool:
    """Whether a statement has the action, on a resource of a type that it has."""
    return any(
        fnmatchcase(action, pattern.lower())
        and (
            one["Resource"] == "*"
            or any(is_of(arn, action.partition(":")[0], kinds) for arn in one["Resource"])
        )
        for one in document["Statement"]
        for pattern in one["Action"]
    )


def of_the_key(kind: str) -> set[str]:
    """What CloudFormation does with a key; to list the aliases is asked of no key."""
    return {one for one in needed()[kind] if one.startswith("kms:") and one != "kms:ListAliases"}


@pytest.mark.parametrize("kind", TYPES)
def test_it_allows_what_a_resource_needs(kind: str) -> None:
    patterns = [*allowed(resource_policy(PLACE)), *UNUSED]

    missing = {
        one
        for one in needed()[kind] - of_the_key(kind)
        if not any(fnmatchcase(one, each) for each in patterns)
    }

    assert needed()[kind]
    assert missing == set()


@pytest.mark.parametrize("kind", TYPES)
def test_it_allows_each_action_on_a_resource_that_the_action_has(kind: str) -> None:
    """An action without types of resources is allowed on `*` alone: else IAM denies it."""
    document = resource_policy(PLACE)
    used = {
        one
        for one in needed()[kind] - of_the_key(kind)
        if not any(fnmatchcase(one, each) for each in UNUSED)
    }

    found = {action: kinds for one in used for action, kinds in documented(one).items()}

    assert found
    assert {one for one, kinds in found.items() if not is_allowed(document, one, kinds)} == set()


def test_the_caller_may_do_each_call_on_a_resource_that_the_call_has() -> None:
    document = caller_policy(replace(PLACE, others=(("us-east-1", "code-us"),)))

    found = {name: kinds for one in allowed(document) for name, kinds in documented(one).items()}

    assert len(found) == len({one.lower() for one in allowed(document)})
    assert {one for one, kinds in found.items() if not is_allowed(document, one, kinds)} == set()


def test_the_policy_of_a_key_has_what_the_resources_need_and_no_more() -> None:
    """Who deploys gets these actions; the account's own policies and its logs get theirs."""
    who = "arn:aws:iam::123456789012:role/deployer"
    account, deployer, logs = key_policy(PLACE, who)["Statement"]

    assert account["Principal"] == {"AWS": "arn:aws:iam::123456789012:root"}
    assert deployer["Principal"] == {"AWS": who}
    assert set(deployer["Action"]) == set().union(*map(of_the_key, TYPES))
    assert {"kms:CreateGrant", "kms:Encrypt"} <= of_the_key("AWS::Lambda::Function")
    assert logs["Principal"] == {"Service": "logs.eu-west-1.amazonaws.com"}
    assert logs["Condition"]["ArnLike"] == {
        "kms:EncryptionContext:aws:logs:arn": (
            "arn:aws:logs:eu-west-1:123456789012:log-group:shop-*"
        )
    }


def test_a_witness_is_made_in_each_region_that_takes_part() -> None:
    document = resource_policy(replace(PLACE, others=(("us-east-1", "b"), ("us-west-2", "c"))))
    regions = {
        arn.split(":")[3]
        for one in document["Statement"]
        if any(fnmatchcase("dynamodb:CreateGlobalTableWitness", each) for each in one["Action"])
        for arn in one["Resource"]
    }

    assert regions == {"eu-west-1", "us-east-1", "us-west-2"}


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
