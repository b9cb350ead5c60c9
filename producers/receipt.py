"""What a producer gets back for an event."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from countledger.ledger.amount import to_text
from countledger.ledger.entry import describe_entry
from countledger.ledger.errors import IdempotencyKeyReused, SetupError, Unacknowledged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.attributes import Item
    from countledger.ledger.entry import Entry

_T = TypeVar("_T")


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


def unacknowledged(entry: Entry, why: object, place: str = "ledger") -> Unacknowledged:
    """An entry of which nobody can tell whether it is in; it carries itself, to be sent again."""
    return Unacknowledged(
        f"entry {entry.id} of counter {entry.counter!r} was not acknowledged ({why}); it may or "
        f"may not be in the {place}: resend this very entry, it cannot count twice",
        entry,
    )


def complete(
    outcomes: Iterator[_T], count: int, may_be_in: tuple[type, ...]
) -> list[_T | SetupError]:
    """The outcomes of so many events as a list; none is lost where sending them ended early.

    Args:
        outcomes: of the events in their order; may end by raising what concerns every event.
        count: how many events there are.
        may_be_in: the outcomes of which an event may have been written.

    Raises:
        SetupError: what `outcomes` raised, where no event can have been written. Otherwise it is
            the outcome of each event that was not sent.
    """
    found: list[_T | SetupError] = []
    try:
        found.extend(outcomes)
    except SetupError as error:
        if not any(isinstance(one, may_be_in) for one in found):
            raise
        found += [error] * (count - len(found))
    return found


def judge_existing(entry: Entry, stored: Item) -> Receipt:
    """What an entry that is there already means for this one.

    Raises:
        IdempotencyKeyReused: it carries another delta.
    """
    delta = stored.get("delta")
    if delta == entry.delta:
        return Receipt(entry.counter, entry.id, Status.DUPLICATE)
    used = to_text(delta) if isinstance(delta, int | Decimal) else delta
    raise IdempotencyKeyReused(
        f"{describe_entry(entry)} was used for a delta of {used}, and now comes with "
        f"{to_text(entry.delta)}: a new change needs a new key"
    )
