"""Removes a stack: what it would do, and each step of it, which can be repeated after a crash.

plan       what is attached to its policies, what is deleted, what is kept
detach     take its policies from users, groups and roles: IAM deletes no policy in use
delete     the stack, followed by its own events
then       the tables, on request: they are not deleted with the stack
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.deploy.stack_operation import DeployFailed
from countledger.infra.template import TABLES
from countledger.ledger.errors import TableNotFound
from countledger.ledger.ids import unique_id
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

    from countledger.infra.deploy.stack_operation import StackEvent, StackReader


# The tables of a stack, which outlive it: found, looked at, deleted.
#
# A stack that failed at its creation, or that was deleted, still names them: by its resources, and
# by its events, which CloudFormation keeps for 90 days under the stack's ARN.


_TABLE: Final = "AWS::DynamoDB::GlobalTable"
_ALL: Final = (*TABLES, "Strict")


@dataclass(frozen=True, slots=True)
class RetainedTable:
    """A table that exists, by its name in the template; `empty`: it has no item at all.

    DynamoDB deletes no single replica of a `strong` one (multi-region strong consistency).
    """

    resource: str
    name: str
    empty: bool
    protected: bool
    strong: bool = False


def tables_of(
    stack: StackReader, stack_id: str, dynamodb: DynamoDBClient, *, live: bool = True
) -> tuple[RetainedTable, ...]:
    """The tables of a stack that exist now. Half a read unit and more for each, by a scan.

    The ARN of a stack also finds a deleted one; `live`: its resources can be listed.
    """
    names: dict[str, str] = {}
    for _, event in stack.events(stack_id):  # newest first
        if event.kind == _TABLE and event.made:
            names.setdefault(event.resource, event.made)
    for resource, (kind, made) in (stack.resources() if live else {}).items():
        if kind == _TABLE and made:
            names[resource] = made
    found = (_looked_at(dynamodb, one, names[one]) for one in _ALL if one in names)
    return tuple(one for one in found if one is not None)


def _looked_at(dynamodb: DynamoDBClient, resource: str, name: str) -> RetainedTable | None:
    try:
        with translated(f"DescribeTable of {name}"):
            table = dynamodb.describe_table(TableName=name)["Table"]
    except TableNotFound:
        return None
    with translated(f"Scan of {name}"):
        # One item would be enough; a page without any could still be followed by another.
        page = dynamodb.scan(TableName=name, Limit=1, ConsistentRead=True, Select="COUNT")
    empty = page["Count"] == 0 and "LastEvaluatedKey" not in page
    protected = table.get("DeletionProtectionEnabled", False)
    strong = table.get("MultiRegionConsistency") == "STRONG"
    return RetainedTable(resource, name, empty, protected, strong)


def delete_table(dynamodb: DynamoDBClient, table: RetainedTable) -> None:
    """Delete a table with all its items, protected or not, and wait until it is gone.

    With point-in-time recovery on, DynamoDB keeps a backup of it for 35 days.
    """
    try:
        if table.protected:
            with translated(f"UpdateTable of {table.name}"):
                dynamodb.update_table(TableName=table.name, DeletionProtectionEnabled=False)
                dynamodb.get_waiter("table_exists").wait(TableName=table.name)
        with translated(f"DeleteTable of {table.name}"):
            dynamodb.delete_table(TableName=table.name)
            dynamodb.get_waiter("table_not_exists").wait(TableName=table.name)
    except TableNotFound:
        return  # somebody else deleted it


_POLICY: Final = "AWS::IAM::ManagedPolicy"
_DELETING: Final = "DELETE_IN_PROGRESS"
_DELETED: Final = "DELETE_COMPLETE"
# In ListEntitiesForPolicy: the list, the name in it, and the kind of entity.
_ENTITIES: Final = (
    ("PolicyGroups", "GroupName", "group"),
    ("PolicyRoles", "RoleName", "role"),
    ("PolicyUsers", "UserName", "user"),
)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A policy of the stack that somebody has."""

    policy: str
    arn: str
    kind: str
    entity: str


