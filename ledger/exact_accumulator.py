"""What an exact read has seen: sums, and of each entry no more than it takes to leave it out again.

Whether an entry is in the second head is known only when all of them have been read. Until then
some 40 bytes are kept for each, packed; a million of them are 40 MB and not half a gigabyte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.ledger.amount import Amount
    from countledger.ledger.entry import Entry
    from countledger.ledger.head import Head

# Time, and the lengths of sort key and of the text that tells delta and events.
_FIXED: Final = Struct(">qBH")
_SIZE: Final = _FIXED.size


@dataclass(slots=True)
class ExactAccumulator:
    """The entries of one read, those that the first head covers left out.

    Attributes:
        first: the head that was read before them.
        sum: of their deltas.
        events: how many events they carry.
        entries: how many they are.
        read: how many were read, covered ones included.
    """

    first: Head
    sum: Amount = 0
    events: int = 0
    entries: int = 0
    read: int = 0
    _packed: bytearray = field(default_factory=bytearray, repr=False)

    def note(self, key: str, entry: Entry) -> None:
        """One more entry."""
        self.read += 1
        if self.first.has_merged(key, entry.at_ms):
            return
        self.sum = amount.add(self.sum, entry.delta)
        self.events += entry.events
        self.entries += 1
        name, text = key.encode(), f"{entry.events} {amount.to_text(entry.delta)}".encode()
        self._packed += _FIXED.pack(entry.at_ms, len(name), len(text))
        self._packed += name
        self._packed += text

    def leave_out(self, second: Head) -> None:
        """Take out what the second head covers: it is in that head's sum."""
        if not second.covers or second.generation == self.first.generation:
            return
        for key, at_ms, text in self._unpacked():
            if second.has_merged(key, at_ms):
                events, delta = text.split(" ")
                self.sum = amount.add(self.sum, amount.negated(amount.from_number(delta)))
                self.events -= int(events)
                self.entries -= 1

    def _unpacked(self) -> Iterator[tuple[str, int, str]]:
        packed, start = self._packed, 0
        while start < len(packed):
            at_ms, name_size, text_size = _FIXED.unpack_from(packed, start)
            name_end = start + _SIZE + name_size
            end = name_end + text_size
            yield packed[start + _SIZE : name_end].decode(), at_ms, packed[name_end:end].decode()
            start = end
