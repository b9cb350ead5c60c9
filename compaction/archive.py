"""The archive of merged entries: stored and recorded before the first of them is deleted.

A record beside the head says which generation was stored. Only the record proves it: a missing
entry proves nothing, a person may have deleted it. So it never goes back to an earlier head: a run
that read its head long ago finds the record of a later one, and replaces only what is older.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from countledger.compaction.report import Tampered
from countledger.ledger import keys
from countledger.ledger.errors import BadSetting, ConditionFailed
from countledger.ledger.operations import Absent, AllOf, Compare, Delete, Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.compaction.regions import Views
    from countledger.ledger.attributes import Item
    from countledger.ledger.exact import ArchiveRef, Head

# How many of the missing entries an error names.
_NAMED: Final = 5


class Archive(Protocol):
    """Stores the entries of a generation before they are deleted.

    The same entries always give the same bytes, in whatever order they are given: a run that
    continues after a crash stores them again under the name in the head.
    """

    def seal(
        self, counter: str, generation: int, incarnation: str, entries: Sequence[Item]
    ) -> ArchiveRef:
        """Name and checksum of what `store` will store; nothing is stored yet."""

    def store(self, counter: str, ref: ArchiveRef, entries: Sequence[Item]) -> None:
        """Store the entries that a head covers, under the name that `seal` gave them.

        Called after the head was published and before any of them is deleted; perhaps repeatedly.

        Raises:
            CountledgerError: they could not be stored, or do not have that checksum. Then nothing
                is deleted, and the sums stay right.
        """


@dataclass(frozen=True, slots=True)
class GenerationArchiver:
    """Archives the generations of one counter in one run.

    Attributes:
        archive: where to; None: nowhere.
        as_found: as `Compactor.archive_as_found`.
        views: of the regions, metered for this run.
        counter: its name.
    """

    archive: Archive | None
    as_found: bool
    views: Views
    counter: str

    def recorded(self) -> Item | None:
        """The record of the last archived generation: a read unit."""
        key, table = keys.archived_key(self.counter), self.views.regions.table
        return self.views.home.get(table, key, consistent=True)

    def owes(self, head: Head, record: Item | None) -> bool:
        """Whether the entries that a head covers are still to be archived, by the record."""
        return not is_archived(head, record)

    def keep(self, head: Head, items: Sequence[Item], record: Item | None) -> bool:
        """Store the entries that a head covers, and record it: one PutObject, one write unit.

        Args:
            head: whose entries are not archived yet.
            items: its entries that are in the table.
            record: as it was read before; it is replaced, if it is of no later head.

        Returns:
            True if it was done; False if another run has replaced the head.

        Raises:
            Tampered: entries were deleted before a record said that they are archived.
            BadSetting: this run has no archive.
            CountledgerError: they could not be stored.
        """
        missing = head.covers.keys() - {item["entry"] for item in items}
        if missing or not is_before(head, record):
            now = self.views.head(self.counter)
            if (now.generation, now.run) != (head.generation, head.run):
                return False
        if missing:
            self._refuse_missing(head, sorted(missing))
        ref = head.archive
        if self.archive is None or ref is None:
            raise BadSetting(
                f"counter {self.counter!r}: generation {head.generation} must be archived as "
                f"{ref.key if ref else None!r} before its entries are deleted: run with that "
                "archive"
            )
        if self.as_found:
            ref = self.archive.seal(self.counter, head.generation, head.incarnation, items)
        self.archive.store(self.counter, ref, items)
        return self._record(head, ref.key, record)

    def _refuse_missing(self, head: Head, missing: list[str]) -> None:
        if self.as_found or head.archive is None:
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
            self.views.home.put(archived_of(table, self.counter, head, name, seen))
        except ConditionFailed as failed:
            # The SDK repeats a write that got no answer, and then finds its own first attempt.
            return is_archived(head, failed.item)
        return True


def archived_of(table: str, counter: str, head: Head, name: str, seen: Item | None) -> Put:
    """The record that the entries which a head covers are archived: one write unit.

    Args:
        table: `ledger`.
        counter: its name.
        head: what covers the entries.
        name: of the object.
        seen: the record that this one replaces, or None. A late request finds another one, and
            never replaces the record of a later head, of any incarnation.
    """
    item = {
        **keys.archived_key(counter),
        "generation": head.generation,
        "run": head.run,
        "incarnation": head.incarnation,
        "name": name,
    }
    if seen is None:
        return Put(table, item, Absent("entry"))
    same = (Compare(name, "=", seen.get(name)) for name in ("generation", "run"))
    return Put(table, item, AllOf(*same))


def unarchived_of(table: str, counter: str, incarnation: str) -> Delete:
    """Delete that record with its counter: one write unit.

    Args:
        table: `ledger`.
        counter: its name.
        incarnation: of the head that was emptied; a record of another incarnation belongs to a
            counter that uses the name again.
    """
    same = Compare("incarnation", "=", incarnation)
    return Delete(table, keys.archived_key(counter), same)


def is_before(head: Head, record: Item | None) -> bool:
    """Whether the record is certainly of an earlier head; if not, read the head again."""
    if record is None:
        return True
    return (
        record.get("incarnation") == head.incarnation
        and record.get("generation", head.generation) < head.generation
    )


def is_archived(head: Head, record: Item | None) -> bool:
    """Whether the record says that the entries which this head covers are archived."""
    recorded = (record or {}).get("generation"), (record or {}).get("run")
    return recorded == (head.generation, head.run)
