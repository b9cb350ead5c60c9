"""Where the table `counters` lies, by its own description, and what follows from that.

    one region                            everything, in the home region alone
    multi-region strong consistency       atomic, occ, history and set, in every region of the table

A table of the second kind judges conditions by the latest version in any region, but takes no
transactions and knows no time to live: what rests on these is refused when a counter is made. A
table that copies itself without that consistency is used as one of a single region, for a second
copy could not keep a bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import (
    AccessDenied,
    BadSetting,
    ServiceFailed,
    TableNotFound,
    WrongRegion,
)
from countledger.producers.strict.context import PASSING, MethodContext
from countledger.producers.strict.definition import Method

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

    from countledger.producers.strict.definition import Definition

_STRONG: Final = "STRONG"
_WHY_NOT: Final = {
    Method.CRT: "method crt is a transaction, and it takes none",
    Method.MARKER: (
        "method marker is a transaction with a marker that expires, and it takes no transactions "
        "and knows no time to live"
    ),
}
_INSTEAD: Final = "take atomic, occ, history or set"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a table lies.

    Attributes:
        strong: whether it has multi-region strong consistency.
        regions: the regions of its replicas, as far as it names them; its own may be missing.
    """

    strong: bool = False
    regions: frozenset[str] = frozenset()

    def check_definition(self, definition: Definition) -> None:
        """Whether a counter can work there.

        Raises:
            BadSetting: it needs what the table does not have.
        """
        if not self.strong:
            return
        why = _WHY_NOT.get(definition.method)
        if definition.bins > 1:
            why = "bins are made, read and shared out by transactions, and it takes none"
        if why is not None:
            raise BadSetting(
                f"counter {definition.counter!r}: the table has multi-region strong consistency; "
                f"{why}: {_INSTEAD}, without bins"
            )

    def check_region(self, what: str, region: str, home_region: str) -> None:
        """Whether strict counters may be used from a region, by what the table says there.

        Raises:
            WrongRegion: a bound could not be kept from there.
        """
        if region == home_region or (self.strong and home_region in self.regions):
            return
        raise WrongRegion(
            f"{what!r}: strict counters live in the home region {home_region} alone, "
            f"where one copy decides; this is {region}: call there"
        )


ONE_REGION: Final = Placement()


def placement_of(description: TableDescriptionTypeDef) -> Placement:
    """What a description says; a witness holds no items and is no replica."""
    replicas = description.get("Replicas", [])
    return Placement(
        description.get("MultiRegionConsistency") == _STRONG,
        frozenset(replica["RegionName"] for replica in replicas if "RegionName" in replica),
    )


@dataclass(slots=True)
class Placed:
    """The placement of the table, read once by a process, when it first matters.

    Attributes:
        context: what to read with.
    """

    context: MethodContext
    _known: Placement | None = None
    _lock: Lock = field(default_factory=Lock, repr=False)

    def get(self) -> Placement:
        """The placement: one DescribeTable, once; no units.

        Where that call is not permitted, or the engine does not know it, the table is taken for
        one of a single region. (If it is none, it refuses the first transaction itself.)

        Raises:
            Throttled, Unclear, Unreachable: it cannot be told just now.
        """
        with self._lock:
            if self._known is None:
                self._known = self._read()
            return self._known

    def _read(self) -> Placement:
        try:
            return placement_of(self.context.reads.describe(self.context.table))
        except PASSING:
            raise
        except (AccessDenied, ServiceFailed, TableNotFound):
            return ONE_REGION
