"""What a process reads once and keeps: definitions of counters, and the regions of the table.

The table `counters` is of one of two kinds, by its own description:

    one region                            all methods, in the home region only
    multi-region strong consistency       atomic, occ, history and set, in every region of the table

A table of the second kind evaluates conditions on the latest version in any region, but supports
neither transactions nor time to live: creation refuses the methods that need them. A table that
replicates without that consistency is used as one of a single region, because a second copy could
not keep a bound.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from countledger.ledger import keys
from countledger.ledger.attempts import PASSING
from countledger.ledger.errors import (
    AccessDenied,
    BadSetting,
    NoSuchCounter,
    ServiceFailed,
    TableNotFound,
    WrongRegion,
)
from countledger.producers.strict.definition import Definition, Method, decode_definition

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TableDescriptionTypeDef

    from countledger.ledger.attributes import Item
    from countledger.producers.strict.context import MethodContext

# About two megabytes; the least recently used definitions beyond are read again.
_KEPT: Final = 10_000
_STRONG: Final = "STRONG"
_WHY_NOT: Final = {
    Method.CRT: "method crt is a transaction, which it does not support",
    Method.MARKER: (
        "method marker is a transaction with a marker that expires, and it supports neither "
        "transactions nor time to live"
    ),
}
_INSTEAD: Final = "take atomic, occ, history or set"


@dataclass(frozen=True, slots=True)
class Definitions:
    """The definitions of strict counters.

    Attributes:
        context: what to read with.
    """

    context: MethodContext
    _known: OrderedDict[str, Definition] = field(default_factory=OrderedDict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def get(self, counter: str) -> tuple[Definition, Item | None]:
        """A counter's definition, and its main item if it had to be read: one read unit then.

        Raises:
            NoSuchCounter: no counter has that name.
            CorruptItem: it cannot be read.
        """
        with self._lock:
            known = self._known.get(counter)
            if known is not None:
                self._known.move_to_end(counter)
                return known, None
        return self.read(counter)

    def read(self, counter: str) -> tuple[Definition, Item]:
        """The same, always with a read: one read unit.

        Raises:
            NoSuchCounter: no counter has that name.
            CorruptItem: it cannot be read.
        """
        context = self.context
        item = context.reads.get(context.table, keys.total_key(counter), consistent=True)
        if item is None:
            self.forget(counter)
            raise NoSuchCounter(
                f"strict counter {counter!r} does not exist: `countledger strict create` creates it"
            )
        definition = decode_definition(item)
        with self._lock:
            self._known[counter] = definition
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return definition, item

    def forget(self, counter: str) -> None:
        """Read it again the next time."""
        with self._lock:
            self._known.pop(counter, None)


@dataclass(frozen=True, slots=True)
class Placement:
    """The regions of a table.

    Attributes:
        strong: whether it has multi-region strong consistency.
        regions: the regions of its replicas, as far as it lists them; its own may be missing.
    """

    strong: bool = False
    regions: frozenset[str] = frozenset()

    def check_definition(self, definition: Definition) -> None:
        """Check that a counter can work there.

        Raises:
            BadSetting: it needs what the table does not support.
        """
        if not self.strong:
            return
        why = _WHY_NOT.get(definition.method)
        if definition.bins > 1:
            why = "bins are created, read and dealt by transactions, which it does not support"
        if why is not None:
            raise BadSetting(
                f"counter {definition.counter!r}: the table has multi-region strong consistency; "
                f"{why}: {_INSTEAD}, without bins"
            )

    def check_region(self, what: str, region: str, home_region: str) -> None:
        """Check that strict counters may be used from a region.

        Raises:
            WrongRegion: a bound could not be kept from there.
        """
        if region == home_region or (self.strong and home_region in self.regions):
            return
        raise WrongRegion(
            f"{what!r}: strict counters work only in the home region {home_region}, where one copy "
            f"decides; this is {region}: call there"
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
class KnownPlacement:
    """The placement of the table; a process reads it once, at its first use.

    Attributes:
        context: what to read with.
    """

    context: MethodContext
    _known: Placement | None = None
    _lock: Lock = field(default_factory=Lock, repr=False)

    def get(self) -> Placement:
        """The placement: one DescribeTable, once; no units.

        If that call is not permitted, or the engine does not support it, the table counts as one of
        a single region. (If it has strong consistency, it refuses the first transaction itself.)

        Raises:
            Throttled, Unclear, Unreachable: it could not be read this time.
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
