"""What a change set would do to a stack, in words for a person: pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Where a replacement that CloudFormation calls possible would leave data behind.
_HOLDS_DATA: Final = frozenset(
    {
        "AWS::DynamoDB::GlobalTable",
        "AWS::DynamoDB::Table",
        "AWS::Kinesis::Stream",
        "AWS::S3::Bucket",
        "AWS::SQS::Queue",
    }
)


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
        """Whether something is deleted, or made anew in another's place."""
        if self.effect is Effect.MAY_REPLACE:
            return self.kind in _HOLDS_DATA
        return self.effect in {Effect.REPLACE, Effect.DELETE}


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
    # `Dynamic` (decided on the way) and whatever comes later: nobody can say that it is harmless.
    return Effect.REPLACE


def _causes(details: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for detail in details:
        target = detail.get("Target", {})
        yield target.get("Name") or target.get("Attribute", "?")
