"""Items of an app's own tables, written in one transaction with items of countledger.

Each write knows the error of its refusal, and whether an item is as the write would leave it: this
distinguishes a retry from a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from countledger.ledger.errors import BadItem, ItemInTheWay, shown
from countledger.ledger.expressions import Absent, AllOf, Assign, Compare, Drop
from countledger.ledger.operations import Delete, Put, Update
from countledger.producers.item_rules import as_stored, check_item, check_key, check_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.ledger.attributes import Item
    from countledger.ledger.expressions import Clause, Condition


@dataclass(frozen=True, slots=True)
class NewItem:
    """A new item in an app's own table; refused if an item with its key exists.

    Attributes:
        table: the table's name.
        item: all of its attributes; no floats.
        key: the names of the table's key attributes: the partition key, and the sort key if any.

    Raises:
        BadItem: it cannot be stored.
    """

    table: str
    item: Mapping[str, object]
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        """Check the values."""
        check_names("table", [self.table])
        check_names("key attribute", self.key)
        check_item(self.item)
        if len(self.key) not in (1, 2):
            raise BadItem(f"{self.table!r}: name one or two key attributes, not {self.key!r}")
        check_key({name: self.item.get(name) for name in self.key})

    @property
    def place(self) -> tuple[str, Item]:
        """Its table and its key."""
        return self.table, {name: self.item[name] for name in self.key}

    def write(self) -> Put:
        """The write: one write unit for each KB, two in a transaction."""
        return Put(self.table, dict(self.item), Absent(self.key[0]))

    def done(self, found: Item | None) -> bool:
        """Whether the item exists, with these attributes."""
        return found is not None and as_stored(found) == as_stored(self.item)

    def refused(self, _found: Item | None) -> ItemInTheWay:
        """Why the write was refused."""
        return ItemInTheWay(f"{_shown(self.place)} exists already")


@dataclass(frozen=True, slots=True)
class ItemChange:
    """Attributes of an item of an app's own table; refused if it is absent or not as expected.

    Attributes:
        table: the table's name.
        key: the item's key.
        values: the attributes to set; None takes one away.
        expected: attributes that it must have.

    Raises:
        BadItem: a value cannot be stored, or no attribute is given.
    """

    table: str
    key: Mapping[str, object]
    values: Mapping[str, object]
    expected: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the values."""
        check_names("table", [self.table])
        check_key(self.key)
        if not self.values or set(self.values) & set(self.key):
            raise BadItem(f"{_shown(self.place)}: give attributes to set, none of them of the key")
        check_item({**self.values, **self.key})
        check_item(self.expected)

    @property
    def place(self) -> tuple[str, Item]:
        """Its table and its key."""
        return self.table, dict(self.key)

    def write(self) -> Update:
        """The write: one write unit for each KB, two in a transaction."""
        clauses: tuple[Clause, ...] = tuple(
            Drop(name) if value is None else Assign(name, value)
            for name, value in self.values.items()
        )
        return Update(self.table, self.place[1], clauses, _as_expected(self.key, self.expected))

    def done(self, found: Item | None) -> bool:
        """Whether the item has these attributes."""
        return found is not None and all(
            as_stored({name: found.get(name)}) == as_stored({name: value})
            for name, value in self.values.items()
        )

    def refused(self, found: Item | None) -> ItemInTheWay:
        """Why the write was refused."""
        return _not_as_expected(self.place, found, self.expected)


@dataclass(frozen=True, slots=True)
class ItemDeletion:
    """An item to delete from an app's own table; refused if it is absent or not as expected.

    Attributes:
        table: the table's name.
        key: the item's key.
        expected: attributes that it must have.

    Raises:
        BadItem: the key or an expected attribute is not valid.
    """

    table: str
    key: Mapping[str, object]
    expected: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the values."""
        check_names("table", [self.table])
        check_key(self.key)
        check_item(self.expected)

    @property
    def place(self) -> tuple[str, Item]:
        """Its table and its key."""
        return self.table, dict(self.key)

    def write(self) -> Delete:
        """The write: one write unit for each KB of the item, two in a transaction."""
        return Delete(self.table, self.place[1], _as_expected(self.key, self.expected))

    def done(self, found: Item | None) -> bool:
        """Whether the item does not exist."""
        return found is None

    def refused(self, found: Item | None) -> ItemInTheWay:
        """Why the write was refused."""
        return _not_as_expected(self.place, found, self.expected)


OwnWrite: TypeAlias = NewItem | ItemChange | ItemDeletion


def _as_expected(key: Mapping[str, object], expected: Mapping[str, object]) -> Condition:
    """The item exists and has these attributes."""
    held = {**dict(list(key.items())[:1]), **expected}
    return AllOf(
        *(
            Absent(name) if value is None else Compare(name, "=", value)
            for name, value in held.items()
        )
    )


def _not_as_expected(
    place: tuple[str, Item], found: Item | None, expected: Mapping[str, object]
) -> ItemInTheWay:
    if found is None:
        return ItemInTheWay(f"{_shown(place)} does not exist")
    differing = [
        f"{name} = {shown(found.get(name))}"
        for name, value in expected.items()
        if as_stored({name: found.get(name)}) != as_stored({name: value})
    ]
    return ItemInTheWay(f"{_shown(place)} is not as expected: {', '.join(differing)}")


def _shown(place: tuple[str, Item]) -> str:
    table, key = place
    return f"item {shown(key)} of table {table!r}"
