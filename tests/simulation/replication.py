"""Between the regions of a table: every write travels alone, late, in any order, or not for long.

What arrives is compared with what is there: the last writer wins, deletions included. A version
that is overtaken never shows, so quick changes merge.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from countledger.infra.memory.tables import Change, Key
from countledger.ledger.attributes import Item
from tests.simulation.schedule import Schedule
from tests.simulation.table import SimulatedTable

_BUSY_MS: Final = 5.0
_STRAGGLES: Final = 50
# How often a version of a lost region had left it before, and arrives.
_LATE_ANYWAY: Final = 0.5


@dataclass
class Replicator:
    """Carries writes between copies.

    Attributes:
        copies: by region.
        schedule: time.
        lag_ms: how long a version takes, in the mean.
        cut: ways that nothing passes: from, to.
        lost: regions that nothing leaves any more, nor reaches.
        left: regions that are out of the table; until when their last versions arrive.
        straggler: how often a version takes far longer than the others.
        under_way: how many versions have not arrived.
        sent: the same for each region that they come from.
    """

    copies: dict[str, SimulatedTable]
    schedule: Schedule
    lag_ms: float
    cut: set[tuple[str, str]] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    left: dict[str, float] = field(default_factory=dict)
    straggler: float = 0.02
    under_way: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    _held: dict[tuple[str, str], list[tuple[Key, Item | None, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _newest: dict[str, dict[Key, int]] = field(default_factory=lambda: defaultdict(dict))
    _stamp: int = 0

    def watch(self) -> None:
        """Take up every write from now on."""
        for copy in self.copies.values():
            copy.watchers.append(self._send)

    def join(self, region: str, copy: SimulatedTable) -> None:
        """One more copy, which gets every write from now on; what was there comes by `fill`."""
        self.copies[region] = copy
        copy.watchers.append(self._send)

    def fill(self, region: str) -> None:
        """The newest version of each item that any region has."""
        copy, mine = self.copies[region], self._newest[region]
        others = [one for one in self.copies if one not in self.lost | {region}]
        for key in sorted({key for one in others for key in self._newest[one]}):
            source = max(others, key=lambda one: self._newest[one].get(key, 0))
            stamp = self._newest[source].get(key, 0)
            if mine.get(key, 0) < stamp:
                mine[key] = stamp
                copy.store(key, self.copies[source].items.get(key), local=False)

    def lose(self, region: str) -> None:
        """What has not left it stays there; part of what has still arrives."""
        self.lost.add(region)

    def leave(self, region: str, bound_ms: float) -> None:
        """Take it out of the table: of what was under way some arrives within a bound."""
        random = self.schedule.random
        del self.copies[region]
        self.left[region] = self.schedule.now_ms + bound_ms
        for way in [one for one in self._held if region in one]:
            for key, after, stamp in self._held.pop(way):
                if way[1] != region and random.random() < _LATE_ANYWAY:
                    self.schedule.at(
                        random.random() * bound_ms, partial(self._arrive, way, key, after, stamp)
                    )
                else:
                    self.under_way -= 1
                    self.sent[way[0]] -= 1

    def under_way_from(self, region: str) -> int:
        """How many of its versions have not arrived."""
        return self.sent[region]

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
        here = change.table.region
        if not change.local or here not in self.copies:
            return
        self._stamp += 1
        self._newest[here][change.key] = self._stamp
        for other in self.copies:
            if other != here:
                self.under_way += 1
                self.sent[here] += 1
                self._travel((here, other), change.key, change.after, self._stamp)

    def _travel(self, way: tuple[str, str], key: Key, after: Item | None, stamp: int) -> None:
        random = self.schedule.random
        delay_ms = random.expovariate(1) * self.lag_ms
        if random.random() < self.straggler:
            delay_ms *= _STRAGGLES
        self.schedule.at(delay_ms, lambda: self._arrive(way, key, after, stamp))

    def _arrive(self, way: tuple[str, str], key: Key, after: Item | None, stamp: int) -> None:
        copy = self.copies.get(way[1])
        late = way[0] in self.left and self.schedule.now_ms > self.left[way[0]]
        if copy is None or late:
            self.under_way -= 1
            self.sent[way[0]] -= 1
        elif way in self.cut or self._stays(way):
            self._held[way].append((key, after, stamp))
        elif key in copy.locked:
            self.schedule.at(_BUSY_MS, lambda: self._arrive(way, key, after, stamp))
        else:
            self.under_way -= 1
            self.sent[way[0]] -= 1
            if self._newest[way[1]].get(key, 0) < stamp:
                self._newest[way[1]][key] = stamp
                copy.store(key, after, local=False)

    def _stays(self, way: tuple[str, str]) -> bool:
        """Whether a version stays in a lost region, or before it."""
        if way[1] in self.lost:
            return True
        gone = way[0] in self.lost and way[0] in self.copies
        return gone and self.schedule.random.random() >= _LATE_ANYWAY
