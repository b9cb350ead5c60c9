"""What keeps the entries that are merged away: an audit trail beside the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attributes import Item
    from countledger.ledger.head import ArchiveRef


class Archive(Protocol):
    """Stores the entries of a generation before they are deleted.

    The same entries give the same bytes, always, in whatever order they are given: a run that goes
    on where another died stores them again under the name that the head tells.
    """

    def seal(
        self, counter: str, generation: int, incarnation: str, entries: Sequence[Item]
    ) -> ArchiveRef:
        """Name and checksum of what `store` will store; nothing is stored yet."""

    def store(self, counter: str, ref: ArchiveRef, entries: Sequence[Item]) -> None:
        """Store the entries that a head covers, under the name that `seal` gave them.

        Called after the head was published and before any of them is deleted; perhaps again.

        Raises:
            CountledgerError: they could not be stored, or are not those that the checksum is of.
                Nothing is deleted then; the sums stay right.
        """
