"""Which counters are over regions: strict ones in the table `strict`, and not in `counters`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.errors import BadSetting
from countledger.ledger.namespace import Kind, Namespaces

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class StrictRegions:
    """The strict counters over regions.

    Attributes:
        table: the table `strict`.
        namespaces: reads a namespace's kind.
    """

    table: str
    namespaces: Namespaces

    def has(self, counter: str) -> bool:
        """Whether a counter is over regions: a read unit for each namespace, once."""
        namespace = self.namespaces.find(keys.namespace_of(counter))
        return namespace is not None and namespace.kind is Kind.STRICT_REGIONS

    def refuse(self, counters: Iterable[str], what: str) -> None:
        """Refuse a use that the table does not allow.

        Args:
            counters: their names.
            what: what is not possible, and what to use instead.

        Raises:
            BadSetting: one of them is over regions.
        """
        for counter in filter(self.has, counters):
            raise BadSetting(f"counter {counter!r} is over regions (kind strict-regions): {what}")
