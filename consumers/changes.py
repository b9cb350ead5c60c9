"""The changes of one counter in a batch, kept as they were read.

Few of them are ever looked at one by one: where a watermark has passed some, or the service takes
none. So each becomes a `Change`, and its sequence number a number, when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias, overload

from countledger.consumers.record import Change

if TYPE_CHECKING:
    from countledger.ledger.amount import Amount

# Sequence number, perhaps still as the stream spells it; counter, delta, events, entries.
Row: TypeAlias = "tuple[str | int, str, Amount, int, int]"


class Changes(Sequence[Change]):
    """Changes of one counter, in order.

    Attributes:
        rows: what they are made of.
    """

    __slots__ = ("rows",)

    def __init__(self, rows: Sequence[Row]) -> None:
        """Of these."""
        self.rows = rows

    @overload
    def __getitem__(self, index: int) -> Change: ...

    @overload
    def __getitem__(self, index: slice) -> Changes: ...

    def __getitem__(self, index: int | slice) -> Change | Changes:
        """One of them, or some."""
        if isinstance(index, slice):
            return Changes(self.rows[index])
        sequence, counter, delta, events, entries = self.rows[index]
        return Change(int(sequence), counter, delta, events, entries)

    def __len__(self) -> int:
        """How many they are."""
        return len(self.rows)
