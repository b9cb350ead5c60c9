"""Deploys the template with a bundle by a change set: propose, look at it, execute, follow.

    propose      upload bundle and template, have CloudFormation say what would change
    execute      carry it out, and report each event until the end; the error says why it failed
    discard      forget the proposal, and the empty stack that a first one leaves

Parameters that are not given keep their values, tags that are not given stay.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from countledger.infra.deploy.change_set import (
    ResourceChange,
    changes_in,
    parameters_for,
    tags_for,
)
from countledger.infra.deploy.code_bucket import upload
from countledger.infra.template import parse_template, template_text
from countledger.ledger.errors import CountledgerError, RequestRejected
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_s3 import S3Client

_NOTHING_TO_DO: Final = ("didn't contain changes", "No updates are to be performed")
_EMPTY: Final = "REVIEW_IN_PROGRESS"  # the stack of a first change set, not executed yet
_DONE: Final = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE"})


class DeployFailed(CountledgerError):
    """The stack could not be made or changed; the message has CloudFormation's first reason."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a deployment would do.

    Attributes:
        change_set: its ARN.
        creating: whether the stack does not exist yet.
        changes: to each resource, the dangerous ones first.
    """

    change_set: str
    creating: bool
    changes: tuple[ResourceChange, ...]


@dataclass(frozen=True, slots=True)
class StackEvent:
    """What happened to a resource: its name in the template, its status, and why."""

    resource: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Makes or changes one stack.

    Attributes:
        cloudformation: the client to CloudFormation.
        s3: the client to the bucket, in the same region.
        stack_name: the stack.
        poll_s: pause between two looks.
        timeout_s: when to stop waiting (the stack goes on by itself).
    """

    cloudformation: "CloudFormationClient"
    s3: "S3Client"
    stack_name: str
    poll_s: float = 3.0
    timeout_s: float = 1800.0

    def propose(
        self,
        *,
        bucket: str,
        bundle: bytes,
        parameters: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        template: str | None = None,
    ) -> Proposal | None:
        """What deploying would change; None: nothing.

        Args:
            bucket: an existing bucket for bundle and template.
            bundle: the zip file of the functions.
            parameters: of the template, without `CodeBucket` and `CodeKey`.
            tags: of the stack and all its resources.
            template: its text (default: ours).

        Raises:
            DeployFailed: CloudFormation refuses it, or the stack is in no state to be changed.
        """
        text = template or template_text()
        given = dict(parameters or {})
        given["CodeBucket"] = bucket
        given["CodeKey"] = upload(self.s3, bucket, bundle, ".zip")
        template_key = upload(self.s3, bucket, text.encode(), ".yaml")
        existing = self._changeable()
        request: dict[str, Any] = {
            "StackName": self.stack_name,
            "ChangeSetName": f"countledger-{uuid.uuid4()}",
            "ChangeSetType": "UPDATE" if existing else "CREATE",
            "TemplateURL": f"{self.s3.meta.endpoint_url}/{bucket}/{template_key}",
            "Capabilities": ["CAPABILITY_IAM"],
            "Parameters": parameters_for(given, existing, parse_template(text)["Parameters"]),
            "Tags": tags_for(tags or {}, existing),
        }
        with self._asking("CreateChangeSet"):
            made = self.cloudformation.create_change_set(**request)["Id"]
        proposal = Proposal(made, existing is None, ())
        reason = self._await_proposal(made)
        if reason is not None:
            self.discard(proposal)
            if any(text in reason for text in _NOTHING_TO_DO):
                return None
            raise DeployFailed(f"stack {self.stack_name!r} was refused: {reason}")
        return Proposal(made, proposal.creating, changes_in(self._changes(made)))

    def execute(
        self, proposal: Proposal, on_event: Callable[[StackEvent], None] | None = None
    ) -> dict[str, str]:
        """Let it happen and wait for the end; the stack's outputs.

        Raises:
            DeployFailed: with the reason of the first resource that failed.
        """
        seen = {event["EventId"] for event in self._events()}
        with self._asking("ExecuteChangeSet"):
            self.cloudformation.execute_change_set(ChangeSetName=proposal.change_set)
        failures: list[StackEvent] = []
        deadline_s = time.monotonic() + self.timeout_s
        while True:
            stack = self._stack()
            # The events of a state that was read can be read after it.
            for event in self._new_events(seen):
                if event.status.endswith("_FAILED"):
                    failures.append(event)
                if on_event is not None:
                    on_event(event)
            status = stack["StackStatus"] if stack is not None else "DELETE_COMPLETE"
            if stack is not None and status in _DONE:
                return outputs(stack)
            if status.endswith(("_COMPLETE", "_FAILED")) and "CLEANUP" not in status:
                raise DeployFailed(
                    f"stack {self.stack_name!r} ended as {status}: {_first(failures)}"
                )
            if time.monotonic() > deadline_s:
                raise DeployFailed(
                    f"stack {self.stack_name!r} is still {status} after {self.timeout_s:.0f} s"
                )
            time.sleep(self.poll_s)

    def discard(self, proposal: Proposal) -> None:
        """Forget a proposal: nothing is left of it."""
        with self._asking("DeleteChangeSet"):
            self.cloudformation.delete_change_set(ChangeSetName=proposal.change_set)
            stack = self._stack()
            if stack is not None and stack["StackStatus"] == _EMPTY:
                self.cloudformation.delete_stack(StackName=self.stack_name)

    def outputs(self) -> dict[str, str]:
        """The outputs of the stack as it is; none where there is no stack."""
        return outputs(self._stack() or {})

    def tags(self) -> dict[str, str]:
        """The tags of the stack as it is; none where there is no stack."""
        return {one["Key"]: one["Value"] for one in (self._stack() or {}).get("Tags", [])}

    def _changeable(self) -> Mapping[str, Any] | None:
        """The stack, if it exists."""
        stack = self._stack()
        status = stack["StackStatus"] if stack is not None else _EMPTY
        if status == _EMPTY:
            return None
        if status in {"ROLLBACK_COMPLETE", "ROLLBACK_FAILED"}:
            raise DeployFailed(
                f"stack {self.stack_name!r} is the rest of a failed creation ({status}): "
                "delete it first; its tables, if it got so far, are kept"
            )
        if status.endswith("_IN_PROGRESS"):
            raise DeployFailed(
                f"stack {self.stack_name!r} is being changed by another caller ({status}): "
                "wait for its end"
            )
        return stack

    @contextmanager
    def _asking(self, call: str) -> Iterator[None]:
        """What CloudFormation calls invalid is a matter of this deployment."""
        try:
            with translated(f"{call} of {self.stack_name!r}"):
                yield
        except RequestRejected as error:
            raise DeployFailed(str(error)) from error

    def _stack(self) -> Mapping[str, Any] | None:
        try:
            described = self.cloudformation.describe_stacks(StackName=self.stack_name)
        except ClientError as error:
            if "does not exist" in error.response["Error"]["Message"]:
                return None
            with translated(f"DescribeStacks of {self.stack_name!r}"):
                raise
        return described["Stacks"][0]

    def _await_proposal(self, change_set: str) -> str | None:
        """Wait until CloudFormation has made up its mind; why it refuses, or None."""
        deadline_s = time.monotonic() + self.timeout_s
        while True:
            with translated(f"DescribeChangeSet of {self.stack_name!r}"):
                found = self.cloudformation.describe_change_set(ChangeSetName=change_set)
            if found["Status"] == "CREATE_COMPLETE":
                return None
            if found["Status"] == "FAILED":
                return found.get("StatusReason") or "CloudFormation does not say why"
            if time.monotonic() > deadline_s:
                return f"its change set is still {found['Status']} after {self.timeout_s:.0f} s"
            time.sleep(self.poll_s)

    def _changes(self, change_set: str) -> Iterator[Mapping[str, Any]]:
        pages = self.cloudformation.get_paginator("describe_change_set")
        with translated(f"DescribeChangeSet of {self.stack_name!r}"):
            for page in pages.paginate(ChangeSetName=change_set):
                yield from page["Changes"]

    def _events(self) -> Iterator[Mapping[str, Any]]:
        """The stack's events, newest first."""
        pages = self.cloudformation.get_paginator("describe_stack_events")
        with translated(f"DescribeStackEvents of {self.stack_name!r}"):
            for page in pages.paginate(StackName=self.stack_name):
                yield from page["StackEvents"]

    def _new_events(self, seen: set[str]) -> list[StackEvent]:
        """Those that were not seen before, oldest first."""
        new: list[StackEvent] = []
        for event in self._events():
            if event["EventId"] in seen:
                break
            seen.add(event["EventId"])
            new.append(
                StackEvent(
                    event["LogicalResourceId"],
                    event.get("ResourceStatus", ""),
                    event.get("ResourceStatusReason", ""),
                )
            )
        return new[::-1]


def deploy(
    deployment: Deployment,
    *,
    bucket: str,
    bundle: bytes,
    parameters: Mapping[str, str] | None = None,
    template: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Propose and execute without a look at it; the stack's outputs.

    Raises:
        DeployFailed: with CloudFormation's reason for refusing, or that of the first resource that
            failed.
    """
    proposal = deployment.propose(
        bucket=bucket, bundle=bundle, parameters=parameters, template=template, tags=tags
    )
    return deployment.outputs() if proposal is None else deployment.execute(proposal)


def outputs(stack: Mapping[str, Any]) -> dict[str, str]:
    """The outputs of a described stack, by name."""
    return {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}


def _first(failures: list[StackEvent]) -> str:
    """The first failure; the later ones are mostly cancellations that follow from it."""
    if not failures:
        return "no resource says why"
    return f"{failures[0].resource}: {failures[0].reason or 'no reason given'}"
