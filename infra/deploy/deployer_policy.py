"""The policy of who deploys and destroys a stack: what the commands call, what CloudFormation does.

CloudFormation works with the permissions of its caller, unless it is given a role. Where IAM knows
no narrower resource, a statement is for all; else for names that begin with that of the stack.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from countledger.infra.deploy.template_limits import POLICY_MAX

# IAM restricts none of these to a resource; mappings are named by ids of Lambda's.
_ANYWHERE: Final = (
    "application-autoscaling:DeleteScalingPolicy",
    "application-autoscaling:DeleteScheduledAction",
    "application-autoscaling:DeregisterScalableTarget",
    "application-autoscaling:Describe*",
    "application-autoscaling:PutScalingPolicy",
    "application-autoscaling:PutScheduledAction",
    "application-autoscaling:RegisterScalableTarget",
    "backup-storage:*",
    "dynamodb:DescribeLimits",
    "dynamodb:ListTables",
    "iam:CreateServiceLinkedRole",
    "kinesis:*EnhancedMonitoring",
    "kinesis:ListStreams",
    "kinesis:UpdateShardCount",
    "kinesis:UpdateStreamMode",
    "kms:ListAliases",
    "lambda:*EventSourceMapping",
    "logs:*IndexPolic*",
    "logs:*LogDeliver*",
    "logs:*ResourcePolic*",
    "logs:DescribeLogGroups",
)
# With a key of one's own: a function keeps a grant, and encrypts its variables; a vault retires its
# grant, and a table with replicas revokes one.
_OF_THE_KEY: Final = (
    "kms:CreateGrant",
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:RetireGrant",
    "kms:RevokeGrant",
)
_OF_LOGS: Final = (
    "kms:Decrypt*",
    "kms:Describe*",
    "kms:Encrypt*",
    "kms:GenerateDataKey*",
    "kms:ReEncrypt*",
)
# A service -> what of it CloudFormation does with the resources of the template, and their ARNs.
_RESOURCES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "Alarms": (
        (
            "cloudwatch:*Alarm",
            "cloudwatch:*Alarms",
            "cloudwatch:*agResource",
            "cloudwatch:ListTagsForResource",
        ),
        ("cloudwatch:{region}:{account}:alarm:*",),
    ),
    "Dashboards": (
        (
            "cloudwatch:*Dashboard",
            "cloudwatch:*Dashboards",
            "cloudwatch:*agResource",
            "cloudwatch:ListTagsForResource",
        ),
        ("cloudwatch::{account}:dashboard/*",),
    ),
    "Backups": (
        ("backup:*",),
        (
            "backup:{region}:{account}:backup-plan:*",
            "backup:{region}:{account}:backup-vault:*",
        ),
    ),
    "Gateways": (
        ("apigateway:*",),
        (
            "apigateway:{region}::/apis",
            "apigateway:{region}::/apis/*",
            "apigateway:{region}::/tags/*",
        ),
    ),
    "Tables": (("dynamodb:*",), ("dynamodb:{region}:{account}:table/{stack}-*",)),
    "Roles": (
        (
            "iam:*Role",
            "iam:*RolePolic*",
            "iam:*RolePermissionsBoundary",
            "iam:UpdateAssume*",
            "iam:UpdateRoleDescription",
        ),
        ("iam::{account}:role/{stack}-*",),
    ),
    "Policies": (
        ("iam:*Policy", "iam:*PolicyVersion*"),
        ("iam::{account}:policy/{stack}-*",),
    ),
    "Streams": (("kinesis:*",), ("kinesis:{region}:{account}:stream/{stack}-*",)),
    "Functions": (
        ("lambda:*",),
        (
            "lambda:{region}:{account}:event-source-mapping:*",
            "lambda:{region}:{account}:function:{stack}-*",
        ),
    ),
    "Logs": (("logs:*",), ("logs:{region}:{account}:log-group:{stack}-*",)),
    "Queues": (("sqs:*",), ("sqs:{region}:{account}:{stack}-*",)),
    "Schedules": (
        ("scheduler:*",),
        (
            "scheduler:{region}:{account}:schedule-group/{stack}-*",
            "scheduler:{region}:{account}:schedule/*/{stack}-*",
            "scheduler:{region}:{account}:schedule/{stack}-*/*",
        ),
    ),
    "Code": (("s3:GetObject*",), ("s3:::{bucket}/*",)),
}
# What the commands call: the same.
_CALLS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "ChangeTheStack": (
        (
            "cloudformation:CreateChangeSet",
            "cloudformation:DeleteChangeSet",
            "cloudformation:DeleteStack",
            "cloudformation:DescribeChangeSet",
            "cloudformation:DescribeStackEvents",
            "cloudformation:DescribeStacks",
            "cloudformation:ExecuteChangeSet",
            "cloudformation:ListStackResources",
            "cloudformation:UpdateTerminationProtection",
        ),
        (
            "cloudformation:{region}:{account}:changeSet/countledger-*/*",
            "cloudformation:{region}:{account}:stack/{stack}/*",
        ),
    ),
    "LookAtTablesAndDeleteThem": (
        (
            "dynamodb:DeleteTable",
            "dynamodb:DescribeTable",
            "dynamodb:Scan",
            "dynamodb:TagResource",
            "dynamodb:UpdateTable",
        ),
        ("dynamodb:{region}:{account}:table/{stack}-*",),
    ),
    "KeepTheCode": (
        ("s3:CreateBucket", "s3:ListBucket", "s3:PutBucketPublicAccessBlock"),
        ("s3:::{bucket}",),
    ),
    "UploadTheCode": (("s3:GetObject", "s3:PutObject"), ("s3:::{bucket}/*",)),
    "SeeWhoHasThePolicies": (
        ("iam:ListEntitiesForPolicy",),
        ("iam::{account}:policy/{stack}-*",),
    ),
}
# What `countledger region add` and `region remove` call besides, in each region.
_OF_REGIONS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "MakeAndVerifyTotals": (
        (
            "dynamodb:BatchGetItem",
            "dynamodb:ConditionCheckItem",
            "dynamodb:GetItem",
            "dynamodb:PutItem",
            "dynamodb:Query",
            "dynamodb:UpdateItem",
        ),
        (
            "dynamodb:{region}:{account}:table/{stack}-*",
            "dynamodb:{region}:{account}:table/{stack}-*/index/*",
        ),
    ),
    "ReadTheStreams": (
        ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"),
        ("dynamodb:{region}:{account}:table/{stack}-*/stream/*",),
    ),
}
_SEEN: Final = (
    "cloudformation:ListStacks",
    "dynamodb:DescribeLimits",
    "lambda:GetAccountSettings",
    "servicequotas:ListServiceQuotas",
)
_DETACHED: Final = ("Group", "Role", "User")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stack is deployed; of the other regions also the bucket of the code."""

    stack: str
    partition: str
    region: str
    account: str
    bucket: str
    others: tuple[tuple[str, str], ...] = ()

    def arn(self, pattern: str) -> str:
        """An ARN in the stack's own region, from what follows its partition."""
        return self.arns(pattern)[0]

    def arns(self, pattern: str) -> list[str]:
        """The ARNs in each region, each once."""
        texts = (
            pattern.format(stack=self.stack, region=region, account=self.account, bucket=bucket)
            for region, bucket in ((self.region, self.bucket), *self.others)
        )
        return list(dict.fromkeys(f"arn:{self.partition}:{text}" for text in texts))


