"""An app's event, the entry that is made of it, and the receipt that the app gets back."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from countledger.ledger import keys
from countledger.ledger.amount import parse_delta, to_text
from countledger.ledger.clock import to_ms
from countledger.ledger.entry import Entry, check_note, describe_entry
from countledger.ledger.errors import IdempotencyKeyReused, SetupError, Unacknowledged
from countledger.ledger.ids import IdempotencyKey, check_key, id_of_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Event:
    """One change of a counter, as an app emits it; checked when it is made.

    Attributes:
        counter: the counter's name: `namespace:rest`, or a plain name in namespace `default`.
        delta: what to add: an int or an exact decimal, not zero, of at most 20 digits before the
            decimal point and 9 after it.
        key: what makes a retry recognisable; a bare text, or a text with the time it was made.
        occurred_at: the event's own business time, aware, any time; no part of the identity.
        note: own short texts, at most 1,024 bytes in all.

    Raises:
        BadCounterName, BadDelta, BadKey, BadTime, BadNote: naming the value and the rule.
    """

    counter: str
    delta: Amount
    key: str | IdempotencyKey | None = None
    occurred_at: datetime | None = None
    note: Mapping[str, str] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        """Check the event, and normalise the delta."""
        keys.check_counter(self.counter)
        object.__setattr__(self, "delta", parse_delta(self.delta))
        if self.key is not None and not isinstance(self.key, IdempotencyKey):
            check_key(self.key)
        if self.occurred_at is not None:
            to_ms(self.occurred_at)
        if self.note is not None:
            object.__setattr__(self, "note", check_note(self.note))


def make_entry(event: Event, *, now_ms: int, origin: str, new_id: Callable[[int], str]) -> Entry:
    """The entry of an event: made once, sent again until it is acknowledged.

    Args:
        event: what to record.
        now_ms: the time at which it is made, if its key has none.
        origin: the region where it is made.
        new_id: makes an id for a millisecond, for events without a key.
    """
    key = event.key
    at_ms = key.at_ms if isinstance(key, IdempotencyKey) else now_ms
    return Entry(
        counter=event.counter,
        id=new_id(at_ms) if key is None else id_of_key(key),
        delta=event.delta,
        at_ms=at_ms,
        origin=origin,
        key=key.key if isinstance(key, IdempotencyKey) else key,
        note=event.note,
        occurred_at_ms=None if event.occurred_at is None else to_ms(event.occurred_at),
    )


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
    """The error of an entry that may be in the ledger or not; it carries the entry for a resend."""
    return Unacknowledged(
        f"entry {entry.id} of counter {entry.counter!r} was not acknowledged ({why}); it may or "
        f"may not be in the {place}: resend exactly this entry, it cannot count twice",
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
    """The receipt of an entry whose id exists in the ledger.

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
