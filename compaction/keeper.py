"""Archives what a head covers, and records it, before any of it is deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.compaction import plan
from countledger.compaction.retire import Tampered
from countledger.ledger import keys
from countledger.ledger.errors import BadSetting, ConditionFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.compaction.compactor import Compactor
    from countledger.compaction.regions import Views
    from countledger.ledger.attributes import Item
    from countledger.ledger.head import Head

# How many of the missing entries an error names.
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Keeper:
    """Archives for one run over one counter.

    Attributes:
        compactor: whose run it is; it has the archive.
        views: of the regions, metered for this run.
        counter: its name.
    """

    compactor: Compactor
    views: Views
    counter: str

    def recorded(self) -> Item | None:
        """The record of what was archived last: a read unit."""
        key, table = keys.archived_key(self.counter), self.views.regions.table
        return self.views.home.get(table, key, consistent=True)

    def owes(self, head: Head, record: Item | None) -> bool:
        """Whether what a head covers is still to be archived.

        A record says so. That entries are missing proves nothing: a person may have deleted them.
        """
        return not plan.is_archived(head, record)

    def keep(self, head: Head, items: Sequence[Item], record: Item | None) -> bool:
        """Store what a head covers, and record that: a request to the archive, and a write unit.

        Args:
            head: whose entries are not archived yet.
            items: those of them that are there.
            record: as it was read before; it is replaced.

        Returns:
            Whether that was done; if not, another run has replaced the head.

        Raises:
            Tampered: some entries were deleted before a record said that they are archived.
            BadSetting: this run has no archive.
            CountledgerError: they could not be stored.
        """
        missing = head.covers.keys() - {item["entry"] for item in items}
        if missing:
            if not plan.same_head(self.views.head(self.counter), head):
                return False
            self._refuse_missing(head, sorted(missing))
        archive, ref = self.compactor.archive, head.archive
        if archive is None or ref is None:
            raise BadSetting(
                f"counter {self.counter!r}: generation {head.generation} is to be archived as "
                f"{ref.key if ref else None!r} before its entries are deleted: run with that "
                "archive"
            )
        if self.compactor.archive_as_found:
            ref = archive.seal(self.counter, head.generation, head.incarnation, items)
        archive.store(self.counter, ref, items)
        return self._record(head, ref.key, record)

    def _refuse_missing(self, head: Head, missing: list[str]) -> None:
        if self.compactor.archive_as_found or head.archive is None:
            return
        raise Tampered(
            f"counter {self.counter!r}: {len(missing)} of the {len(head.covers)} entries of "
            f"generation {head.generation} were deleted by hand before they were archived as "
            f"{head.archive.key!r}: {', '.join(missing[:_NAMED])}; nothing more is deleted. Write "
            "them back as they were, or archive the others alone: "
            "`countledger compact COUNTER --archive-as-found`"
        )

    def _record(self, head: Head, name: str, seen: Item | None) -> bool:
        table = self.views.regions.table
        try:
            self.views.home.put(plan.archived_of(table, self.counter, head, name, seen))
        except ConditionFailed as failed:
            # After a lost answer the SDK sends again, and finds what its first attempt wrote.
            return plan.is_archived(head, failed.item)
        return True
