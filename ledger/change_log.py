"""The change log: the entries of a counter that are not yet compacted, newest first.

Within a key prefix, entries whose id begins with a time lie in the order of that time; those of a
bare key lie behind them, by their hash. So the newest of each prefix are read from its end, and
those of bare keys are read all and sorted.

What the head has taken in stands in the head, also while it is still visible.
"""

from __future__ import annotations

from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.entry import Entry, decode_entry
from countledger.ledger.errors import BadSetting
from countledger.ledger.expressions import AllOf, BeginsWith, Between, Compare
from countledger.ledger.head import NO_HEAD, Head
from countledger.ledger.ids import BARE_KEY_PREFIX
from countledger.ledger.operations import Query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.door import Door
    from countledger.ledger.expressions import Condition

# Behind every id that begins with a hex digit, and before those of bare keys.
_BEHIND_TIMES = "g"


def newest_first(
    door: Door,
    table: str,
    counter: str,
    spread: int,
    limit: int | None = None,
    *,
    head: Head = NO_HEAD,
) -> Iterator[Entry]:
    """The newest entries of a counter: half a read unit for each 4 KB read.

    Two queries for each prefix, so at least one read unit for each: 256 for a spread of 256.

    Args:
        door: a door to DynamoDB.
        table: the table `ledger`.
        counter: the counter's name.
        spread: of its namespace: so many queries are asked side by side.
        limit: how many entries at the most; None for all.
        head: the counter's head; the entries that it covers are left out.

    Raises:
        BadSetting: the limit is below 1.
        CorruptItem: an entry cannot be read.
    """
    if limit is not None and limit < 1:
        raise BadSetting(f"limit {limit} is no number of entries: give 1 or more, or none for all")
    streams: list[Iterator[Entry]] = []
    bare: list[Entry] = []
    for prefix in keys.entry_prefixes(spread):
        times = Between("entry", prefix, prefix + _BEHIND_TIMES)
        streams.append(_entries(door, table, counter, times, limit, head))
        hashes = BeginsWith("entry", prefix + BARE_KEY_PREFIX)
        bare += _entries(door, table, counter, hashes, None, head)
    bare.sort(key=_newness)
    return islice(merge(*streams, bare, key=_newness), limit)


def _newness(entry: Entry) -> int:
    return -entry.at_ms


def _entries(  # noqa: PLR0917 - handed on
    door: Door, table: str, counter: str, range_: Condition, page_size: int | None, head: Head
) -> Iterator[Entry]:
    read = Query(
        table,
        AllOf(Compare("counter", "=", counter), range_),
        forward=False,
        page_size=page_size,
    )
    for page in door.pages(read):
        for item in page:
            entry = decode_entry(item)
            if not head.has_taken_in(item["entry"], entry.at_ms):
                yield entry