@dataclass(frozen=True, slots=True)
class DestroyPlan:
    """What removing a stack means; status `DELETE_COMPLETE`: only its tables are left."""

    stack_id: str
    status: str
    protected: bool
    resources: int
    attachments: tuple[Attachment, ...]
    tables: tuple[RetainedTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Destruction:
    """Removes one stack; without `role_arn` CloudFormation works under that of the last change."""

    stack: StackReader
    iam: Any
    dynamodb: DynamoDBClient
    role_arn: str | None = None

    def plan(self) -> DestroyPlan | None:
        """What there is to remove; None: neither a stack nor a table of one.

        A few calls, one for each policy of the stack, and what `tables_of` costs.
        """
        described = self.stack.describe()
        if described is None:
            return self._of_deleted()
        stack_id = described["StackId"]
        resources = self.stack.resources()
        policies = {name: made for name, (kind, made) in resources.items() if kind == _POLICY}
        return DestroyPlan(
            stack_id,
            described["StackStatus"],
            described.get("EnableTerminationProtection", False),
            len(resources),
            tuple(self._attachments(policies)),
            tables_of(self.stack, stack_id, self.dynamodb),
        )

    def detach(self, one: Attachment) -> None:
        calls = {
            "group": self.iam.detach_group_policy,
            "role": self.iam.detach_role_policy,
            "user": self.iam.detach_user_policy,
        }
        name = f"{one.kind.title()}Name"
        with translated(f"detaching {one.policy} from {one.kind} {one.entity}"):
            calls[one.kind](**{name: one.entity, "PolicyArn": one.arn})

    def delete(
        self, plan: DestroyPlan, on_event: Callable[[StackEvent], None] | None = None
    ) -> None:
        """Delete the stack and wait for the end; a deletion that is under way is awaited."""
        if plan.status == _DELETED:
            return
        if plan.status == _DELETING:
            status, reason = self._awaited(plan.stack_id)
        else:
            token = f"countledger-{unique_id()}"
            before = self.stack.newest_event(plan.stack_id)
            role: Any = {"RoleARN": self.role_arn} if self.role_arn else {}
            with self.stack.asking("DeleteStack"):
                self.stack.cloudformation.delete_stack(
                    StackName=plan.stack_id, ClientRequestToken=token, **role
                )
            ending = self.stack.follow(plan.stack_id, token, before, on_event)
            status, reason = ending.status, ending.reason()
        if status != _DELETED:
            raise DeployFailed(
                f"stack {self.stack.name!r} ended as {status}: {reason}; correct that, then run "
                "`countledger destroy` again"
            )

    def delete_tables(self, plan: DestroyPlan) -> None:
        """Delete the tables, the totals first: what is left after a crash is the ledger.

        One of multi-region strong consistency stays: it goes in all its regions or in none.
        """
        for table in reversed(plan.tables):
            if not table.strong:
                delete_table(self.dynamodb, table)

    def _of_deleted(self) -> DestroyPlan | None:
        """The tables of the newest deleted stack that left any: plans of a stack leave none."""
        for stack_id in self.stack.deleted():
            tables = tables_of(self.stack, stack_id, self.dynamodb, live=False)
            if tables:
                return DestroyPlan(
                    stack_id, _DELETED, protected=False, resources=0, attachments=(), tables=tables
                )
        return None

    def _attachments(self, policies: dict[str, str]) -> Iterator[Attachment]:
        pages = self.iam.get_paginator("list_entities_for_policy")
        for policy, arn in sorted(policies.items()):
            with translated(f"ListEntitiesForPolicy of {policy}"):
                for page in pages.paginate(PolicyArn=arn):
                    for listed, name, kind in _ENTITIES:
                        for one in page.get(listed, ()):
                            yield Attachment(policy, arn, kind, one[name])

    def _awaited(self, stack_id: str) -> tuple[str, str]:
        """Wait for the end of a deletion that an earlier call began: its status and the reason."""
        deadline_s = time.monotonic() + self.stack.timeout_s
        while True:
            with self.stack.asking("DescribeStacks"):
                found = self.stack.cloudformation.describe_stacks(StackName=stack_id)["Stacks"][0]
            if found["StackStatus"] != _DELETING or time.monotonic() > deadline_s:
                return found["StackStatus"], found.get("StackStatusReason", "no reason given")
            time.sleep(self.stack.poll_s)
