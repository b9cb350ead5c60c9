"""Totals over regions: what each region's total is, and the most complete of them.

Every region counts each entry that arrived there once, so totals of regions are never added up. The
number over regions is one region's total: the one that counted the most entries. Of equal ones it
is the one with the latest handled stream record, then the home region's, then the first by name. It
counts nothing twice; entries that have not arrived in that region are missing from it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.dynamo import Meter
from countledger.ledger.errors import CountledgerError, Unreachable
from countledger.ledger.limits import MINUTE_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from countledger.consumers.totals import Freshness
    from countledger.ledger.connection import Connection
    from countledger.ledger.total import Total


ANSWER_WITHIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class RegionAnswer:
    """What one region answered.

    Attributes:
        region: its name.
        totals: by counter; empty if it is not included.
        freshness: up to which moment its totals include its copy of the ledger; None: not included.
        problem: why it is not included; None: it is.
    """

    region: str
    totals: Mapping[str, Total] = field(default_factory=dict)
    freshness: Freshness | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class TotalOverRegions:
    """A counter's total over regions.

    Attributes:
        total: the total that counted the most entries; see the module for ties.
        region: whose total it is.
        regions: what each region answered, also those that are not included; home first.
        read_units: what reading all counters of the call consumed, in every region.
    """

    total: Total
    region: str
    regions: tuple[RegionAnswer, ...]
    read_units: float

    @property
    def included(self) -> tuple[str, ...]:
        """The regions that answered."""
        return tuple(one.region for one in self.regions if one.problem is None)

    @property
    def missing(self) -> dict[str, str]:
        """The regions that are not included, and why."""
        return {one.region: one.problem for one in self.regions if one.problem is not None}

    @property
    def by_region(self) -> dict[str, Total]:
        """The total of each included region."""
        name = self.total.counter
        return {one.region: one.totals[name] for one in self.regions if one.problem is None}

    @property
    def agree(self) -> bool:
        """Whether every region is included and all show the same sum of as many entries.

        It is no proof that they have the same entries: during a partition each side may have
        counted another entry of the same delta.
        """
        shown = {(one.value, one.events, one.entries) for one in self.by_region.values()}
        return not self.missing and len(shown) == 1


def most_complete(counter: str, regions: Sequence[RegionAnswer]) -> RegionAnswer:
    """The region whose total of a counter is the number over regions, of those included."""

    def rank(one: RegionAnswer) -> tuple[bool, int, int]:
        total = one.totals[counter]
        handled_ms = one.freshness.handled_through_ms if one.freshness else None
        # Of a strict counter, which counts no entries, only the home region has a version.
        return total.version > 0, total.entries, handled_ms or -1

    return max((one for one in regions if one.problem is None), key=rank)


@dataclass(slots=True)
class RegionsReader:
    """Reads totals in every region of a stack at once; each has `timeout_s` to answer."""

    connection: Connection
    timeout_s: float = ANSWER_WITHIN_S
    _connections: dict[str, Connection] = field(default_factory=dict)
    _names: tuple[int, list[str]] | None = None

    def read(self, counters: Iterable[str]) -> dict[str, TotalOverRegions]:
        """The totals of many counters over regions: in each region half a read unit each.

        And half a read unit for each shard of the region's stream. The list of regions, one
        DescribeTable call, is at most a minute old. A region that does not answer in time is not
        included, and is not waited for. `Unreachable`: no region answered.
        """
        names = [keys.check_counter(counter) for counter in dict.fromkeys(counters)]
        answers, read_units = self._ask(self._regions(), names)
        if all(one.problem for one in answers):
            reasons = "; ".join(f"{one.region}: {one.problem}" for one in answers)
            raise Unreachable(f"no region can give totals: {reasons}")
        found = {}
        for name in names:
            best = most_complete(name, answers)
            found[name] = TotalOverRegions(
                best.totals[name], best.region, tuple(answers), read_units
            )
        return found

    def _regions(self) -> list[str]:
        now_ms = self.connection.clock.now_ms()
        if self._names is None or not 0 <= now_ms - self._names[0] < MINUTE_MS:
            here, home = self.connection.region, self.connection.home_region
            listed = self.connection.retrying.describe(self.connection.ledger).get("Replicas", [])
            there = {here, *(one["RegionName"] for one in listed)}
            self._names = now_ms, sorted(there, key=lambda name: (name != home, name))
        return self._names[1]

    def _ask(self, regions: list[str], names: list[str]) -> tuple[list[RegionAnswer], float]:
        answers: dict[str, tuple[RegionAnswer, float]] = {}

        def ask(region: str) -> None:
            answers[region] = _read(self._connection(region), names)

        # Threads that nothing waits for: a region that is lost may keep one for a minute.
        threads = [
            threading.Thread(target=ask, args=(one,), name=f"totals {one}", daemon=True)
            for one in regions
        ]
        for thread in threads:
            thread.start()
        deadline_s = time.monotonic() + self.timeout_s
        for thread in threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        late = f"no answer within {self.timeout_s:g} s"
        known = dict(answers)
        found = [
            known[one] if one in known else (RegionAnswer(one, problem=late), 0.0)
            for one in regions
        ]
        return [answer for answer, _ in found], sum(units for _, units in found)

    def _connection(self, region: str) -> Connection:
        if region not in self._connections:
            self._connections[region] = self.connection.in_region(region)
        return self._connections[region]


def _read(connection: Connection, names: list[str]) -> tuple[RegionAnswer, float]:
    """The totals of these counters in one region, or why not; and the read units of that."""
    region, meter = connection.region, Meter(parent=connection.meter)
    connection = replace(connection, meter=meter)
    try:
        totals = TotalsReader(connection)
        # In this order: what is said to be in the totals must be in those that are shown.
        freshness = totals.freshness()
        answer = RegionAnswer(region, totals.read_many(names), freshness)
    except CountledgerError as error:
        answer = RegionAnswer(region, problem=str(error))
    return answer, meter.read_units
