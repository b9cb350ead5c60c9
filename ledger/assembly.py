"""Parts of the kernel put together, from a connection to a stack.

Each function imports what it needs: a process that records never loads what reads a ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger import keys
from countledger.ledger.errors import BadSetting
from countledger.ledger.namespace import Kind, Namespaces
from countledger.ledger.settings import OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from countledger.ledger.attributes import OnCorrupt
    from countledger.ledger.connection import Connection
    from countledger.ledger.entry import Entry
    from countledger.ledger.exact import ExactReader, Head

__all__ = [
    "ExactReader",
    "Namespaces",
    "OnCorrupt",
    "StrictRegions",
    "entries_of",
    "exact_of",
    "head_of",
    "strict_regions_of",
    "strict_table_of",
]


@dataclass(frozen=True, slots=True)
class StrictRegions:
    """Which counters are over regions: strict ones in the table `strict`, and not in `counters`.

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


def strict_table_of(connection: Connection) -> str | None:
    """The table of strict counters over regions, or None: the stack has none here.

    No call is made if the settings name the tables.
    """
    named = connection.settings.strict_table
    if named or connection.settings.counters_table:
        return named or None
    return connection.outputs.get(OUTPUTS["strict_table"])


def strict_regions_of(
    connection: Connection, namespaces: Namespaces | None = None
) -> StrictRegions | None:
    """The strict counters over regions; None: the stack has none here.

    Args:
        connection: to the stack.
        namespaces: as the process knows them; None: they are read again.
    """
    table = strict_table_of(connection)
    return None if table is None else StrictRegions(table, namespaces or Namespaces(connection))


def exact_of(connection: Connection) -> ExactReader:
    """The reader of exact sums of a stack."""
    from countledger.ledger.exact import ExactReader

    dynamo, table = connection.retrying, connection.setting("ledger_table")
    return ExactReader(dynamo, table, connection.clock)


def head_of(connection: Connection, counter: str) -> Head:
    """The head of a counter. Half a read unit for each 4 KB of it."""
    from countledger.ledger.exact import decode_head

    counter = keys.check_counter(counter)
    key = keys.head_key(counter)
    return decode_head(connection.retrying.get(connection.setting("ledger_table"), key))


def entries_of(
    connection: Connection,
    namespaces: Namespaces,
    counter: str,
    limit: int | None,
    *,
    before: datetime | None,
    on_corrupt: OnCorrupt | None,
) -> Iterator[Entry]:
    """The entries of a counter that are not merged yet, newest first."""
    from countledger.ledger.clock import to_ms
    from countledger.ledger.exact import newest_first

    counter = keys.check_counter(counter)
    spread = namespaces.expect(counter, Kind.LEDGER).spread
    dynamo, table = connection.retrying, connection.setting("ledger_table")
    head = head_of(connection, counter)
    return newest_first(
        dynamo,
        table,
        counter,
        spread,
        limit,
        head=head,
        before_ms=None if before is None else to_ms(before),
        on_corrupt=on_corrupt,
    )
