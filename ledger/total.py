"""The total: a counter's current value, kept by the consumer and read by one GetItem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger.attributes import Item, check_format, optional, require, require_amount
from countledger.ledger.clock import to_datetime

if TYPE_CHECKING:
    from datetime import datetime

    from countledger.ledger.amount import Amount


@dataclass(frozen=True, slots=True)
class Total:
    """A counter's materialized total.

    Attributes:
        counter: its name.
        total: the sum of the deltas that the consumer has taken in; 0 for a counter never seen.
        events: how many events they carried.
        entries: how many entries there were.
        version: how often it was updated; 0 = never.
        updated_at_ms: when it was last updated, milliseconds since the epoch.
    """

    counter: str
    total: Amount = 0
    events: int = 0
    entries: int = 0
    version: int = 0
    updated_at_ms: int | None = None

    @property
    def updated_at(self) -> datetime | None:
        """When it was last updated, in UTC; None for never."""
        return None if self.updated_at_ms is None else to_datetime(self.updated_at_ms)


def decode_total(item: Item) -> Total:
    """The total in an item of `counters`.

    Raises:
        CorruptItem: an attribute is absent or of another type.
        NewerFormat: a later release wrote it.
    """
    check_format(item)
    return Total(
        counter=require(item, "counter", str),
        total=require_amount(item, "total"),
        events=require(item, "events", int),
        entries=require(item, "entries", int),
        version=require(item, "version", int),
        updated_at_ms=optional(item, "updated_at", int),
    )
