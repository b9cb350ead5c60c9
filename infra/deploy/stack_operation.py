"""One operation on a stack, followed by its own events from its first to its last.

The status of a stack may still be that of the operation before: CloudFormation's answers are
eventually consistent. Each operation carries a token of ours, and so does each of its events.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.errors import CountledgerError, RequestRejected
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mypy_boto3_cloudformation import CloudFormationClient

_STACK: Final = "AWS::CloudFormation::Stack"
_GONE: Final = "does not exist"
# What ends an operation, and not just one of its resources.
_FINAL: Final = ("_COMPLETE", "_FAILED")


class DeployFailed(CountledgerError):
    """The stack could not be made, changed or removed; with CloudFormation's first reason."""


@dataclass(frozen=True, slots=True)
class StackEvent:
    """What happened to a resource.

    Attributes:
        resource: its name in the template; for the stack itself its own.
        made: its physical id; empty before there is one.
    """

    resource: str
    status: str
    reason: str
    kind: str = ""
    made: str = ""
    token: str = ""

    @property
    def failed(self) -> bool:
        return self.status.endswith("_FAILED")


@dataclass(frozen=True, slots=True)
class Ending:
    """How an operation ended; its failures in their order."""

    status: str
    failures: tuple[StackEvent, ...]

    def reason(self) -> str:
        """The first failure; the later ones are mostly cancellations that follow from it."""
        if not self.failures:
            return "no resource says why"
        first = self.failures[0]
        return f"{first.resource}: {first.reason or 'no reason given'}"


def ending_in(events: Sequence[StackEvent], token: str) -> Ending | None:
    """How the operation with a token ended, by a stack's events; None: it did not begin or end.

    CloudFormation runs one operation of a stack at a time, so that all events after the first one
    with the token belong to it, also those of a rollback that follows by itself.
    """
    begin = next((i for i, event in enumerate(events) if event.token == token), len(events))
    own = events[begin:]
    for number, event in enumerate(own):
        if event.kind == _STACK and event.status.endswith(_FINAL):
            failures = [one for one in own[:number] if one.failed and one.kind != _STACK]
            return Ending(event.status, tuple(failures))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackReader:
    """Reads a stack and its events, and waits for the end of an operation.

    After `timeout_s` the waiting stops; the stack goes on by itself.
    """

    cloudformation: CloudFormationClient
    name: str
    poll_s: float = 3.0
    timeout_s: float = 1800.0

    def describe(self) -> Mapping[str, Any] | None:
        """The stack as DescribeStacks answers; None: there is none."""
        try:
            with self.asking("DescribeStacks"):
                return self.cloudformation.describe_stacks(StackName=self.name)["Stacks"][0]
        except DeployFailed as error:
            if _GONE not in str(error):
                raise
            return None

    def deleted(self) -> list[str]:
        """The ARNs of stacks of this name that were deleted in the last 90 days, newest first."""
        pages = self.cloudformation.get_paginator("list_stacks")
        with self.asking("ListStacks"):
            found = [
                (one.get("DeletionTime", one["CreationTime"]), one["StackId"])
                for page in pages.paginate(StackStatusFilter=["DELETE_COMPLETE"])
                for one in page["StackSummaries"]
                if one["StackName"] == self.name
            ]
        return [stack_id for _, stack_id in sorted(found, reverse=True)]

    def resources(self) -> dict[str, tuple[str, str]]:
        """Name in the template -> type and physical id, of what the stack has."""
        pages = self.cloudformation.get_paginator("list_stack_resources")
        with self.asking("ListStackResources"):
            return {
                one["LogicalResourceId"]: (one["ResourceType"], one.get("PhysicalResourceId", ""))
                for page in pages.paginate(StackName=self.name)
                for one in page["StackResourceSummaries"]
                if one["ResourceStatus"] != "DELETE_COMPLETE"
            }

    def events(self, stack_id: str | None = None) -> Iterator[tuple[str, StackEvent]]:
        """The stack's events with their ids, newest first; an ARN also finds a deleted stack."""
        pages = self.cloudformation.get_paginator("describe_stack_events")
        with self.asking("DescribeStackEvents"):
            for page in pages.paginate(StackName=stack_id or self.name):
                for one in page["StackEvents"]:
                    yield (
                        one["EventId"],
                        StackEvent(
                            one["LogicalResourceId"],
                            one.get("ResourceStatus", ""),
                            one.get("ResourceStatusReason", ""),
                            one.get("ResourceType", ""),
                            one.get("PhysicalResourceId", ""),
                            one.get("ClientRequestToken", ""),
                        ),
                    )

    def follow(
        self,
        stack_id: str,
        token: str,
        before: str,
        on_event: Callable[[StackEvent], None] | None = None,
    ) -> Ending:
        """Wait for the end of an operation, by its token; report each of its events once.

        `before` is the id of the newest event before the operation; empty: there was none.
        """
        seen: list[StackEvent] = []
        last = before
        deadline_s = time.monotonic() + self.timeout_s
        while True:
            known = last
            new = list(takewhile(lambda one: one[0] != known, self.events(stack_id)))  # noqa: B023
            last = new[0][0] if new else last
            for _, event in reversed(new):
                seen.append(event)
                if on_event is not None:
                    on_event(event)
            ending = ending_in(seen, token)
            if ending is not None:
                return ending
            if time.monotonic() > deadline_s:
                raise DeployFailed(
                    f"stack {self.name!r} is still at work after {self.timeout_s:.0f} s: "
                    f"{seen[-1].status if seen else 'no event of the operation was seen'}"
                )
            time.sleep(self.poll_s)

    def newest_event(self, stack_id: str | None = None) -> str:
        """Its id; empty: there is no event."""
        return next((key for key, _ in self.events(stack_id)), "")

    @contextmanager
    def asking(self, call: str) -> Iterator[None]:
        """What CloudFormation calls invalid is a matter of this deployment."""
        try:
            with translated(f"{call} of {self.name!r}"):
                yield
        except RequestRejected as error:
            raise DeployFailed(str(error)) from error
