"""The secondary indexes of the tables: what they list, in which order, at which cost. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.memory.conditions import holds, item_bytes, write_units
from countledger.ledger.operations import Page

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from countledger.infra.memory.table import Table
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Query


@dataclass(frozen=True, slots=True)
class Index:
    """An index; an item without both keys is not in it.

    Attributes:
        partition: the attribute that is its partition key.
        sort: the attribute that is its sort key.
        whole: whether it has all attributes of an item; otherwise the keys only.
    """

    partition: str
    sort: str
    whole: bool = False

    def entry(self, table: Table, item: Item | None) -> Item | None:
        """What the index stores of an item; None: the item is not in it."""
        if item is None or self.partition not in item or self.sort not in item:
            return None
        if self.whole:
            return item
        names = {self.partition: 0, self.sort: 0, table.partition: 0, table.sort: 0}
        return {name: item[name] for name in names if name in item}


# As the template of the stack defines them; the names are unique over both tables.
INDEXES: Final = {
    "namespaces": Index("directory", "counter", whole=True),
    "due": Index("due_bucket", "due_at"),
    "members": Index("member", "counter"),
    "ranks": Index("ranked", "total"),
    "group_ranks": Index("ranked_group", "total"),
}


def index_page(table: Table, read: Query, page_items: int) -> Page:
    """A page of an index: its items in the order of its sort key, then of the table's keys.

    Args:
        table: whose index it is.
        read: the query.
        page_items: the most items of a page, if the query names no number.
    """
    index = INDEXES[str(read.index)]

    def place(item: Mapping[str, Any]) -> tuple[Any, ...]:
        return (item[index.sort], *table.key_of(item))

    entries = (index.entry(table, item) for item in table.items.values())
    found = [one for one in entries if one is not None and holds(read.condition, one)]
    found.sort(key=place, reverse=not read.forward)
    if read.after is not None:
        last = place(read.after)
        found = [one for one in found if (place(one) > last) == read.forward and place(one) != last]
    size = read.page_size or page_items
    shown = [dict(one) for one in found[:size]]
    if len(found) <= size:
        return Page(shown, None, len(shown))
    names = {index.partition: 0, index.sort: 0, table.partition: 0, table.sort: 0}
    return Page(shown, {name: shown[-1][name] for name in names}, len(shown))


def index_units(table: Table, before: Item | None, after: Item | None) -> float:
    """What a write of an item consumes in the indexes of its table."""
    return sum(
        _entry_units(index, index.entry(table, before), index.entry(table, after))
        for index in indexes_of(table)
    )


def indexes_of(table: Table) -> Iterable[Index]:
    """The indexes of a table: `ledger` has one, the table with `part` as sort key the others."""
    if table.sort == "entry":
        return [INDEXES["namespaces"]]
    return [one for one in INDEXES.values() if not one.whole] if table.sort == "part" else []


def _entry_units(index: Index, before: Item | None, after: Item | None) -> float:
    """Nothing unless the entry changes; another key is a deletion and a write."""
    if before == after:
        return 0.0
    old, new = item_bytes(before), item_bytes(after)
    keys = (index.partition, index.sort)
    moved = before and after and [before[one] for one in keys] != [after[one] for one in keys]
    return write_units(old) + write_units(new) if moved else write_units(old, new)
