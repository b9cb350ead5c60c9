"""How far a salvage has come, so that one that was interrupted continues.

One item of the home's `counters`: a salvage writes it after each page, in place of what it read or
wrote before, by its id. So of two salvages of one region the second one stops the first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from countledger.compaction.salvage import SalvageFate, SalvageReport
from countledger.ledger import keys
from countledger.ledger.attributes import check_format, optional, require
from countledger.ledger.errors import ConditionFailed, ServiceFailed
from countledger.ledger.expressions import Absent, Compare
from countledger.ledger.operations import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.dynamo import DynamoClient


@dataclass(frozen=True, slots=True, kw_only=True)
class SalvagePlace:
    """Where a salvage continues.

    Attributes:
        work: what is compared, in its order, under which epoch: another work begins at its start.
        number: which of the comparisons.
        after: the key of its source after which to go on; None: its beginning.
        id: of this write.
        report: what was found so far; without the listed entries.
    """

    work: tuple[str, ...]
    number: int = 0
    after: Key | None = None
    id: str = ""
    report: SalvageReport = field(default_factory=SalvageReport)


@dataclass(slots=True)
class SalvagePlaces:
    """Reads and writes the place of the salvage of one region.

    Attributes:
        dynamo: a DynamoDB client in the home region.
        table: the table `counters` there.
        lost: the region that was lost.
        new_id: makes an id that no other write has.
    """

    dynamo: DynamoClient
    table: str
    lost: str
    new_id: Callable[[], str]
    _seen: str | None = None

    def begin(self, work: tuple[str, ...], *, again: bool = False) -> SalvagePlace:
        """Take up the stored place if it is of the same work, else begin. Two units.

        Args:
            work: as `SalvagePlace.work`.
            again: begin in any case.

        Raises:
            CorruptItem: the stored place cannot be read.
            ServiceFailed: another salvage was first.
        """
        item = self.dynamo.get(self.table, keys.salvage_key(self.lost), consistent=True)
        stored = None if item is None else _decode(item)
        self._seen = None if stored is None else stored.id
        place = SalvagePlace(work=work)
        if stored is not None and stored.work == work and not again:
            place = stored
        return self.write(place)

    def write(self, place: SalvagePlace) -> SalvagePlace:
        """Store a place in that of the last one. One write unit.

        Raises:
            ServiceFailed: another salvage has taken over.
        """
        place = replace(place, id=self.new_id())
        unmoved = Absent("part") if self._seen is None else Compare("id", "=", self._seen)
        try:
            self.dynamo.put(Put(self.table, _encode(self.lost, place), unmoved))
        except ConditionFailed as failed:
            # The SDK repeats a write that got no answer, and then finds its own first attempt.
            if (failed.item or {}).get("id") != place.id:
                raise ServiceFailed(
                    f"another salvage of {self.lost} has taken over: wait for its end, or run "
                    "this again, which stops that one"
                ) from failed
        self._seen = place.id
        return place

    def end(self) -> None:
        """Forget the place: the salvage is complete. One write unit.

        Raises:
            ServiceFailed: another salvage has taken over.
        """
        same = Compare("id", "=", self._seen)
        try:
            self.dynamo.delete(Delete(self.table, keys.salvage_key(self.lost), same))
        except ConditionFailed as failed:
            if failed.item is not None:
                raise ServiceFailed(f"another salvage of {self.lost} has begun") from failed


def _encode(lost: str, place: SalvagePlace) -> Item:
    report = place.report
    return {
        **keys.salvage_key(lost),
        "work": list(place.work),
        "number": place.number,
        "after": dict(place.after) if place.after else None,
        "id": place.id,
        "counters": report.counters,
        "heads": report.heads,
        "fates": {str(fate): count for fate, count in report.fates.items()},
    }


def _decode(item: Item) -> SalvagePlace:
    check_format(item)
    fates: dict[str, Any] = require(item, "fates", dict)
    return SalvagePlace(
        work=tuple(str(one) for one in require(item, "work", list)),
        number=require(item, "number", int),
        after=optional(item, "after", dict),
        id=require(item, "id", str),
        report=SalvageReport(
            counters=require(item, "counters", int),
            heads=require(item, "heads", int),
            fates=Counter({SalvageFate(fate): int(count) for fate, count in fates.items()}),
        ),
    )
