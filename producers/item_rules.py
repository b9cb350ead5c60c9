"""Which of an app's own items DynamoDB can store, and how stored items are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger.amount import from_number
from countledger.ledger.attributes import encode_value
from countledger.ledger.errors import BadItem, shown
from countledger.ledger.limits import ITEM_MAX_BYTES, NAME_MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

_KEYS: Final = (str, int, bytes)
_SETS: Final = ("SS", "NS", "BS")


def check_names(what: str, names: Iterable[object]) -> None:
    """Names of tables or attributes.

    Raises:
        BadItem: one is no text of 1 to 255 bytes.
    """
    for name in names:
        if not isinstance(name, str) or not 0 < _name_size(name) <= NAME_MAX_BYTES:
            raise BadItem(f"{what} {shown(name)} is not a name of 1 to {NAME_MAX_BYTES} bytes")


def check_item(item: object, *, besides: Iterable[str] = ()) -> None:
    """Attributes that DynamoDB can store.

    Args:
        item: from names to values.
        besides: names that it must leave to the call.

    Raises:
        BadItem: naming the attribute and why, or the size.
    """
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
    """About how many bytes a value takes in its stored form.

    Raises:
        BadItem: DynamoDB cannot store it.
    """
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
    """A key of one or two attributes.

    Raises:
        BadItem: naming the attribute and what is wrong with it.
    """
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