def caller_policy(place: Place) -> dict[str, Any]:
    """What `countledger deploy` and `destroy` call themselves."""
    detach = _allow(
        "DetachThePolicies",
        [f"iam:Detach{one}Policy" for one in _DETACHED],
        [place.arn(f"iam::{{account}}:{one.lower()}/*") for one in _DETACHED],
    )
    ours = place.arn("iam::{account}:policy/{stack}-*")
    statements = [
        *_statements(_CALLS, place),
        *_statements(_OF_REGIONS if place.others else {}, place),
        _allow("SeeTheAccount", list(_SEEN), "*"),
        {**detach, "Condition": {"ArnLike": {"iam:PolicyARN": ours}}},
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def resource_policy(place: Place) -> dict[str, Any]:
    """What CloudFormation does to make, change and delete the resources."""
    statements = [_allow("Anywhere", list(_ANYWHERE), "*"), *_statements(_RESOURCES, place)]
    return {"Version": "2012-10-17", "Statement": statements}


def key_policy(place: Place, principal_arn: str) -> dict[str, Any]:
    """The policy of a key that encrypts the stack in its region.

    The functions and operators use the key by the policies of the account, CloudFormation by the
    permissions of `principal_arn`, and the log groups by those of their service.
    """
    who = {"AWS": place.arn("iam::{account}:root")}
    service = {"Service": f"logs.{place.region}.amazonaws.com"}
    groups = place.arn("logs:{region}:{account}:log-group:{stack}-*")
    statements = [
        {**_allow("LetTheAccountDecide", ["kms:*"], "*"), "Principal": who},
        {**_allow("DeployWithTheKey", list(_OF_THE_KEY), "*"), "Principal": {"AWS": principal_arn}},
        {
            **_allow("EncryptTheLogs", list(_OF_LOGS), "*"),
            "Principal": service,
            "Condition": {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        },
    ]
    return {"Version": "2012-10-17", "Statement": statements}


def pass_role(role_arn: str) -> dict[str, Any]:
    """The statement with which a caller gives CloudFormation its role."""
    passed = {"StringEquals": {"iam:PassedToService": "cloudformation.amazonaws.com"}}
    return {**_allow("GiveTheRole", ["iam:PassRole"], role_arn), "Condition": passed}


def parts_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """A policy in as few parts as fit IAM's limit of a managed policy, in the statements' order."""
    parts: list[dict[str, Any]] = []
    for statement in document["Statement"]:
        grown = {**document, "Statement": [*(parts[-1]["Statement"] if parts else []), statement]}
        if parts and _size(grown) <= POLICY_MAX:
            parts[-1] = grown
        else:
            parts.append({**document, "Statement": [statement]})
    return parts


def _size(document: dict[str, Any]) -> int:
    """As IAM counts: without white space."""
    return len(json.dumps(document, separators=(",", ":")))


def _statements(
    table: dict[str, tuple[tuple[str, ...], tuple[str, ...]]], place: Place
) -> list[dict[str, Any]]:
    return [
        _allow(sid, list(actions), [arn for one in patterns for arn in place.arns(one)])
        for sid, (actions, patterns) in table.items()
    ]


def _allow(sid: str, actions: list[str], resources: str | list[str]) -> dict[str, Any]:
    return {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}
