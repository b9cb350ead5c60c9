"""A group of counters as a value, and as an item of the directory of groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.attributes import check_format, require
from countledger.ledger.ranking import is_on

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item


@dataclass(frozen=True, slots=True)
class Group:
    """A group.

    Attributes:
        name: its name.
        ranked: whether its totals are kept in order.
    """

    name: str
    ranked: bool


def decode_group(item: Item) -> Group:
    """The group in an item of the directory.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    name = require(item, "part", str).removeprefix(keys.GROUP_PREFIX)
    return Group(name, bool(is_on(item)))
