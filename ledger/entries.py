"""Several entries as columns: what is sent in a batch is seldom read entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from countledger.ledger.entry import Entry, new_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.amount import Amount


class EntryColumns(Sequence[Entry]):
    """Entries of one origin without key, note and business time.

    An entry is created when it is read: to create one takes half as long as to send it in a batch.

    Attributes:
        counters: of each entry.
        ids: of each entry.
        deltas: of each entry.
        times_ms: when each was made.
        events: how many events each carries.
        origin: the region where all of them were made.
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
        """How many entries."""
        return len(self.ids)

    @overload
    def __getitem__(self, number: int) -> Entry: ...

    @overload
    def __getitem__(self, number: slice) -> EntryColumns: ...

    def __getitem__(self, number: int | slice) -> Entry | EntryColumns:
        """One entry, or the columns of some."""
        n = number
        if isinstance(n, slice):
            columns = self.counters[n], self.ids[n], self.deltas[n], self.times_ms[n]
            return EntryColumns(*columns, self.origin, self.events[n])
        values = self.counters[n], self.ids[n], self.deltas[n], self.times_ms[n]
        return new_entry(*values, self.origin, self.events[n])

    def __iter__(self) -> Iterator[Entry]:
        """Each entry."""
        return map(self.__getitem__, range(len(self)))


def counters_of(entries: Sequence[Entry]) -> Sequence[str]:
    """The counter of each entry; no entry is created for it, as in the other two functions."""
    return entries.counters if isinstance(entries, EntryColumns) else [o.counter for o in entries]


def ids_of(entries: Sequence[Entry]) -> Sequence[str]:
    """The id of each entry."""
    return entries.ids if isinstance(entries, EntryColumns) else [one.id for one in entries]


def times_ms_of(entries: Sequence[Entry]) -> Sequence[int]:
    """When each entry was made."""
    return entries.times_ms if isinstance(entries, EntryColumns) else [o.at_ms for o in entries]
