"""IAM takes policies of so many characters: ours fit, however long the names of a stack are.

No linter can tell, for the names are known only once the stack is made.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from countledger.infra.template import load_template

if TYPE_CHECKING:
    from collections.abc import Callable

RESOURCES: dict[str, Any] = load_template()["Resources"]
# Of a managed policy, and of all inline policies of a role; white space is not counted.
MANAGED_MAX: Final = 6_144
INLINE_MAX: Final = 10_240
# A name that CloudFormation makes: of the stack, of the resource, and twelve characters.
RANDOM: Final = "-ABCDEFGHIJKL"
NAME_MAX: Final = {
    "AWS::Backup::BackupVault": ("backup", "backup-vault:", 50),
    "AWS::DynamoDB::GlobalTable": ("dynamodb", "table/", 255),
    "AWS::DynamoDB::Table": ("dynamodb", "table/", 255),
    "AWS::IAM::Role": ("iam", "role/", 64),
    "AWS::Kinesis::Stream": ("kinesis", "stream/", 128),
    "AWS::Lambda::EventSourceMapping": ("lambda", "event-source-mapping:", 36),
    "AWS::Lambda::Function": ("lambda", "function:", 64),
    "AWS::Logs::LogGroup": ("logs", "log-group:", 512),
    "AWS::SQS::Queue": ("sqs", "", 80),
    "AWS::Scheduler::ScheduleGroup": ("scheduler", "schedule-group/", 64),
}
STACK: Final = "s" * 128  # as long as a stack's name may be
# Every option taken.
VALUES: Final[dict[str, Any]] = {
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::Region": "ap-southeast-1",
    "AWS::StackName": STACK,
    "AlertBusName": "b" * 64,
    "AlertTopicArns": ["arn:aws:sns:ap-southeast-1:123456789012:" + "t" * 32] * 4,
    "BackupCopyVaultArn": "arn:aws:backup:ap-southeast-1:123456789012:backup-vault:" + "v" * 50,
    "ArchiveBucketArn": "arn:aws:s3:::" + "b" * 63,
    "KmsKeyArn": "arn:aws:kms:ap-southeast-1:123456789012:key/" + "k" * 36,
}


def name_of(resource: str) -> str:
    _, _, longest = NAME_MAX[RESOURCES[resource]["Type"]]
    behind = f"-{resource}{RANDOM}"
    return STACK[: longest - len(behind)] + behind


def attribute(resource: str, name: str) -> str:
    service, kind, _ = NAME_MAX[RESOURCES[resource]["Type"]]
    arn = f"arn:aws:{service}:ap-southeast-1:123456789012:{kind}{name_of(resource)}"
    return f"{arn}/stream/2030-01-31T12:00:00.000" if name == "StreamArn" else arn


def reference(name: str) -> Any:  # noqa: ANN401 - a text, or several
    return VALUES[name] if name in VALUES else name_of(name)


def substituted(match: re.Match[str]) -> str:
    name, dot, part = match[1].partition(".")
    return attribute(name, part) if dot else str(reference(name))


def written(value: Any) -> Any:  # noqa: ANN401 - as a template is
    """A part of the template as the service gets it, every condition met."""
    if isinstance(value, list):
        return [written(one) for one in value]
    if not isinstance(value, dict):
        return value
    function, arguments = next(iter(value.items()))
    if function in FUNCTIONS:
        return FUNCTIONS[function](arguments)
    return {name: written(one) for name, one in value.items()}


FUNCTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "Ref": reference,
    "Fn::GetAtt": lambda arguments: attribute(*arguments),
    "Fn::Sub": lambda text: re.sub(r"\$\{([\w:.]+)\}", substituted, text),
    "Fn::If": lambda arguments: written(arguments[1]),
}


def size(document: Any) -> int:  # noqa: ANN401 - as a template is
    return len(re.sub(r"\s", "", json.dumps(written(document), separators=(",", ":"))))


def of_type(kind: str) -> list[str]:
    return [name for name, one in RESOURCES.items() if one["Type"] == kind]


@pytest.mark.parametrize("name", of_type("AWS::IAM::ManagedPolicy"))
def test_a_managed_policy_fits(name: str) -> None:
    assert size(RESOURCES[name]["Properties"]["PolicyDocument"]) <= MANAGED_MAX


@pytest.mark.parametrize("name", of_type("AWS::IAM::Role"))
def test_the_policies_of_a_role_fit(name: str) -> None:
    policies = RESOURCES[name]["Properties"]["Policies"]

    assert sum(size(one["PolicyDocument"]) for one in policies) <= INLINE_MAX
