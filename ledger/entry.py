"""An entry: one change of one counter, made once and never altered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, overload

from countledger.ledger import keys
from countledger.ledger.attributes import (
    Item,
    check_format,
    describe,
    optional,
    require,
    require_amount,
)
from countledger.ledger.clock import show_duration, to_datetime
from countledger.ledger.errors import BadNote, ClockSkew, CorruptItem, KeyExpired, shown
from countledger.ledger.limits import NOTE_MAX_BYTES, TIME_LIMIT_MS
from countledger.ledger.texts import plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from countledger.ledger.amount import Amount


class Note(dict[str, str]):
    """A note that cannot be changed in place: what is sent is what was checked."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a note cannot be changed: make another event, with another note")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[Note], tuple[dict[str, str]]]:
        """Pickle and copy it as a whole, not item by item."""
        return Note, (dict(self),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a counter's ledger.

    Attributes:
        counter: the counter's name.
        id: its identity within the counter.
        delta: what it adds, exact.
        at_ms: when it was made, milliseconds since the epoch; fixed before the first attempt.
        origin: the AWS region where it was made.
        events: how many events it carries.
        key: the idempotency key, where the caller gave one.
        note: the caller's own short texts.
        occurred_at_ms: the event's own business time, milliseconds since the epoch.
        message_id: the id in its message, where it goes through Kinesis without a key; `id` follows
            from it and the content. It is not stored.
    """

    counter: str
    id: str
    delta: Amount
    at_ms: int
    origin: str
    events: int = 1
    key: str | None = None
    note: Mapping[str, str] | None = None
    occurred_at_ms: int | None = None
    message_id: str | None = field(default=None, compare=False)

    @property
    def at(self) -> datetime:
        """When it was made, in UTC."""
        return to_datetime(self.at_ms)

    @property
    def occurred_at(self) -> datetime | None:
        """The event's own business time, in UTC, where one was given."""
        return None if self.occurred_at_ms is None else to_datetime(self.occurred_at_ms)


class _EntryTwin:
    """What an entry is while it is made: a class of the same attributes that is not frozen.

    A frozen dataclass sets each attribute through `object.__setattr__`, which takes as long as to
    send the entry in a batch; so this takes a quarter of the time.
    """

    __slots__ = Entry.__slots__

    def __init__(  # noqa: PLR0917 - of the entry, in its order
        self,
        counter: str,
        entry_id: str,
        delta: Amount,
        at_ms: int,
        origin: str,
        events: int = 1,
        key: str | None = None,
        note: Mapping[str, str] | None = None,
        occurred_at_ms: int | None = None,
    ) -> None:
        made: Any = self
        made.counter = counter
        made.id = entry_id
        made.delta = delta
        made.at_ms = at_ms
        made.origin = origin
        made.events = events
        made.key = key
        made.note = note
        made.occurred_at_ms = occurred_at_ms
        made.message_id = None
        made.__class__ = Entry


# `Entry(...)` by position, for those who create many.
new_entry: Callable[..., Entry] = _EntryTwin  # type: ignore[assignment]  # it makes an entry of itself


def encode_entry(entry: Entry, spread: int) -> Item:
    """The entry's item in `ledger`; the same entry gives the same item, always."""
    item: Item = {
        "counter": entry.counter,
        "entry": keys.entry_key(entry.id, spread),
        "delta": entry.delta,
        "at": entry.at_ms,
        "origin": entry.origin,
    }
    if entry.events != 1:
        item["events"] = entry.events
    if entry.key is not None:
        item["key"] = entry.key
    if entry.note:
        item["note"] = dict(entry.note)
    if entry.occurred_at_ms is not None:
        item["occurred_at"] = entry.occurred_at_ms
    return item


def decode_entry(item: Item) -> Entry:
    check_format(item)
    entry_id = keys.id_of(require(item, "entry", str))
    if entry_id is None:
        raise CorruptItem(f"{describe(item)} has no entry's sort key", item)
    events, note = optional(item, "events", int), optional(item, "note", dict)
    at_ms = require(item, "at", int)
    if not 0 <= at_ms < TIME_LIMIT_MS:
        raise CorruptItem(f"{describe(item)}: 'at' is {shown(at_ms)}, no time of an entry", item)
    return Entry(
        counter=require(item, "counter", str),
        id=entry_id,
        delta=require_amount(item, "delta"),
        at_ms=at_ms,
        origin=require(item, "origin", str),
        events=1 if events is None else events,
        key=optional(item, "key", str),
        note=None if note is None else Note(note),
        occurred_at_ms=optional(item, "occurred_at", int),
    )


def check_note(note: object) -> Note:
    """The note, if it is a map of texts of at most 1,024 bytes in all; else BadNote."""
    if not isinstance(note, Mapping):
        raise BadNote(f"note {shown(note)} is a {type(note).__name__}, not a map of texts")
    size = 0
    plain: dict[str, str] = {}
    for name, text in note.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise BadNote(f"note {shown(name)}={shown(text)}: names and values must be str")
        if not name:
            raise BadNote(f"note ''={shown(text)} has no name")
        try:
            size += len(name.encode()) + len(text.encode())
        except UnicodeEncodeError:
            raise BadNote(f"note {shown(name)}={shown(text)} is no valid Unicode text") from None
        plain[plain_text(name)] = plain_text(text)
    if size > NOTE_MAX_BYTES:
        raise BadNote(f"the note is {size} bytes long; at most {NOTE_MAX_BYTES} fit")
    return Note(plain)


def describe_entry(entry: Entry) -> str:
    """Which entry, for a message."""
    what = f"entry {entry.id}" if entry.key is None else f"idempotency key {shown(entry.key)}"
    return f"{what} of counter {entry.counter!r}"


def check_age(entry: Entry, *, now_ms: int, horizon_ms: int, clock_skew_ms: int) -> None:
    """Raise KeyExpired or ClockSkew unless the entry may still be written.

    Compaction takes entries that no producer may still send. That holds only because every producer
    asks this before *every* attempt, with the time of the very attempt.
    """
    age_ms = now_ms - entry.at_ms
    if age_ms > horizon_ms:
        raise KeyExpired(
            f"{describe_entry(entry)} was made {show_duration(age_ms)} ago, beyond the "
            f"horizon of {show_duration(horizon_ms)}: whether it counted is no longer known; look "
            "for it in the change log before you make a new one"
        )
    if -age_ms > clock_skew_ms:
        raise ClockSkew(
            f"{describe_entry(entry)} is dated {show_duration(-age_ms)} ahead; clocks "
            f"may differ by {show_duration(clock_skew_ms)}: correct the time or this clock"
        )


# Several entries as columns: what is sent in a batch is seldom read entry by entry.


class EntryColumns(Sequence[Entry]):
    """Entries of one origin (a region) without key, note and business time.

    An entry is created when it is read: to create one takes half as long as to send it in a batch.
    """

    __slots__ = ("counters", "deltas", "events", "ids", "origin", "times_ms")

    def __init__(  # noqa: PLR0917 - in the order of an entry
        self,
        counters: Sequence[str],
        ids: Sequence[str],
        deltas: Sequence[Amount],
        times_ms: Sequence[int],
        origin: str,
        events: Sequence[int],
    ) -> None:
        self.counters = counters
        self.ids = ids
        self.deltas = deltas
        self.times_ms = times_ms
        self.origin = origin
        self.events = events

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> EntryColumns | None:
        """These entries as columns; None if more is stored of one of them than columns hold."""
        if isinstance(entries, cls):
            return entries
        for one in entries:
            if one.key is not None or one.note is not None or one.occurred_at_ms is not None:
                return None
            if one.origin != entries[0].origin:
                return None
        return cls(
            [one.counter for one in entries],
            [one.id for one in entries],
            [one.delta for one in entries],
            [one.at_ms for one in entries],
            entries[0].origin if entries else "",
            [one.events for one in entries],
        )

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, number: int) -> Entry: ...

    @overload
    def __getitem__(self, number: slice) -> EntryColumns: ...

    def __getitem__(self, number: int | slice) -> Entry | EntryColumns:
        n = number
        if isinstance(n, slice):
            columns = self.counters[n], self.ids[n], self.deltas[n], self.times_ms[n]
            return EntryColumns(*columns, self.origin, self.events[n])
        values = self.counters[n], self.ids[n], self.deltas[n], self.times_ms[n]
        return new_entry(*values, self.origin, self.events[n])

    def __iter__(self) -> Iterator[Entry]:
        return map(self.__getitem__, range(len(self)))


def counters_of(entries: Sequence[Entry]) -> Sequence[str]:
    """The counter of each entry; no `Entry` is created for it, as in the other two functions."""
    return entries.counters if isinstance(entries, EntryColumns) else [o.counter for o in entries]


def ids_of(entries: Sequence[Entry]) -> Sequence[str]:
    return entries.ids if isinstance(entries, EntryColumns) else [one.id for one in entries]


def times_ms_of(entries: Sequence[Entry]) -> Sequence[int]:
    return entries.times_ms if isinstance(entries, EntryColumns) else [o.at_ms for o in entries]


@dataclass(frozen=True, slots=True)
class PutBatch:
    """Write up to 25 entries, unconditionally; the answer is those that were not taken."""

    table: str
    entries: Sequence[Entry]
    spreads: Sequence[int]

    @property
    def items(self) -> list[Item]:
        pairs = zip(self.entries, self.spreads, strict=True)
        return [encode_entry(entry, spread) for entry, spread in pairs]
