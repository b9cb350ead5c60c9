"""Items as plain Python values, and their form at the service.

An item is a dict of `str`, exact amounts, `bytes`, maps and lists. boto3's own serialiser does the
work; it refuses floats and anything that would be rounded. Numbers are read by ours: boto3's
refuses a sum such as 10^38, which the service holds and spells with 39 digits.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from boto3.dynamodb.types import Binary, TypeDeserializer, TypeSerializer

from countledger.ledger.amount import Amount, from_number
from countledger.ledger.errors import CorruptItem, NewerFormat, shown
from countledger.ledger.limits import DATE_LIMIT_MS, FORMAT, NUMBER_MAX_DIGITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

Item: TypeAlias = dict[str, Any]
Key: TypeAlias = Mapping[str, str]
OnCorrupt: TypeAlias = Callable[[CorruptItem], object]
"""Takes the error of an item that cannot be read, which its reader leaves out."""

_T = TypeVar("_T")

_INTEGER_LIMIT: Final = 10**NUMBER_MAX_DIGITS


class _ExactDeserializer(TypeDeserializer):
    def _deserialize_n(self, value: str) -> Amount:
        return from_number(value)

    def _deserialize_b(self, value: str | bytes) -> Binary:
        # boto3 reads base64; the fast transport leaves it to this place.
        return Binary(b64decode(value) if isinstance(value, str) else value)


_serialize = TypeSerializer().serialize
_deserialize = _ExactDeserializer().deserialize


def encode(item: Mapping[str, object]) -> dict[str, AttributeValueTypeDef]:
    """The item in the service's form; attributes that are None are left out."""
    wire: dict[str, AttributeValueTypeDef] = {}
    for name, value in item.items():
        kind = type(value)
        if kind is str:
            wire[name] = {"S": value}  # type: ignore[typeddict-item]  # just looked at
        elif kind is int and -_INTEGER_LIMIT < value < _INTEGER_LIMIT:
            wire[name] = {"N": str(value)}
        elif value is not None:
            wire[name] = _serialize(value)
    return wire


def encode_value(value: object) -> AttributeValueTypeDef:
    """One value in the service's form.

    Nearly all are texts and integers. Those are spelled right here as boto3 would spell them, in a
    tenth of the time; whatever else there is, also an integer that is too long, is left to boto3.
    """
    if type(value) is str:
        return {"S": value}
    if type(value) is int and -_INTEGER_LIMIT < value < _INTEGER_LIMIT:
        return {"N": str(value)}
    if type(value) is bytes:
        return {"B": value}
    return _serialize(value)


def decode(item: Mapping[str, AttributeValueTypeDef]) -> Item:
    """The item as plain values: integral numbers as `int`, binaries as `bytes`.

    Texts, numbers and binaries are read here, in a fifth of boto3's time.
    """
    plain: Item = {}
    for name, value in item.items():
        if "S" in value and len(value) == 1:
            plain[name] = value["S"]
        elif "N" in value and len(value) == 1:
            plain[name] = from_number(value["N"])
        else:
            raw: Any = value.get("B")
            if type(raw) is str:  # as the fast transport leaves it
                plain[name] = b64decode(raw)
            else:
                plain[name] = raw if type(raw) is bytes else _plain(_deserialize(value))
    return plain


def _plain(value: object) -> object:
    if isinstance(value, Binary):
        raw: Any = value
        return bytes(raw)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value


def check_format(item: Item) -> None:
    """Raise NewerFormat if the item's format number is higher than this release's."""
    version = item.get("v", 1)
    if version != FORMAT:
        raise NewerFormat(
            f"{describe(item)} has format {shown(version)}; this release reads up to {FORMAT}", item
        )


def require(item: Item, name: str, kind: type[_T]) -> _T:
    """An attribute of that type; CorruptItem if it is absent or of another one."""
    value = optional(item, name, kind)
    if value is None:
        raise CorruptItem(f"{describe(item)} has no {name!r}", item)
    return value


def optional(item: Item, name: str, kind: type[_T]) -> _T | None:
    """An attribute that may be absent; CorruptItem if it is of another type."""
    value = item.get(name)
    if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    raise CorruptItem(f"{describe(item)}: {name!r} is {shown(value)}, not {kind.__name__}", item)


def optional_time(item: Item, name: str) -> int | None:
    """Milliseconds since the epoch, or None; CorruptItem if they are no date of this calendar."""
    value = optional(item, name, int)
    if value is None or 0 <= value < DATE_LIMIT_MS:
        return value
    raise CorruptItem(f"{describe(item)}: {name!r} is {shown(value)}, no time", item)


def require_time(item: Item, name: str) -> int:
    """As `optional_time`, of a time that must be there."""
    require(item, name, int)
    return optional_time(item, name) or 0


def require_amount(item: Item, name: str) -> Amount:
    value = item.get(name)
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return value
    raise CorruptItem(f"{describe(item)}: {name!r} is {shown(value)}, not a number", item)


def decoded(
    items: Iterable[Item],
    decode: Callable[[Item], _T],
    on_corrupt: OnCorrupt | None = None,
) -> Iterator[_T]:
    """Items as values; those that cannot be read go to `on_corrupt`, or raise CorruptItem."""
    for item in items:
        try:
            value = decode(item)
        except CorruptItem as error:
            if on_corrupt is None:
                raise
            on_corrupt(error)
        else:
            yield value


def describe(item: Item) -> str:
    """Which item, for a message."""
    sort = item.get("entry", item.get("part"))
    return f"item ({item.get('counter')!r}, {sort!r})"
