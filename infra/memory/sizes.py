"""Sizes of items and the units that requests consume, by the rules of DynamoDB's guide. Pure.

The guide gives the size of a number as approximate: one byte for two significant digits, and one.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

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
