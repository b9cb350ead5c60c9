"""Between the regions of a table: every write travels alone, late, in any order, or not for long.

What arrives is compared with what is there: the last writer wins, deletions included. A version
that is overtaken never shows, so quick changes merge.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from countledger.ledger.attributes import Item
    from tests.simulation.schedule import Schedule
    from tests.simulation.table import Change, Key, Table

_BUSY_MS: Final = 5.0
_STRAGGLES: Final = 50


@dataclass
class Replicator:
    """Carries writes between copies.

    Attributes:
        copies: by region.
        schedule: time.
        lag_ms: how long a version takes, in the mean.
        cut: ways that nothing passes: from, to.
        straggler: how often a version takes far longer than the others.
        under_way: how many versions have not arrived.
    """

    copies: Mapping[str, Table]
    schedule: Schedule
    lag_ms: float
    cut: set[tuple[str, str]] = field(default_factory=set)
    straggler: float = 0.02
    under_way: int = 0
    _held: dict[tuple[str, str], list[tuple[Key, Item | None, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _newest: dict[str, dict[Key, int]] = field(default_factory=lambda: defaultdict(dict))
    _stamp: int = 0

    def watch(self) -> None:
        """Take up every write from now on."""
        for copy in self.copies.values():
            copy.watchers.append(self._send)

    def partition(self, regions: set[str], *, one_way: bool) -> None:
        """Cut these regions off from all others."""
        for one in sorted(self.copies):
            for other in sorted(self.copies):
                if one in regions and other not in regions:
                    self.cut.add((one, other))
                    if not one_way:
                        self.cut.add((other, one))

    def heal(self) -> None:
        """Open all ways; what was held sets out."""
        self.cut.clear()
        held, self._held = self._held, defaultdict(list)
        for way, versions in held.items():
            for version in versions:
                self._travel(way, *version)

    def _send(self, change: Change) -> None:
        if not change.local:
            return
        self._stamp += 1
        here = change.table.region
        self._newest[here][change.key] = self._stamp
        for other in self.copies:
            if other != here:
                self.under_way += 1
                self._travel((here, other), change.key, change.after, self._stamp)

    def _travel(self, way: tuple[str, str], key: Key, after: Item | None, stamp: int) -> None:
        random = self.schedule.random
        delay_ms = random.expovariate(1) * self.lag_ms
        if random.random() < self.straggler:
            delay_ms *= _STRAGGLES
        self.schedule.at(delay_ms, lambda: self._arrive(way, key, after, stamp))

    def _arrive(self, way: tuple[str, str], key: Key, after: Item | None, stamp: int) -> None:
        copy = self.copies[way[1]]
        if way in self.cut:
            self._held[way].append((key, after, stamp))
        elif key in copy.locked:
            self.schedule.at(_BUSY_MS, lambda: self._arrive(way, key, after, stamp))
        else:
            self.under_way -= 1
            if self._newest[way[1]].get(key, 0) < stamp:
                self._newest[way[1]][key] = stamp
                copy.store(key, after, local=False)
