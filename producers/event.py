"""An app's event, the entry that is made of it, and the receipt that the app gets back."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from countledger.ledger import keys
from countledger.ledger.amount import parse_delta, to_text
from countledger.ledger.clock import to_datetime, to_ms
from countledger.ledger.entry import EntryColumns, check_note, describe_entry, new_entry
from countledger.ledger.errors import (
    BadDelta,
    BadInput,
    IdempotencyKeyReused,
    SetupError,
    Unacknowledged,
    shown,
)
from countledger.ledger.exact import decode_head
from countledger.ledger.ids import IdempotencyKey, RangeKey, check_key, id_of_key
from countledger.ledger.texts import plain_int

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from countledger.ledger.amount import Amount
    from countledger.ledger.attributes import Item
    from countledger.ledger.entry import Entry, Note

_T = TypeVar("_T")

# More than a flush can coalesce, and few enough that sums of them stay exact numbers.
EVENTS_MAX: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Event:
    """One change of a counter, as an app emits it; checked when it is made.

    Attributes:
        counter: the counter's name: `namespace:rest`, or a plain name in namespace `default`.
        delta: what to add: an int or an exact decimal, not zero, of at most 20 digits before the
            decimal point and 9 after it.
        key: what makes a retry recognisable: a bare text, a text with the time it was made, or a
            range of another system's records.
        occurred_at: the event's own business time, aware, any time; no part of the identity. It is
            kept in UTC, and what is finer than a millisecond is cut off.
        note: own short texts, at most 1,024 bytes in all; copied, and read-only then.
        events: how many of the app's own events the delta sums, 1 to 1,000,000,000; the total
            counts them. No part of the identity.

    Raises:
        BadCounterName, BadDelta, BadKey, BadTime, BadNote: naming the value and the rule.
    """

    counter: str
    delta: Amount
    key: str | IdempotencyKey | RangeKey | None = None
    occurred_at: datetime | None = None
    note: Mapping[str, str] | None = field(default=None, hash=False)
    events: int = 1

    def __init__(  # noqa: PLR0917 - of an event, in its order
        self,
        counter: str,
        delta: Amount,
        key: str | IdempotencyKey | RangeKey | None = None,
        occurred_at: datetime | None = None,
        note: Mapping[str, str] | None = None,
        events: int = 1,
    ) -> None:
        counter = keys.check_counter(counter)
        delta = parse_delta(delta)
        if key is not None and not isinstance(key, IdempotencyKey | RangeKey):
            key = check_key(key)
        number = plain_int(events)
        if number is None or not 1 <= number <= EVENTS_MAX:
            raise BadDelta(
                f"events={shown(events)}: a delta sums 1 to {EVENTS_MAX:,} events; give an int"
            )
        events = number
        if occurred_at is not None:
            occurred_at = to_datetime(to_ms(occurred_at))
        if note is not None:
            note = check_note(note)
        made: Any = self
        if type(self) is not Event:
            # An object of an extended class keeps its class: it has a layout of its own.
            values = counter, delta, key, occurred_at, note, events
            for name, value in zip(Event.__slots__, values, strict=True):
                object.__setattr__(made, name, value)
            return
        _set_class(made, _EventTwin)
        made.counter = counter
        made.delta = delta
        made.key = key
        made.occurred_at = occurred_at
        made.note = note
        made.events = events
        made.__class__ = Event

    def __post_init__(self) -> None:
        """Check an object of a dataclass that extends this one: its own `__init__` calls this."""
        Event.__init__(
            self, self.counter, self.delta, self.key, self.occurred_at, self.note, self.events
        )


class _EventTwin:
    """What an event is while its attributes are set; as the twin of an entry."""

    __slots__ = Event.__slots__


_set_class: Final = vars(object)["__class__"].__set__
_new: Final = object.__new__

# The values of an event: a plain tuple, which the garbage collector does not look through.
EventValues: TypeAlias = (
    "tuple[str, Amount, str | IdempotencyKey | RangeKey | None, datetime | None, Note | None, int]"
)
_values_of: Final = attrgetter("counter", "delta", "key", "occurred_at", "note", "events")


def values_of(events: Iterable[Event]) -> list[EventValues]:
    """The values of each event, in their order; what is no `Event` is refused."""
    found: list[EventValues] = []
    for event in events:
        if not isinstance(event, Event):
            raise not_an_event(event)
        found.append(_values_of(event))
    return found


def gathered(events: Iterable[Event]) -> list[Event]:
    """Events as a list; what is no `Event` is refused."""
    found = list(events)
    if wrong := {kind for kind in {*map(type, found)} if not issubclass(kind, Event)}:
        raise not_an_event(next(one for one in found if type(one) in wrong))
    return found


def not_an_event(value: object) -> BadInput:
    """The error of what an app passes in place of an event."""
    return BadInput(
        f"{shown(value)} is of type {type(value).__name__}, not an Event: make one with "
        "`countledger.Event(counter, delta)`"
    )


def make_entry(event: Event, *, now_ms: int, origin: str, new_id: Callable[[int], str]) -> Entry:
    """The entry of an event: made once, sent again until it is acknowledged.

    `now_ms` is its time if its key has none. `new_id` makes an id for a millisecond, for an event
    without a key.
    """
    return _entry_of(_values_of(event), map(new_id, (now_ms,)), now_ms, origin)


def make_entries(
    events: Sequence[EventValues],
    *,
    now_ms: int,
    origin: str,
    new_ids: Callable[[int, int], list[str]],
) -> Sequence[Entry]:
    """The entries of events, as `make_entry` makes each; `new_ids` makes so many at a time."""
    ids = new_ids(now_ms, [key for _, _, key, *_ in events].count(None))
    if events and len(ids) == len(events):
        counters, deltas, _, times, notes, numbers = zip(*events, strict=True)
        if times.count(None) == notes.count(None) == len(events):
            return EntryColumns(counters, ids, deltas, (now_ms,) * len(ids), origin, numbers)
    each = iter(ids)
    return [_entry_of(event, each, now_ms, origin) for event in events]


def _entry_of(event: EventValues, new_ids: Iterator[str], now_ms: int, origin: str) -> Entry:
    """The entry of an event; of one without a key under the next id."""
    counter, delta, key, occurred_at, note, events = event
    at_ms, occurred_at_ms = now_ms, None if occurred_at is None else to_ms(occurred_at)
    if key is None:
        entry_id = next(new_ids)
    else:
        if isinstance(key, RangeKey):
            key = key.idempotency_key()
        entry_id = id_of_key(key)
        if isinstance(key, IdempotencyKey):
            at_ms, key = key.at_ms, key.key
    return new_entry(counter, entry_id, delta, at_ms, origin, events, key, note, occurred_at_ms)


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
        stored_at: of a duplicate the creation time of the entry that counts; None if recorded.
        occurred_at: of a duplicate what that entry has; None if it has none, or if recorded.
        events: of a duplicate how many events that entry is; None if recorded.

    A duplicate may come with another `occurred_at`, note or number of events: nothing of it is
    stored. Only another delta is refused.
    """

    counter: str
    id: str
    status: Status
    stored_at: datetime | None = None
    occurred_at: datetime | None = None
    events: int | None = None


