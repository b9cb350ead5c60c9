"""The names of counters in parts, each of a bounded number of requests.

A table has no index of names, so a search reads all of it. In parts, a caller decides after each of
them whether to go on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.errors import BadSetting, shown
from countledger.ledger.limits import PARTITION_KEY_MAX_BYTES, SORT_KEY_MAX_BYTES
from countledger.ledger.operations import AllOf, BeginsWith, Compare, Scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attributes import Key
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Condition

NAMES_MAX: Final = 1_000
_ITEMS_OF_A_REQUEST: Final = 1_000
_REQUESTS: Final = 20
_TIME_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class NamesPage:
    """A part of the names.

    Attributes:
        names: in no order.
        after: where the next part begins; None: this is the last one.
        items_read: how many items of the tables were read for this part.
    """

    names: tuple[str, ...]
    after: str | None
    items_read: int


def names_page(
    dynamo: DynamoClient, tables: Sequence[str], prefix: str, after: str | None, limit: int
) -> NamesPage:
    """The names with a prefix that come after a place: half a read unit for each 4 KB read.

    A part ends after 20 requests for 1,000 items each, and after a request that ends two seconds
    or more after the part began: an answer comes soon, however slow a table is.

    Args:
        dynamo: a DynamoDB client.
        tables: those with totals, one after the other.
        prefix: of the names; "" = all.
        after: the place, as `NamesPage.after` has it.
        limit: the largest number of names.

    Raises:
        BadSetting: the limit is out of range, or no place is written like this.
    """
    if type(limit) is not int or not 1 <= limit <= NAMES_MAX:
        raise BadSetting(f"limit {shown(limit)} is not a number from 1 to {NAMES_MAX:,}")
    at, key = _place(after, len(tables))
    condition: Condition = Compare("part", "=", keys.TOTAL)
    where = AllOf(condition, BeginsWith("counter", prefix)) if prefix else condition
    names: list[str] = []
    items_read, until_ms = 0, dynamo.clock.now_ms() + _TIME_MS
    for _ in range(_REQUESTS):
        only = ("counter",)
        page = dynamo.page(Scan(tables[at], where, only, after=key, page_size=_ITEMS_OF_A_REQUEST))
        items_read += page.items_read
        names += [item["counter"] for item in page.items]
        if len(names) > limit:
            last = names[limit - 1]
            return NamesPage(tuple(names[:limit]), _written(at, keys.total_key(last)), items_read)
        at, key = (at, page.after) if page.after else (at + 1, None)
        if at == len(tables):
            return NamesPage(tuple(names), None, items_read)
        if dynamo.clock.now_ms() >= until_ms:
            break
    return NamesPage(tuple(names), _written(at, key), items_read)


def _written(table: int, key: Key | None) -> str:
    """A place: the number of a table, and the key of its last item that was read."""
    return json.dumps([table] if key is None else [table, key["counter"], key["part"]])


def _place(after: str | None, tables: int) -> tuple[int, Key | None]:
    if after is None:
        return 0, None
    match _parsed(after):
        case [int() as table] if 0 <= table < tables:
            return table, None
        case [int() as table, str() as counter, str() as part] if (
            0 <= table < tables
            and 0 < len(counter.encode()) <= PARTITION_KEY_MAX_BYTES
            and 0 < len(part.encode()) <= SORT_KEY_MAX_BYTES
        ):
            return table, {"counter": counter, "part": part}
    raise BadSetting(f"place {shown(after)} is not the end of a page of names: start without one")


def _parsed(after: str) -> object:
    try:
        return json.loads(after)
    except ValueError:
        return None
