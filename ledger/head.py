"""The head: the one summary of all entries of a counter that were compacted so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from countledger.ledger.attributes import (
    Item,
    check_format,
    describe,
    optional,
    require,
    require_amount,
)
from countledger.ledger.errors import CorruptItem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.ledger.amount import Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What stands for the compacted entries.

    Attributes:
        generation: how often it was replaced; 0 = there is none yet.
        run: which run of the compactor wrote it.
        sum: the sum of all entries compacted so far.
        events: the events they carried.
        entries: how many there were.
        from_at_ms: when the oldest of them was made.
        to_at_ms: when the newest of them was made.
        covers: sort key -> delta of the entries that this generation took in and that may still
            be visible.
    """

    generation: int = 0
    run: str = ""
    sum: Amount = 0
    events: int = 0
    entries: int = 0
    from_at_ms: int | None = None
    to_at_ms: int | None = None
    covers: Mapping[str, Amount] = field(default_factory=dict)


NO_HEAD = Head()


def decode_head(item: Item | None) -> Head:
    """The head in an item of `ledger`; the empty one where there is none.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
    if item is None:
        return NO_HEAD
    check_format(item)
    covers = require(item, "covers", dict)
    if not all(isinstance(delta, int | Decimal) for delta in covers.values()):
        raise CorruptItem(f"{describe(item)}: 'covers' holds what is no number")
    return Head(
        generation=require(item, "generation", int),
        run=require(item, "run", str),
        sum=require_amount(item, "sum"),
        events=require(item, "events", int),
        entries=require(item, "entries", int),
        from_at_ms=optional(item, "from_at", int),
        to_at_ms=optional(item, "to_at", int),
        covers=covers,
    )