# Python 3.11 takes as long to find the member of an enum as to call a function.
_RECORDED: Final = Status.RECORDED


class _ReceiptTwin:
    """What a receipt is while it is made; as the twin of an entry."""

    __slots__ = Receipt.__slots__


def receipt_of(counter: str, entry_id: str) -> Receipt:
    """The receipt of an entry that this call recorded."""
    made: Any = _new(_ReceiptTwin)  # without `__init__`, in two thirds of the time
    made.counter = counter
    made.id = entry_id
    made.status = _RECORDED
    made.stored_at = made.occurred_at = made.events = None
    made.__class__ = Receipt
    return made  # type: ignore[no-any-return]  # it is a receipt now


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
    """The outcomes of `count` events as a list; none is lost where sending them ended early.

    A `SetupError` of `outcomes`, which concerns every event, is raised where no event can have been
    written (`may_be_in`: the outcomes of which one may have been). Otherwise it is the outcome of
    each event that was not sent.
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
    """The receipt of an entry whose id exists in the ledger; with another delta an error."""
    delta = stored.get("delta")
    if delta == entry.delta:
        at, occurred, events = map(stored.get, ("at", "occurred_at", "events"))
        return Receipt(
            entry.counter,
            entry.id,
            Status.DUPLICATE,
            to_datetime(at) if isinstance(at, int) else None,
            to_datetime(occurred) if isinstance(occurred, int) else None,
            events if isinstance(events, int) else 1,
        )
    used = to_text(delta) if isinstance(delta, int | Decimal) else delta
    raise IdempotencyKeyReused(
        f"{describe_entry(entry)} was used for a delta of {used}, and now comes with "
        f"{to_text(entry.delta)}: a new change needs a new key"
    )


def is_merged(entry: Entry, sort_key: str, head: Item | None) -> bool:
    """Whether a head names an entry, with its time and its delta, among those that it merged."""
    found = decode_head(head)
    if not found.has_merged(sort_key, entry.at_ms):
        return False
    return found.covers[sort_key].delta == entry.delta
