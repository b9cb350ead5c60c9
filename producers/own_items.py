"""Items of an app's own tables, written in one transaction with items of countledger.

Each write knows the error of its refusal, and whether an item is as the write would leave it: this
distinguishes a retry from a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from countledger.ledger.amount import from_number
from countledger.ledger.attributes import encode_value
from countledger.ledger.errors import BadItem, ItemInTheWay, shown
from countledger.ledger.limits import ITEM_MAX_BYTES, NAME_MAX_BYTES
from countledger.ledger.operations import Absent, Assign, Delete, Drop, Put, Update, all_unchanged

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Clause, Condition

_KEYS: Final = (str, int, bytes)
_SETS: Final = ("SS", "NS", "BS")


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
    return all_unchanged(held, *held)


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


def check_names(what: str, names: Iterable[object]) -> None:
    """Raise `BadItem` unless names of tables or attributes are texts of 1 to 255 bytes."""
    for name in names:
        if not isinstance(name, str) or not 0 < _name_size(name) <= NAME_MAX_BYTES:
            raise BadItem(f"{what} {shown(name)} is not a name of 1 to {NAME_MAX_BYTES} bytes")


def check_item(item: object, *, besides: Iterable[str] = ()) -> None:
    """Check that DynamoDB can store an item, which must not have the names `besides`."""
    if not isinstance(item, Mapping):
        raise BadItem(f"an item {shown(item)} is a {type(item).__name__}, not a mapping")
    check_names("attribute", item)
    taken = sorted(set(besides) & set(item))
    if taken:
        raise BadItem(f"attribute {taken[0]!r} is set by this call: leave it out of the item")
    size = sum(_name_size(name) + _stored_size(name, value) for name, value in item.items())
    if size > ITEM_MAX_BYTES:
        raise BadItem(f"an item of about {size:,} bytes: at most {ITEM_MAX_BYTES:,} fit")


def _stored_size(name: str, value: object) -> int:
    """About how many bytes a value takes in its stored form, if DynamoDB can store it."""
    try:
        return _size(encode_value(value))  # what JSON cannot carry has no UTF-8 either
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise BadItem(f"attribute {name!r} = {shown(value)} cannot be stored: {reason}") from None


def _size(value: Any) -> int:  # noqa: ANN401 - any part of a stored value
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, Mapping):
        if any(value.get(kind) == [] for kind in _SETS):
            raise ValueError("a set may not be empty")
        return sum(_size(name) + _size(part) for name, part in value.items())
    if isinstance(value, list):
        return sum(_size(part) for part in value)
    return len(value) if isinstance(value, bytes | bytearray) else 1


def _name_size(name: str) -> int:
    """The size of a name; 0 for one that is no Unicode text."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return 0


def check_key(key: object) -> None:
    """Check a key of one or two attributes."""
    if not isinstance(key, Mapping) or len(key) not in (1, 2):
        raise BadItem(f"a key {shown(key)} is not a mapping of one or two attributes")
    check_names("key attribute", key)
    for name, value in key.items():
        empty = value in ("", b"")
        if not isinstance(value, _KEYS) or isinstance(value, bool) or empty:
            raise BadItem(
                f"key attribute {name!r} = {shown(value)} is not a text, an integer or a binary"
            )


def as_stored(item: Mapping[str, object]) -> dict[str, Any]:
    """A form in which equal items are equal, however their values were written."""
    return {name: _worth(encode_value(value)) for name, value in item.items() if value is not None}


def _worth(stored: Any) -> tuple[str, Any]:  # noqa: ANN401 - any value in the service's form
    ((kind, value),) = stored.items()
    match kind:
        case "N":
            return kind, from_number(value)
        case "NS":
            return kind, set(map(from_number, value))
        case "SS" | "BS":
            return kind, set(value)
        case "L":
            return kind, [_worth(part) for part in value]
        case "M":
            return kind, {name: _worth(part) for name, part in value.items()}
        case _:
            return kind, value
