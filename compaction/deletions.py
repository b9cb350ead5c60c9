"""Delete counters of every kind, by name or by namespace.

A ledger counter is deleted in steps (`ledger_deletion`). A strict counter and a sequence are
deleted by one call: each of their writes is conditional on the counter's incarnation. Their own
packages do it; this module only knows the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from countledger.compaction.deletion import Deletion, DeletionStage, skipped
from countledger.ledger import keys
from countledger.ledger.errors import CorruptItem, NoSuchCounter, Refused, ServiceFailed
from countledger.ledger.namespace import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from countledger.compaction.ledger_deletion import LedgerDeleter


@dataclass(frozen=True, slots=True)
class Deletions:
    """Deletes counters, in the home region.

    Attributes:
        ledger: deletes ledger counters.
        at_once: deletes a counter of another kind.
        tidy: deletes the markers of a strict counter's earlier incarnations, given its number of
            bins.
        names: the counters of a namespace that have a value.
        seen: finds what is kept beside a counter now; the result deletes that and nothing else.
    """

    ledger: LedgerDeleter
    at_once: Mapping[Kind, Callable[[str], None]]
    tidy: Callable[[str, int], None]
    names: Callable[[str], Iterator[str]]
    seen: Callable[[str], Callable[[], object]]

    def delete(self, counter: str) -> Deletion:
        """Delete a counter, or continue its deletion, as far as is safe now.

        A ledger counter needs three calls: the first marks it, the second deletes its numbers once
        no entry made before can arrive (a day and more), the third forgets its name a day later. A
        strict counter and a sequence are forgotten by the first.

        Raises:
            NoSuchCounter: no counter has that name.
            NamespaceUnknown: its namespace was never used.
            WrongRegion: this is not the home region.
            BadSetting: as `LedgerDeleter.delete`.
        """
        counter = keys.check_counter(counter)
        kind = self._kind(keys.namespace_of(counter))
        if kind is Kind.LEDGER:
            return self.ledger.delete(counter)
        self._delete(kind, counter)
        return Deletion(counter, DeletionStage.FORGOTTEN, None, "nothing is left of it")

    def delete_all(self, namespace: str) -> Iterator[Deletion]:
        """Delete the counters of a namespace, or continue that; the namespace itself stays.

        As `delete` for each; unless they are strict, the table `counters` is scanned for their
        totals, half a read unit for each 4 KB. It can be stopped at any time: the next call
        continues. A counter that was first recorded after all others were marked is marked then. A
        counter that cannot be read or written is skipped, with the reason, and stops no other.

        Raises:
            NamespaceUnknown: the namespace does not exist.
            WrongRegion, BadSetting, SetupError: as `delete`; it concerns every counter.
        """
        self._kind(namespace)
        marked = [*self.pending(namespace)]
        known = set(marked)
        fresh = (counter for counter in self.names(namespace) if counter not in known)
        for counter in chain(marked, fresh):
            try:
                yield self.delete(counter)
            except NoSuchCounter:
                continue  # another process was faster
            except (CorruptItem, Refused, ServiceFailed) as error:
                yield skipped(counter, str(error))

    def pending(self, namespace: str) -> Iterator[str]:
        """The counters of a namespace whose deletion has begun: as `DeletionMarks.pending`."""
        return self.ledger.marks.pending(namespace)

    def cancel(self, counter: str) -> bool:
        """Keep a counter after all, if its numbers are still there.

        Returns:
            True if it was marked, and no longer is.
        """
        counter = keys.check_counter(counter)
        return self.ledger.cancel(counter)

    def _delete(self, kind: Kind, counter: str) -> None:
        """Delete the counter, then what was beside it before; a call after a crash does the rest.

        What is put beside it later belongs to the next counter of the name.
        """
        delete_seen = self.seen(counter)
        item = self.ledger.dynamo.get(self.ledger.table, keys.total_key(counter)) or {}
        bins = item.get("bins") or 1
        try:
            self.at_once[kind](counter)
        except NoSuchCounter:
            # A call before may have crashed after this.
            delete_seen()
            self.tidy(counter, bins)
            raise
        delete_seen()
        self.tidy(counter, bins)

    def _kind(self, namespace: str) -> Kind:
        namespace = keys.check_namespace(namespace)
        return self.ledger.namespaces.get(namespace).kind
