"""The changes of one counter in a batch, kept as they were read.

Few of them are ever looked at one by one: where a watermark has passed some, or the service takes
none. So each becomes a `EntryChange`, and its sequence number a number, when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, overload

from countledger.consumers.record import EntryChange

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount

# Sequence number, perhaps still as the stream spells it; delta, events, entries.
Row: TypeAlias = "tuple[str | int, Amount, int, int]"


class CounterChanges(Sequence[EntryChange]):
    """Changes of one counter, in order.

    Attributes:
        counter: its name.
        rows: what they are made of.
    """

    __slots__ = ("counter", "rows")

    def __init__(self, counter: str, rows: Sequence[Row]) -> None:
        """Of these."""
        self.counter = counter
        self.rows = rows

    @overload
    def __getitem__(self, index: int) -> EntryChange: ...

    @overload
    def __getitem__(self, index: slice) -> CounterChanges: ...

    def __getitem__(self, index: int | slice) -> EntryChange | CounterChanges:
        """One of them, or some."""
        if isinstance(index, slice):
            return CounterChanges(self.counter, self.rows[index])
        sequence, delta, events, entries = self.rows[index]
        return EntryChange(int(sequence), self.counter, delta, events, entries)

    def above(self, sequence: int) -> CounterChanges:
        """Those behind a sequence number."""
        return CounterChanges(self.counter, [row for row in self.rows if int(row[0]) > sequence])

    def __len__(self) -> int:
        """How many they are."""
        return len(self.rows)


def row_of(change: EntryChange) -> Row:
    """A change as it is kept."""
    return change.sequence, change.delta, change.events, change.entries
