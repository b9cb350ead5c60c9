"""Simulated tables in one to three regions, and an independent record of what must come out.

Every copy holds the last write of each key, deletions too. A write is on its way to every other
copy until it is delivered, in any order and after any time; the last writer wins, so quick changes
merge. A request that was sent may be carried out after its sender's death.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.errors import (
    ConditionFailed,
    ServiceFailed,
    Throttled,
    TransactionCancelled,
)
from tests.simulation.judgement import holds
from tests.simulation.sums import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from countledger.ledger.attributes import Item
    from countledger.ledger.expressions import Condition

Identity = tuple[str, int]
"""Sort key and time of an entry: under a bare key there may be another one later."""


@dataclass
class ModelTable:
    """One region's copy of the table, for the one counter of a simulation.

    Attributes:
        items: sort key -> item, None where it was deleted.
        stamps: sort key -> when its last write was made.
        ordered: every sort key that was ever there, in order.
        shown: the entries that were ever visible here and that no other writer has replaced.
        total: what the region's stream adds up to.
        missed: what it cannot show: a merged entry's deletion and the new entry of its bare key
            came as one change, from the old one to the new.
    """

    items: dict[str, Item | None] = field(default_factory=dict)
    stamps: dict[str, int] = field(default_factory=dict)
    ordered: list[str] = field(default_factory=list)
    shown: dict[Identity, int] = field(default_factory=dict)
    total: int = 0
    missed: int = 0


@dataclass
class ModelWorld:
    """All copies, and what is on its way.

    Attributes:
        random: decides what is delivered when.
        regions: their names; the first is home.
        now_ms: the true time.
        pace: how often a step brings a write to another region.
        made: every entry that was ever written anywhere, and its delta.
        merged: those that a head has taken in.
        retired: of those deleted at home, when.
        late_requests: requests that their senders do not wait for any more.
    """

    random: Random
    regions: Sequence[str]
    now_ms: int
    horizon_ms: int
    skew_ms: int
    pace: float
    copies: dict[str, ModelTable] = field(default_factory=dict)
    made: dict[Identity, int] = field(default_factory=dict)
    merged: set[Identity] = field(default_factory=set)
    retired: dict[Identity, int] = field(default_factory=dict)
    late_requests: list[Callable[[], object]] = field(default_factory=list)
    locked: set[str] = field(default_factory=set)
    _on_its_way: list[tuple[str, str, Item | None, int]] = field(default_factory=list)
    _stamp: int = 0

    def __post_init__(self) -> None:
        """Empty copies."""
        self.copies = {region: ModelTable() for region in self.regions}

    @property
    def home(self) -> ModelTable:
        """The home region's copy."""
        return self.copies[self.regions[0]]

    def step(self) -> None:
        """A little time passes; something may arrive."""
        draw = self.random.random()
        self.now_ms += 5
        if draw < 0.01:
            self.now_ms += self.random.randrange(30_000)
        if self._on_its_way and draw < self.pace:
            self.deliver(self.random.randrange(len(self._on_its_way)))
        if self.late_requests and draw > 0.9:
            self.carry_out_late_request()

    def carry_out_late_request(self) -> None:
        """One that nobody waits for."""
        request = self.late_requests.pop(self.random.randrange(len(self.late_requests)))
        try:
            request()
        except (ConditionFailed, ServiceFailed, TransactionCancelled):
            return

    def settle(self) -> None:
        """Everything arrives."""
        while self.late_requests:
            self.carry_out_late_request()
        while self._on_its_way:
            self.deliver(self.random.randrange(len(self._on_its_way)))

    def write(
        self, region: str, key: str, item: Item | None, condition: Condition | None = None
    ) -> None:
        """Write or delete one item in one region.

        Raises:
            Throttled: a transaction is at work on it.
            ConditionFailed: with the item that is there.
        """
        if region == self.regions[0] and key in self.locked:
            raise Throttled("TransactionConflict")
        self.check(region, key, condition)
        self.apply(region, key, item)

    def check(self, region: str, key: str, condition: Condition | None) -> None:
        """Judge a condition by the region's own copy.

        Raises:
            ConditionFailed: with the item that is there.
        """
        there = self.copies[region].items.get(key)
        if condition is not None and not holds(condition, there or {}):
            raise ConditionFailed(dict(there) if there else None)

    def apply(self, region: str, key: str, item: Item | None) -> None:
        """Carry out a write, and send it to the other regions."""
        if item is None and self.copies[region].items.get(key) is None:
            return
        self._stamp += 1
        there = self.home.items.get(key)
        if item is None and there and region == self.regions[0] and key != keys.HEAD:
            self.retired[key, there["at"]] = self._stamp
        if item is not None and key == keys.HEAD and region == self.regions[0]:
            self._note_merged(item)
        if item is not None and key.startswith(keys.ENTRY_PREFIX):
            self._note_made(key, item)
        self._store(region, key, item, self._stamp)
        for other in self.regions:
            if other != region:
                self._on_its_way.append((other, key, item, self._stamp))

    def deliver(self, number: int) -> None:
        """One write arrives; the last writer wins."""
        region, key, item, stamp = self._on_its_way[number]
        if region == self.regions[0] and key in self.locked:
            return
        self._on_its_way[number] = self._on_its_way[-1]
        self._on_its_way.pop()
        if self.copies[region].stamps.get(key, 0) < stamp:
            self._store(region, key, item, stamp)

    def _store(self, region: str, key: str, item: Item | None, stamp: int) -> None:
        copy = self.copies[region]
        if key not in copy.items:
            insort(copy.ordered, key)
        before = copy.items.get(key)
        copy.items[key], copy.stamps[key] = item, stamp
        if not key.startswith(keys.ENTRY_PREFIX) or item is None:
            return
        identity, delta = (key, item["at"]), item["delta"]
        replaced = before and (key, before["at"])
        if before and replaced and replaced != identity:
            if replaced not in self.merged:
                copy.shown.pop(replaced, None)
            elif stamp > self.retired.get(replaced, stamp):
                copy.missed += before["delta"]
        copy.shown[identity] = delta
        copy.total += delta - (before["delta"] if before else 0)

    def _note_made(self, key: str, item: Item) -> None:
        self.made[key, item["at"]] = item["delta"]
        for earlier in self.merged:
            age_ms = self.now_ms - earlier[1]
            other = earlier[0] == key and earlier[1] != item["at"]
            if other and age_ms < self.horizon_ms - self.skew_ms:
                raise Wrong(f"key {key} was forgotten after {age_ms} ms")

    def _note_merged(self, head: Item) -> None:
        for key in head["covers"]:
            there = self.home.items.get(key)
            if there:
                self.merged.add((key, there["at"]))
