"""Sizes of items and the units that requests consume, by the rules of DynamoDB's guide. Pure.

The guide gives the size of a number as approximate: one byte for two significant digits, and one.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.memory.indexes import INDEXES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from countledger.infra.memory.indexes import Index
    from countledger.infra.memory.table import Table
    from countledger.ledger.attributes import Item

_WRITE_BYTES: Final = 1_024
_READ_BYTES: Final = 4 * 1_024
# What a list or map adds, and each of its elements.
_NESTED: Final = 3


def item_bytes(item: Mapping[str, Any] | None) -> int:
    """The size of an item: names and values; 0 of an item that does not exist."""
    if item is None:
        return 0
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(value: Any) -> int:  # noqa: ANN401, PLR0911 - one for each type
    """The size of a value."""
    if isinstance(value, str):
        return len(value.encode())
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, int | Decimal):
        return _number_bytes(value)
    if isinstance(value, set | frozenset):
        return sum(map(value_bytes, value))
    if isinstance(value, dict):
        inner = sum(len(name.encode()) + value_bytes(one) + 1 for name, one in value.items())
        return _NESTED + inner
    if isinstance(value, list | tuple):
        return _NESTED + sum(value_bytes(one) + 1 for one in value)
    return len(bytes(value))


def _number_bytes(value: int | Decimal) -> int:
    digits = "".join(map(str, Decimal(value).as_tuple().digits)).strip("0")
    return (len(digits) + 1) // 2 + (2 if value < 0 else 1)


def read_units(size: int, *, consistent: bool) -> float:
    """The units of one read of so many bytes."""
    return max(1, -(-size // _READ_BYTES)) * (1.0 if consistent else 0.5)


def write_units(*sizes: int) -> float:
    """The units of one write: of the larger of the items before and after it."""
    return float(max(1, -(-max(sizes) // _WRITE_BYTES)))


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
