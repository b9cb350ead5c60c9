"""The counters of a namespace, with their totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.consumers.names import counters_of
from countledger.ledger import keys
from countledger.ledger.expressions import Compare
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.operations import Query

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.consumers.totals import TotalsReader
    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.total import Total


@dataclass(frozen=True, slots=True)
class Listing:
    """Lists counters.

    Attributes:
        totals: reads totals.
        namespaces: tell of what kind a namespace is.
    """

    totals: TotalsReader
    namespaces: Namespaces

    def counters(self, namespace: str, on_corrupt: OnCorrupt | None = None) -> Iterator[Total]:
        """The counters of a namespace that were ever changed, with their totals, as they are found.

        Strict counters stand in a directory: by name, for half a read unit for each 4 KB of it, and
        half of one for each counter and each bin. The others have none, for it would cost a write
        with each counter: the whole table `counters` is looked through, half a read unit for each
        4 KB, and they come in no order. (A ranked namespace has them in order: see its top.)

        Args:
            namespace: whose counters.
            on_corrupt: called with the error of each total that cannot be read, which is left out.

        Raises:
            NamespaceUnknown: there is no such namespace.
            CorruptItem: a total cannot be read, and `on_corrupt` is not given.
        """
        kind = self.namespaces.get(keys.check_namespace(namespace)).kind
        names = self._strict(namespace) if kind is Kind.STRICT else self._found(namespace)
        return self._read(names, on_corrupt)

    def _strict(self, namespace: str) -> Iterator[list[str]]:
        directory = Compare("counter", "=", keys.STRICT_PREFIX + namespace)
        for page in self.totals.dynamo.pages(Query(self.totals.table, directory)):
            yield [item["part"] for item in page]

    def _found(self, namespace: str) -> Iterator[list[str]]:
        return counters_of(self.totals.dynamo, self.totals.table, namespace)

    def _read(self, pages: Iterator[list[str]], on_corrupt: OnCorrupt | None) -> Iterator[Total]:
        for names in pages:
            # Version 0: made for a ranked group, and never recorded.
            found = self.totals.read_many(names, on_corrupt).values()
            yield from (total for total in found if total.version)
