"""Deploys the template with a bundle by a change set: propose, look at it, execute, follow.

    propose      upload bundle and template, have CloudFormation say what would change
    execute      carry it out, and report each event until the end; the error says why it failed
    discard      forget the proposal, and the empty stack that a first one leaves
    adopt        create the stack around two tables that exist already

Parameters that are not given keep their values, tags that are not given stay.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.deploy.bundle import upload
from countledger.infra.deploy.stack_operation import DeployFailed, StackEvent, StackReader
from countledger.infra.deploy.template_limits import (
    Surroundings,
    refuse_broken_rules,
    refuse_oversized,
)
from countledger.infra.template import only_tables, parse_template, template_text
from countledger.ledger.errors import BadInput
from countledger.ledger.ids import unique_id
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client


# What a request that changes a stack carries, and what it would do, for a person.


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
    """What a deployment would do; the dangerous changes come first."""

    change_set: str
    stack_id: str
    creating: bool
    changes: tuple[ResourceChange, ...]


@dataclass(frozen=True, slots=True)
class Watched:
    """Which alarms take an update back, for so many minutes once everything is changed."""

    alarms: tuple[str, ...]
    minutes: int

    def as_request(self) -> dict[str, Any]:
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
    found = stack.get("Parameters", [])
    return {one["ParameterKey"]: one.get("ParameterValue", "") for one in found}


def tags_in(stack: Mapping[str, Any]) -> dict[str, str]:
    return {one["Key"]: one["Value"] for one in stack.get("Tags", [])}


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse parameters that a template has not."""
    names = set(known)
    strange = sorted(set(given) - names)
    if strange:
        raise BadInput(
            f"the template has no parameter {strange[0]!r}; it has {', '.join(sorted(names))}"
        )


