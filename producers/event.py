"""What an app emits, and the entry that is made of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.amount import parse_delta
from countledger.ledger.clock import to_ms
from countledger.ledger.entry import Entry, check_note
from countledger.ledger.ids import IdempotencyKey, check_key, id_of_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from countledger.ledger.amount import Amount


@dataclass(frozen=True, slots=True)
class Event:
    """One change of a counter, as an app emits it; valid at birth.

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
        """Refuse at birth, and settle the one spelling of the delta."""
        keys.check_counter(self.counter)
        object.__setattr__(self, "delta", parse_delta(self.delta))
        if self.key is not None and not isinstance(self.key, IdempotencyKey):
            check_key(self.key)
        if self.occurred_at is not None:
            to_ms(self.occurred_at)
        if self.note is not None:
            object.__setattr__(self, "note", check_note(self.note))


def make_entry(event: Event, *, now_ms: int, origin: str, new_id: Callable[[int], str]) -> Entry:
    """The entry of an event: made once, sent as often as it takes.

    Args:
        event: what to record.
        now_ms: the time at which it is made, where its key does not tell.
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
