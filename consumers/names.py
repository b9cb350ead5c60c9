"""The names of counters that have a total, by how they begin: the table has no index for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.expressions import AllOf, BeginsWith, Compare
from countledger.ledger.operations import Scan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.door import Door
    from countledger.ledger.expressions import Condition


def counters_beginning(door: Door, table: str, prefix: str) -> Iterator[str]:
    """The counters of every kind whose names begin so, in no order, as they are found.

    It scans the whole table: half a read unit for each 4 KB of it, whatever is found. No snapshot:
    a counter that is made meanwhile may be in it or not.

    Args:
        door: a door to DynamoDB.
        table: the table `counters`.
        prefix: what the names begin with; "" = all.
    """
    is_total: Condition = Compare("part", "=", keys.TOTAL)
    where = AllOf(is_total, BeginsWith("counter", prefix)) if prefix else is_total
    for page in door.pages(Scan(table, where, only=("counter",))):
        for item in page:
            yield item["counter"]
