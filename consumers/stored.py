"""A total as it lies in `counters`, also one that somebody corrupt by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger.errors import CorruptItem, NewerFormat
from countledger.ledger.total import Total, decode_total

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item


@dataclass(frozen=True, slots=True)
class StoredTotal:
    """What is stored of a counter's total.

    Attributes:
        counter: its name.
        item: as it is, or None where there is none.
        total: what it says; zeros where there is none, None where it cannot be read.
        flaw: why it cannot be read.
        version: by which a change of it shows; 0 where there is none, None where that is corrupt
            as well, or of a later release: then nobody may write it.
    """

    counter: str
    item: Item | None
    total: Total | None
    flaw: str | None
    version: int | None

    @property
    def moment(self) -> tuple[object, object]:
        """What no other moment has: a total deleted by hand may come to the same version again."""
        return self.version, self.item and self.item.get("updated_at")


def stored_total(counter: str, item: Item | None) -> StoredTotal:
    """What an item of `counters` says of a counter, or why it says nothing."""
    if item is None:
        return StoredTotal(counter, None, Total(counter), None, 0)
    try:
        total = decode_total(item)
    except NewerFormat as error:
        return StoredTotal(counter, item, None, str(error), None)
    except CorruptItem as error:
        version = item.get("version")
        known = isinstance(version, int) and not isinstance(version, bool)
        return StoredTotal(counter, item, None, str(error), version if known else None)
    return StoredTotal(counter, item, total, None, total.version)
