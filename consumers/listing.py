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

    def counters(self, namespace: str) -> Iterator[Total]:
        """The counters of a namespace that were ever changed, with their totals, as they are found.

        Strict counters stand in a directory: by name, for half a read unit for each 4 KB of it, and
        half of one for each counter and each bin. The others have none, for it would cost a write
        with each counter: the whole table `counters` is looked through, half a read unit for each
        4 KB, and they come in no order. (A ranked namespace has them in order: see its top.)

        Raises:
            NamespaceUnknown: there is no such namespace.
        """
        kind = self.namespaces.get(keys.check_namespace(namespace)).kind
        return self._strict(namespace) if kind is Kind.STRICT else self._found(namespace)

    def _strict(self, namespace: str) -> Iterator[Total]:
        directory = Compare("counter", "=", keys.STRICT_PREFIX + namespace)
        for page in self.totals.door.pages(Query(self.totals.table, directory)):
            yield from self._read([item["part"] for item in page])

    def _found(self, namespace: str) -> Iterator[Total]:
        for names in counters_of(self.totals.door, self.totals.table, namespace):
            yield from self._read(names)

    def _read(self, names: list[str]) -> Iterator[Total]:
        found = self.totals.read_many(names)
        # Version 0: made for a ranked group, and never recorded.
        yield from (found[name] for name in names if found[name].version)
