"""What a run would consume, estimated from what lies in the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import ceil
from typing import TYPE_CHECKING, Final

from countledger.compaction.report import CompactionPlan
from countledger.compaction.retire import Retire
from countledger.ledger.head import NO_HEAD, encode_head

if TYPE_CHECKING:
    from countledger.compaction.plan import Candidate
    from countledger.ledger.head import Covered, Head

_KB: Final = 1_024
_CONTAINER_BYTES: Final = 3
_UNITS_PER_KB: Final = {Retire.TRANSACTION: 2, Retire.DELETE: 1}


def size_of(value: object) -> int:
    """About how many bytes the service counts for a value, as it documents it."""
    match value:
        case None:
            return 0
        case str():
            return len(value.encode())
        case int() | Decimal():
            return ceil(len(Decimal(value).as_tuple().digits) / 2) + 1
        case Mapping():
            inner = sum(len(name.encode()) + size_of(one) + 1 for name, one in value.items())
            return inner + _CONTAINER_BYTES
        case Sequence():
            return sum(size_of(one) + 1 for one in value) + _CONTAINER_BYTES
        case _:
            return len(bytes(str(value), "utf-8"))


def units_of(item: Mapping[str, object]) -> int:
    """The write units of one write of an item."""
    return max(1, ceil((size_of(item) - _CONTAINER_BYTES) / _KB))


@dataclass(slots=True)
class Estimate:
    """Sums up what a run would do.

    Attributes:
        retire: how entries are deleted.
        covers_max: how many entries one generation takes in.
        head: the head as it is; what it still covers is to be deleted, too.
        archive: whether each generation is archived first, which is recorded.
    """

    retire: Retire
    covers_max: int
    head: Head
    archive: bool = False
    _entries: int = 0
    _deletes: int = 0
    _covers: dict[str, Covered] = field(default_factory=dict)
    _heads: int = 0
    _times: list[int] = field(default_factory=list)

    def add(self, found: Sequence[Candidate]) -> None:
        """Note entries that would be merged."""
        for one in found:
            self._entries += 1
            self._deletes += units_of(one.item)
            self._covers[one.key] = one.covered
            if len(self._covers) == self.covers_max:
                self._end_generation()
            self._times = [
                min([*self._times[:1], one.entry.at_ms]),
                max([*self._times[1:], one.entry.at_ms]),
            ]

    def plan(self, counter: str) -> CompactionPlan:
        """All of it."""
        if self._covers:
            self._end_generation()
        left = len(self.head.covers)
        closing = 1 if self._entries or left else 0
        deletes = (self._deletes + left) * _UNITS_PER_KB[self.retire]
        oldest, newest = self._times or (None, None)
        recorded = 1 if left and self.head.archive else 0
        units = deletes + self._heads + closing + recorded
        return CompactionPlan(counter, self._entries, oldest, newest, units)

    def _end_generation(self) -> None:
        head = replace(NO_HEAD, covers=self._covers)
        self._heads += units_of(encode_head("", head)) + self.archive
        self._covers = {}