def parameters_for(
    given: Mapping[str, str], existing: Mapping[str, Any] | None, known: Iterable[str]
) -> list[Any]:
    """What is given, and the kept value of every other one that both templates know."""
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
    """
    given = [{"Key": k, "Value": v} for k, v in tags.items() if not k.startswith(_RESERVED)]
    if not given:
        return
    with translated(f"TagResource of {table}"):
        arn = dynamodb.describe_table(TableName=table)["Table"]["TableArn"]
        dynamodb.tag_resource(ResourceArn=arn, Tags=given)  # type: ignore[arg-type]  # is of its shape


_NOTHING_TO_DO: Final = ("didn't contain changes", "No updates are to be performed")
_EMPTY: Final = "REVIEW_IN_PROGRESS"  # the stack of a first change set, not executed yet
_DONE: Final = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE"})
# What is left of a first creation that failed: nothing but a deletion is possible.
FAILED_CREATION: Final = frozenset({"CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Makes or changes one stack.

    Attributes:
        role_arn: the role of CloudFormation; None: as at the last change, else the caller's.
    """

    stack: StackReader
    s3: S3Client
    role_arn: str | None = None

    def propose(
        self,
        *,
        bucket: str,
        bundle: bytes,
        parameters: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        template: str | None = None,
        watched: Watched | None = None,
    ) -> Proposal | None:
        """What deploying would change; None: nothing.

        `watched` alarms take an update back, and are of no use for a creation. `BadInput`: a
        parameter breaks a rule of the template, or makes a policy larger than IAM takes.
        `DeployFailed`: CloudFormation refuses it, or the stack is in no state to be changed.
        """
        text = template or template_text()
        existing = self._changeable()
        self._refuse_beforehand(text, parameters or {}, existing)
        given = dict(parameters or {})
        given["CodeBucket"] = bucket
        given["CodeKey"] = upload(self.s3, bucket, bundle, ".zip")
        request: dict[str, Any] = {
            "ChangeSetType": "UPDATE" if existing else "CREATE",
            "Parameters": parameters_for(given, existing, parse_template(text)["Parameters"]),
            "Tags": tags_for(tags or {}, existing),
        }
        if watched is not None and existing:
            request["RollbackConfiguration"] = watched.as_request()
        request["TemplateURL"] = self._uploaded(bucket, text)
        return self._propose(request, creating=existing is None)

    def propose_parameters(self, given: Mapping[str, str]) -> Proposal | None:
        """What other values of some parameters would change; template and code stay as they are."""
        existing = self._changeable()
        if existing is None:
            raise DeployFailed(f"there is no stack {self.stack.name!r}: `countledger deploy` first")
        request = {
            "ChangeSetType": "UPDATE",
            "UsePreviousTemplate": True,
            "Parameters": parameters_for(given, existing, parameters_in(existing)),
            "Tags": tags_for({}, existing),
        }
        return self._propose(request, creating=False)

    def adopt(
        self,
        tables: Mapping[str, str],
        *,
        bucket: str,
        parameters: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> None:
        """Create the stack with nothing but two tables that exist; a deployment adds the rest.

        `DeployFailed`: one of them belongs to another stack, or is of another shape.
        """
        template = only_tables()
        given = {**parameters, "CodeBucket": bucket, "CodeKey": "none"}
        request: dict[str, Any] = {
            "ChangeSetType": "IMPORT",
            "Parameters": parameters_for(given, None, template["Parameters"]),
            "Tags": tags_for(tags, None),
            "ResourcesToImport": [
                {
                    "ResourceType": template["Resources"][name]["Type"],
                    "LogicalResourceId": name,
                    "ResourceIdentifier": {"TableName": table},
                }
                for name, table in tables.items()
            ],
        }
        request["TemplateURL"] = self._uploaded(bucket, json.dumps(template))
        proposal = self._propose(request, creating=True)
        if proposal is not None:
            self.execute(proposal)

    def execute(
        self, proposal: Proposal, on_event: Callable[[StackEvent], None] | None = None
    ) -> dict[str, str]:
        """Let it happen and wait for the end; the error has the first resource's reason."""
        stack, token = self.stack, f"countledger-{unique_id()}"
        before = stack.newest_event(proposal.stack_id)
        with stack.asking("ExecuteChangeSet"):
            self.stack.cloudformation.execute_change_set(
                StackName=proposal.stack_id,
                ChangeSetName=proposal.change_set,
                ClientRequestToken=token,
            )
        ending = stack.follow(proposal.stack_id, token, before, on_event)
        if ending.status not in _DONE:
            raise DeployFailed(
                f"stack {self.stack.name!r} ended as {ending.status}: {ending.reason()}"
            )
        return self.outputs()

    def protect(self, *, on: bool) -> None:
        """Have CloudFormation refuse to delete the stack, or lift that."""
        with self.stack.asking("UpdateTerminationProtection"):
            self.stack.cloudformation.update_termination_protection(
                StackName=self.stack.name, EnableTerminationProtection=on
            )

    def discard(self, proposal: Proposal) -> None:
        with self.stack.asking("DeleteChangeSet"):
            self.stack.cloudformation.delete_change_set(
                StackName=proposal.stack_id, ChangeSetName=proposal.change_set
            )
            stack = self.stack.describe()
            if stack is not None and stack["StackStatus"] == _EMPTY:
                self.stack.cloudformation.delete_stack(StackName=self.stack.name)

    def outputs(self) -> dict[str, str]:
        """Empty where there is no stack."""
        return outputs(self.stack.describe() or {})

    def tags(self) -> dict[str, str]:
        """Empty where there is no stack."""
        return tags_in(self.stack.describe() or {})

    def _uploaded(self, bucket: str, template: str) -> str:
        """Upload a template; where it is."""
        key = upload(self.s3, bucket, template.encode(), ".yaml")
        return f"{self.s3.meta.endpoint_url}/{bucket}/{key}"

    def _propose(self, request: dict[str, Any], *, creating: bool) -> Proposal | None:
        """Have CloudFormation make a change set; None: it would change nothing."""
        if self.role_arn is not None:
            request["RoleARN"] = self.role_arn
        with self.stack.asking("CreateChangeSet"):
            made = self.stack.cloudformation.create_change_set(
                StackName=self.stack.name,
                ChangeSetName=f"countledger-{unique_id()}",
                Capabilities=["CAPABILITY_IAM"],
                **request,
            )
        proposal = Proposal(made["Id"], made["StackId"], creating, ())
        reason = self._await_proposal(made["Id"])
        if reason is not None:
            self.discard(proposal)
            if any(text in reason for text in _NOTHING_TO_DO):
                return None
            raise DeployFailed(f"stack {self.stack.name!r} was refused: {reason}")
        return replace(proposal, changes=changes_in(self._changes(made["Id"])))

    def _refuse_beforehand(
        self, template: str, given: Mapping[str, str], existing: Mapping[str, Any] | None
    ) -> None:
        meta = self.stack.cloudformation.meta
        around = Surroundings(self.stack.name, meta.region_name, meta.partition)
        parsed, whole = parse_template(template), {**parameters_in(existing or {}), **given}
        refuse_broken_rules(parsed, whole, around)
        refuse_oversized(parsed, whole, around)

    def _changeable(self) -> Mapping[str, Any] | None:
        stack = self.stack.describe()
        status = stack["StackStatus"] if stack is not None else _EMPTY
        if status == _EMPTY:
            return None
        if status in FAILED_CREATION:
            raise DeployFailed(
                f"stack {self.stack.name!r} is the rest of a failed creation ({status}): "
                "`countledger deploy --remove-failed` removes it first"
            )
        if status == "DELETE_FAILED":
            raise DeployFailed(
                f"stack {self.stack.name!r} could not be deleted: `countledger destroy` shows why"
            )
        if status.endswith("_IN_PROGRESS"):
            raise DeployFailed(
                f"stack {self.stack.name!r} is being changed by another caller ({status}): "
                "wait for its end"
            )
        return stack

    def _await_proposal(self, change_set: str) -> str | None:
        """Wait until CloudFormation has made up its mind; why it refuses, or None."""
        deadline_s = time.monotonic() + self.stack.timeout_s
        while True:
            with self.stack.asking("DescribeChangeSet"):
                found = self.stack.cloudformation.describe_change_set(
                    StackName=self.stack.name, ChangeSetName=change_set
                )
            if found["Status"] == "CREATE_COMPLETE":
                return None
            if found["Status"] == "FAILED":
                return found.get("StatusReason") or "CloudFormation does not say why"
            if time.monotonic() > deadline_s:
                return (
                    f"its change set is still {found['Status']} after {self.stack.timeout_s:.0f} s"
                )
            time.sleep(self.stack.poll_s)

    def _changes(self, change_set: str) -> Iterator[Mapping[str, Any]]:
        pages = self.stack.cloudformation.get_paginator("describe_change_set")
        with self.stack.asking("DescribeChangeSet"):
            for page in pages.paginate(StackName=self.stack.name, ChangeSetName=change_set):
                yield from page["Changes"]


def deploy(
    deployment: Deployment,
    *,
    bucket: str,
    bundle: bytes,
    parameters: Mapping[str, str] | None = None,
    template: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Propose and execute without a look at it; the stack's outputs."""
    proposal = deployment.propose(
        bucket=bucket, bundle=bundle, parameters=parameters, template=template, tags=tags
    )
    return deployment.outputs() if proposal is None else deployment.execute(proposal)


def outputs(stack: Mapping[str, Any]) -> dict[str, str]:
    return {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
