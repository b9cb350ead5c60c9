"""The table `strict`, with multi-region strong consistency, as all its regions see it.

    a write       is in every region before its answer
    a conflict    is refused, and not applied, if another region has just written the item
    a condition   and a consistent read see the latest version, in every region
    other reads   may show an older version, also of a write of the same region

What differs from the service: a write takes effect in one moment, and the time in which it
conflicts with writes of other regions begins there. Nothing is known of how long that is, or
whether both of two writes may be refused; here the first one never is. A region that is lost
answers nothing; what it was sent just then may still have been written.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from countledger.infra.memory.tables import Key
from countledger.ledger.attributes import Item
from countledger.ledger.errors import Throttled, Unclear
from countledger.ledger.operations import Write
from tests.simulation.table import SimulatedTable, written_key

# How often what a lost region was sent is written all the same.
_WRITTEN: Final = 0.3


class RegionConflict(Throttled):
    """Another region is writing the item: ReplicatedWriteConflictException. The SDK retries it."""


@dataclass(eq=False)
class StrongTable(SimulatedTable):
    """The one copy of all regions.

    Attributes:
        lost: regions that answer nothing.
        conflicts: how many writes met another region's.
        busy_ms: for how long a write of one region conflicts with those of others, in the mean.
    """

    lost: set[str] = field(default_factory=set)
    conflicts: int = 0
    busy_ms: float = 0.0
    _busy: dict[Key, tuple[str, float]] = field(default_factory=dict)

    def write_from(self, region: str, write: Write, random: Random) -> Item | None:
        """Carry a write out that a region was sent.

        Raises:
            RegionConflict: another region is writing the item.
            Unclear: the region is lost.
            As `Table.write`.
        """
        key = written_key(write)
        by, until_ms = self._busy.get(key, (region, 0.0))
        if by != region and self.now_ms() < until_ms:
            self.conflicts += 1
            raise RegionConflict(f"ReplicatedWriteConflict on {key}")
        gone = region in self.lost
        if not gone or random.random() < _WRITTEN:
            # A write that is refused by its condition has been in the way as well.
            self._busy[key] = region, self.now_ms() + random.expovariate(1) * self.busy_ms
            after = self.write(write)
        if gone:
            raise Unclear(f"{region} is lost: no answer")
        return after

    def check_answers(self, region: str) -> None:
        """Check that a region can be read from.

        Raises:
            Unclear: it is lost.
        """
        if region in self.lost:
            raise Unclear(f"{region} is lost: no answer")
