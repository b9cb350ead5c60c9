"""A table that stores values as DynamoDB does, and refuses what DynamoDB refuses."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from countledger.infra.memory.sizes import item_bytes
from countledger.infra.memory.table import Table
from countledger.ledger.attributes import decode, encode
from countledger.ledger.errors import RequestRejected
from countledger.ledger.limits import (
    EXPRESSION_MAX_BYTES,
    EXPRESSION_OPERATORS_MAX,
    ITEM_MAX_BYTES,
    NUMBER_MAX_DIGITS,
)
from countledger.ledger.operations import Update

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.infra.memory.table import Key
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write

# An expression with fewer clauses cannot be too long.
_FEW: Final = 50
_LONG: Final = 10**NUMBER_MAX_DIGITS
# The most bytes of a partition key and of a sort key.
_KEY_MAX_BYTES: Final = (2_048, 1_024)


@dataclass(eq=False)
class StoredTable(Table):
    """A table whose items have been encoded for the service and decoded again."""

    def key_of(self, item: Mapping[str, Any]) -> Key:
        """The key of an item.

        Raises:
            RequestRejected: a key is absent, empty, too long or of a type that no key has.
        """
        for name, most in zip((self.partition, self.sort), _KEY_MAX_BYTES, strict=True):
            if name:
                check_key_value(self.name, name, item.get(name), most)
        return super().key_of(item)

    def after(self, write: Write) -> Item | None:
        """What a write makes of its item.

        Raises:
            RequestRejected: the item is larger than 400 KB, or an expression is too long.
        """
        if isinstance(write, Update) and len(write.clauses) > _FEW:
            check_expressions(write.arguments())
        return self.stored(Table.after(self, write))

    def stored(self, item: Item | None) -> Item | None:
        """An item as the service stores it.

        Raises:
            RequestRejected: the item is larger than 400 KB.
        """
        if item is None:
            return None
        if (size := item_bytes(item)) > ITEM_MAX_BYTES:
            raise RequestRejected(
                f"item size {size:,} bytes has exceeded the maximum allowed size of "
                f"{ITEM_MAX_BYTES:,} bytes"
            )
        return decode(encode({name: _few_digits(value) for name, value in item.items()}))


def _few_digits(value: object) -> object:
    """A long number without the zeroes at its end, which DynamoDB does not count as digits."""
    if not isinstance(value, int) or -_LONG < value < _LONG:
        return value
    sign, digits, _ = Decimal(value).as_tuple()
    text = "".join(map(str, digits))
    kept = text.rstrip("0")
    return Decimal((sign, tuple(map(int, kept)), len(text) - len(kept)))


def check_key_value(table: str, name: str, value: object, most: int) -> None:
    """Check the value of a key attribute.

    Raises:
        RequestRejected: naming the table, the attribute and the rule.
    """
    if isinstance(value, bool) or not isinstance(value, str | bytes | int):
        raise RequestRejected(
            f"key {name!r} of table {table!r} is {value!r}: give a text or number"
        )
    if isinstance(value, str | bytes):
        size = len(value.encode() if isinstance(value, str) else value)
        if not 0 < size <= most:
            raise RequestRejected(
                f"key {name!r} of table {table!r} has {size} bytes: give 1 to {most}"
            )


def check_expressions(arguments: Mapping[str, Any]) -> None:
    """Check the length of the expressions of a request.

    Raises:
        RequestRejected: one has more than 4 KB or 300 operators.
    """
    for name in ("UpdateExpression", "ConditionExpression"):
        text = arguments.get(name, "")
        # Each comparison is an operator, and so is what joins two of them.
        operators = text.count(" = :") + text.count(" AND ") if name.startswith("C") else 0
        if len(text) > EXPRESSION_MAX_BYTES or operators > EXPRESSION_OPERATORS_MAX:
            raise RequestRejected(f"{name} of {len(text)} bytes and {operators} operators")
