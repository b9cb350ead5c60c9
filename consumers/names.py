"""The names of counters that have a total: the table has no index for them, and is read whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.expressions import AllOf, BeginsWith, Compare
from countledger.ledger.operations import Scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.expressions import Condition


def counters_beginning(dynamo: DynamoClient, table: str, prefix: str) -> Iterator[str]:
    """The counters of every kind whose names begin so, in no order, as they are found.

    It scans the whole table: half a read unit for each 4 KB of it, whatever is found. No snapshot:
    a counter that is made meanwhile may be in it or not.

    Args:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        prefix: what the names begin with; "" = all.
    """
    is_total: Condition = Compare("part", "=", keys.TOTAL)
    where = AllOf(is_total, BeginsWith("counter", prefix)) if prefix else is_total
    for page in dynamo.pages(Scan(table, where, only=("counter",))):
        for item in page:
            yield item["counter"]


def counters_of(
    dynamo: DynamoClient, table: str, namespace: str, where: Condition | None = None
) -> Iterator[list[str]]:
    """The counters of a namespace that have a total, in no order, page by page.

    Half a read unit for each 4 KB of the whole table: there is no index of them.

    Args:
        dynamo: a DynamoDB client.
        table: the table `counters`.
        namespace: what stands before their colon.
        where: which of their totals.
    """
    conditions: list[Condition] = [Compare("part", "=", keys.TOTAL)]
    if namespace != keys.DEFAULT_NAMESPACE:  # the names there need no prefix
        conditions.append(BeginsWith("counter", f"{namespace}:"))
    if where is not None:
        conditions.append(where)
    for page in dynamo.pages(Scan(table, AllOf(*conditions), ("counter",))):
        names = (item["counter"] for item in page)
        yield [
            name for name in names if keys.is_counter(name) and keys.namespace_of(name) == namespace
        ]
