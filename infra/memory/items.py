"""What DynamoDB makes of items: conditions, updates, indexes, sizes and units. Pure.

Sizes and units follow the rules of DynamoDB's guide, which gives the size of a number as
approximate: one byte for two significant digits, and one.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any, Final, cast

from countledger.ledger import amount
from countledger.ledger.errors import RequestRejected, SumOverflow
from countledger.ledger.limits import NUMBER_MAX_DIGITS
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    BeginsWith,
    Between,
    Compare,
    Condition,
    Lacks,
    Page,
    SizeAtMost,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from countledger.infra.memory.table import Table
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Clause, Query


_RELATIONS: Final[dict[str, Any]] = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_LIMIT: Final = 10**NUMBER_MAX_DIGITS
_SORT_KEYS: Final = ("entry", "part")
_WRITE_BYTES: Final = 1_024
_READ_BYTES: Final = 4 * 1_024
# What a list or map adds, and each of its elements.
_NESTED: Final = 3


def key_of(item: Mapping[str, Any]) -> tuple[str, str]:
    """Partition and sort key of an item, or of its key."""
    sort = next(name for name in _SORT_KEYS if name in item)
    return item["counter"], item[sort]


def holds(condition: Condition, item: Item) -> bool:
    """Whether a condition is true of an item; an item that does not exist has no attributes."""
    if isinstance(condition, AllOf):
        return all(holds(one, item) for one in condition.conditions)
    if isinstance(condition, AnyOf):
        return any(holds(one, item) for one in condition.conditions)
    return _is_true_of(condition, item)


def _is_true_of(condition: Condition, item: Item) -> bool:  # noqa: PLR0911 - one for each kind
    if isinstance(condition, Absent):
        return condition.name not in item
    if isinstance(condition, Compare):
        if condition.operator == "<>":
            return bool(item.get(condition.name) != condition.value)
        relation = _RELATIONS[condition.operator]
        return condition.name in item and relation(item[condition.name], condition.value)
    if isinstance(condition, Lacks):
        return condition.value not in cast("set[str]", item.get(condition.name, set()))
    if isinstance(condition, SizeAtMost):
        return condition.name in item and len(item[condition.name]) <= condition.size
    if isinstance(condition, BeginsWith):
        return str(item.get(condition.name, "")).startswith(condition.prefix)
    if isinstance(condition, Between):
        value: Any = item.get(condition.name)
        low: Any = condition.low
        high: Any = condition.high
        return value is not None and low <= value <= high
    raise TypeError(f"no rule evaluates {condition!r}")


def changed(item: Item, clauses: Iterable[Clause]) -> Item:
    """The item after an update.

    Raises:
        RequestRejected: it adds to an attribute that is not a number.
        SumOverflow: a number that it writes has more than 38 digits.
    """
    after = dict(item)
    for clause in clauses:
        if isinstance(clause, Assign):
            if isinstance(clause.value, int | Decimal) and not _is_storable(clause.value):
                raise SumOverflow("the number needs more than 38 digits")
            after[clause.name] = clause.value
        elif isinstance(clause, AssignOnce):
            after.setdefault(clause.name, clause.value)
        elif isinstance(clause, Add):
            after[clause.name] = _added(after.get(clause.name), clause.value)
        else:
            after.pop(clause.name, None)
    return after


def _is_storable(total: int | Decimal) -> bool:
    """Whether DynamoDB can store a number: it has at most 38 significant digits."""
    if isinstance(total, int) and -_LIMIT < total < _LIMIT:
        return True
    digits = "".join(map(str, Decimal(total).as_tuple().digits)).strip("0")
    return len(digits) <= NUMBER_MAX_DIGITS


def _added(stored: Any, added: Any) -> Any:  # noqa: ANN401 - a number or a set
    if isinstance(added, set):
        return (stored or set()) | added
    stored = 0 if stored is None else stored
    if not isinstance(stored, int | Decimal):
        raise RequestRejected(f"{stored!r} is not a number")
    total = amount.add(stored, added)
    if not _is_storable(total):
        raise SumOverflow("the number needs more than 38 digits")
    return total


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
    if isinstance(value, int):
        whole = str(abs(value))
    else:
        whole = "".join(map(str, value.as_tuple().digits))
    digits = len(whole.strip("0"))
    return (digits + 1) // 2 + (2 if value < 0 else 1)


def read_units(size: int, *, consistent: bool) -> float:
    """The units of one read of so many bytes."""
    return max(1, -(-size // _READ_BYTES)) * (1.0 if consistent else 0.5)


def write_units(*sizes: int) -> float:
    """The units of one write: of the larger of the items before and after it."""
    return float(max(1, -(-max(sizes) // _WRITE_BYTES)))


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
