"""The change log: the entries of a counter that are not yet compacted, newest first.

Within a key prefix, entries whose id begins with a time are in the order of that time. Entries of a
bare key follow them, ordered by their hash. So the newest entries of each prefix are read from its
end, and the entries of bare keys are all read and sorted.

Entries that the head covers are part of the head, also while they are still visible.
"""

from __future__ import annotations

from functools import partial
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import decoded, describe
from countledger.ledger.entry import Entry, decode_entry
from countledger.ledger.errors import BadSetting, BadTime, CorruptItem
from countledger.ledger.expressions import AllOf, Between, Compare
from countledger.ledger.head import NO_HEAD, Head
from countledger.ledger.operations import Query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.attributes import Item, OnCorrupt
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.expressions import Condition

# After every id that begins with a hex digit, and before those of bare keys.
_BEHIND_TIMES = "g"
# After those too, so that keys that another program made are read as well.
_BEHIND_ALL = "\U0010ffff"


def newest_first(
    dynamo: DynamoClient,
    table: str,
    counter: str,
    spread: int,
    limit: int | None = None,
    *,
    head: Head = NO_HEAD,
    on_corrupt: OnCorrupt | None = None,
) -> Iterator[Entry]:
    """The newest entries of a counter: half a read unit for each 4 KB read.

    Two queries for each prefix, so at least one read unit for each: 256 for a spread of 256.

    Args:
        dynamo: a DynamoDB client.
        table: the table `ledger`.
        counter: the counter's name.
        spread: of its namespace: so many queries are asked side by side.
        limit: how many entries at the most; None for all.
        head: the counter's head; the entries that it covers are left out.
        on_corrupt: called with the error of each entry that cannot be read, which is left out.

    Raises:
        BadSetting: the limit is below 1.
        CorruptItem: an entry cannot be read, and `on_corrupt` is not given.
    """
    if limit is not None and limit < 1:
        raise BadSetting(
            f"limit {limit} is not a number of entries: give 1 or more, or no limit for all"
        )
    read = partial(_entries, dynamo, table, counter, head=head, on_corrupt=on_corrupt)
    streams: list[Iterator[Entry]] = []
    bare: list[Entry] = []
    for prefix in keys.entry_prefixes(spread):
        times = Between("entry", prefix, prefix + _BEHIND_TIMES)
        streams.append(read(times, limit))
        hashes = Between("entry", prefix + _BEHIND_TIMES, prefix + _BEHIND_ALL)
        bare += read(hashes, None)
    bare.sort(key=_newness)
    return islice(merge(*streams, bare, key=_newness), limit)


def _newness(entry: Entry) -> int:
    return -entry.at_ms


def _entries(
    dynamo: DynamoClient,
    table: str,
    counter: str,
    range_: Condition,
    page_size: int | None,
    *,
    head: Head,
    on_corrupt: OnCorrupt | None,
) -> Iterator[Entry]:
    read = Query(
        table,
        AllOf(Compare("counter", "=", counter), range_),
        forward=False,
        page_size=page_size,
    )
    for page in dynamo.pages(read):
        for key, entry in decoded(page, _keyed, on_corrupt):
            if not head.has_merged(key, entry.at_ms):
                yield entry


def _keyed(item: Item) -> tuple[str, Entry]:
    """An entry with its sort key, its times fit to be shown."""
    entry = decode_entry(item)
    try:
        _ = entry.at, entry.occurred_at
    except BadTime as error:
        raise CorruptItem(f"{describe(item)}: {error}", item) from error
    return item["entry"], entry
