"""What a request that changes a stack carries, and what it would do, for a person."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.errors import BadInput
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mypy_boto3_dynamodb import DynamoDBClient


# Where a replacement that CloudFormation calls possible would lose sight of data.
_HOLDS_DATA: Final = frozenset(
    {
        "AWS::DynamoDB::GlobalTable",
        "AWS::DynamoDB::Table",
        "AWS::Kinesis::Stream",
        "AWS::S3::Bucket",
        "AWS::SQS::Queue",
    }
)


# CloudFormation documents that a change of it alone replaces nothing: it adds or removes replicas.
_HARMLESS: Final = {"AWS::DynamoDB::GlobalTable": frozenset({"Replicas"})}


class Effect(StrEnum):
    """What happens to a resource."""

    ADD = "add"
    CHANGE = "change"
    MAY_REPLACE = "may replace"
    REPLACE = "replace"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """What happens to one resource.

    Attributes:
        effect: what happens.
        resource: its name in the template.
        kind: its type.
        causes: the properties that differ, or the parameters and resources that they come from.
    """

    effect: Effect
    resource: str
    kind: str
    causes: tuple[str, ...] = ()

    @property
    def dangerous(self) -> bool:
        """Whether a resource is deleted or replaced."""
        if self.effect is Effect.MAY_REPLACE:
            harmless = bool(self.causes) and _HARMLESS.get(self.kind, frozenset()) >= {*self.causes}
            return self.kind in _HOLDS_DATA and not harmless
        return self.effect in {Effect.REPLACE, Effect.DELETE}

    @property
    def loses_data(self) -> bool:
        """Whether data, or a name that others use, is lost: unlike an alarm that goes."""
        return self.dangerous and not (
            self.effect is Effect.DELETE and self.kind not in _HOLDS_DATA
        )


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a deployment would do.

    Attributes:
        change_set: its ARN.
        stack_id: the ARN of the stack.
        creating: whether the stack does not exist yet.
        changes: to each resource, the dangerous ones first.
    """

    change_set: str
    stack_id: str
    creating: bool
    changes: tuple[ResourceChange, ...]


@dataclass(frozen=True, slots=True)
class Watched:
    """Which alarms take an update back.

    Attributes:
        alarms: their ARNs, five at most.
        minutes: for how long they are watched once everything is changed.
    """

    alarms: tuple[str, ...]
    minutes: int

    def as_request(self) -> dict[str, Any]:
        """As a request has it."""
        triggers = [{"Arn": arn, "Type": "AWS::CloudWatch::Alarm"} for arn in self.alarms]
        return {"RollbackTriggers": triggers, "MonitoringTimeInMinutes": self.minutes}


def changes_in(described: Iterable[Mapping[str, Any]]) -> tuple[ResourceChange, ...]:
    """The changes that DescribeChangeSet lists: the dangerous ones first, then by name."""
    found = [_change(one["ResourceChange"]) for one in described if "ResourceChange" in one]
    return tuple(sorted(found, key=lambda one: (not one.dangerous, one.resource)))


def _change(described: Mapping[str, Any]) -> ResourceChange:
    return ResourceChange(
        _effect(described),
        described["LogicalResourceId"],
        described["ResourceType"],
        tuple(sorted(set(_causes(described.get("Details", ()))))),
    )


def _effect(described: Mapping[str, Any]) -> Effect:
    action = described["Action"]
    if action == "Add":
        return Effect.ADD
    if action == "Modify":
        replaced = {"True": Effect.REPLACE, "Conditional": Effect.MAY_REPLACE}
        return replaced.get(str(described.get("Replacement")), Effect.CHANGE)
    if action == "Remove":
        return Effect.DELETE
    # `Dynamic` (decided on the way) and whatever comes later: it may be harmful.
    return Effect.REPLACE


def _causes(details: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for detail in details:
        target = detail.get("Target", {})
        yield target.get("Name") or target.get("Attribute", "?")


def parameters_in(stack: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of a described stack, by name."""
    found = stack.get("Parameters", [])
    return {one["ParameterKey"]: one.get("ParameterValue", "") for one in found}


def tags_in(stack: Mapping[str, Any]) -> dict[str, str]:
    """The tags of a described stack."""
    return {one["Key"]: one["Value"] for one in stack.get("Tags", [])}


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse parameters that a template has not.

    Raises:
        BadInput: naming the first of them, and those that there are.
    """
    names = set(known)
    strange = sorted(set(given) - names)
    if strange:
        raise BadInput(
            f"the template has no parameter {strange[0]!r}; it has {', '.join(sorted(names))}"
        )


def parameters_for(
    given: Mapping[str, str], existing: Mapping[str, Any] | None, known: Iterable[str]
) -> list[Any]:
    """What is given, and the kept value of every other one that both templates know.

    Args:
        given: values by name.
        existing: the described stack, if there is one.
        known: the names that the new template has.

    Raises:
        BadInput: the template has no such parameter.
    """
    known = set(known)
    refuse_unknown(given, known)
    kept = known & parameters_in(existing or {}).keys() - given.keys()
    return [
        *({"ParameterKey": name, "ParameterValue": value} for name, value in given.items()),
        *({"ParameterKey": name, "UsePreviousValue": True} for name in sorted(kept)),
    ]


def tags_for(given: Mapping[str, str], existing: Mapping[str, Any] | None) -> list[Any]:
    """What a request carries replaces all that were there: so it carries those, too."""
    whole = {**tags_in(existing or {}), **given}
    return [{"Key": key, "Value": value} for key, value in whole.items()]


# The prefix of tags that only AWS may write.
_RESERVED: Final = "aws:"


def tag_table(dynamodb: DynamoDBClient, table: str, tags: Mapping[str, str]) -> None:
    """Give a table the tags of its stack: two calls, or none without tags.

    A stack hands its tags on to every resource that has tags. A global table has none itself, but
    for each of its replicas, and gets nothing.

    Raises:
        AccessDenied: the caller has no permission to tag a table.
    """
    given = [{"Key": k, "Value": v} for k, v in tags.items() if not k.startswith(_RESERVED)]
    if not given:
        return
    with translated(f"TagResource of {table}"):
        arn = dynamodb.describe_table(TableName=table)["Table"]["TableArn"]
        dynamodb.tag_resource(ResourceArn=arn, Tags=given)  # type: ignore[arg-type]  # is of its shape
