"""The tables of a stack, which outlive it: found, looked at, deleted.

A stack that failed at its creation, or that was deleted, still names them: by its resources, and by
its events, which CloudFormation keeps for 90 days under the stack's ARN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.infra.template import TABLES
from countledger.ledger.errors import TableNotFound
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from countledger.infra.deploy.stack_operation import StackReader

_TABLE: Final = "AWS::DynamoDB::GlobalTable"
_ALL: Final = (*TABLES, "Strict")


@dataclass(frozen=True, slots=True)
class RetainedTable:
    """A table that exists.

    Attributes:
        resource: its name in the template, `Ledger`, `Counters` or `Strict`.
        name: its name.
        empty: whether it has no item at all.
        protected: whether DynamoDB refuses to delete it.
        strong: whether it has multi-region strong consistency: then DynamoDB deletes no single
            replica of it.
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

    Args:
        stack: reads the stack.
        stack_id: its ARN, which also finds a deleted one.
        dynamodb: the client to its region.
        live: whether the stack exists, so that its resources can be listed.
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

    Raises:
        AccessDenied: the caller has no permission to change or delete it.
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
