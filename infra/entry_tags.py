"""The tags of the stack on the table of the entries, which CloudFormation leaves without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_dynamodb import DynamoDBClient

# What AWS itself writes, and nobody else may.
_RESERVED: Final = "aws:"


def tag_entries(dynamodb: DynamoDBClient, table: str, tags: Mapping[str, str]) -> None:
    """Give the table of the entries the tags of its stack: two calls, or none without tags.

    A stack hands its tags on to every resource that has tags. A global table has none itself, but
    for each of its replicas, and gets nothing.

    Raises:
        AccessDenied: whoever deploys may not tag a table.
    """
    given = [{"Key": k, "Value": v} for k, v in tags.items() if not k.startswith(_RESERVED)]
    if not given:
        return
    with translated(f"TagResource of {table}"):
        arn = dynamodb.describe_table(TableName=table)["Table"]["TableArn"]
        dynamodb.tag_resource(ResourceArn=arn, Tags=given)  # type: ignore[arg-type]  # is of its shape
