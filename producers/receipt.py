"""What a producer gets back for an event."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from countledger.ledger.amount import to_text
from countledger.ledger.errors import IdempotencyKeyReused

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item
    from countledger.ledger.entry import Entry


class Status(StrEnum):
    """How an entry came to be in the ledger; either way it counts once."""

    RECORDED = "recorded"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The acknowledgement of one entry: it is in the ledger and counts exactly once.

    Attributes:
        counter: the counter's name.
        id: the entry's identity.
        status: `recorded` by this call, or `duplicate` of one recorded before.
    """

    counter: str
    id: str
    status: Status


def judge_existing(entry: Entry, stored: Item) -> Receipt:
    """What an entry that is there already means for this one.

    Raises:
        IdempotencyKeyReused: it carries another delta.
    """
    if stored.get("delta") == entry.delta:
        return Receipt(entry.counter, entry.id, Status.DUPLICATE)
    raise IdempotencyKeyReused(
        f"idempotency key {entry.key!r} of counter {entry.counter!r} was used for a delta of "
        f"{stored.get('delta')}, and now comes with {to_text(entry.delta)}: a new change needs a "
        "new key"
    )
