"""Transactions: judged at one moment, then each item changes at its own; and their tokens.

Whether a cancelled transaction names every condition that failed, or the first one alone, is
nowhere promised: the seed decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from countledger.infra.memory.tables import Key, Transactions
from countledger.ledger.attributes import Item
from countledger.ledger.errors import Reason, TransactionCancelled, Unclear
from countledger.ledger.operations import Write
from tests.simulation.schedule import Schedule
from tests.simulation.table import SimulatedTable

# How far apart its items land at the most; now and then one of their nodes is slow.
_SPREAD_MS: Final = (30, 30, 30, 30, 30, 30, 30, 30, 30, 300)


@dataclass
class SimulatedTransactions(Transactions):
    """The transactions of one region.

    Attributes:
        schedule: time, and what happens by itself.
    """

    tables: dict[str, SimulatedTable]
    schedule: Schedule = None  # type: ignore[assignment]  # always given
    _under_way: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls, tables: dict[str, SimulatedTable], schedule: Schedule, *, names_all: bool = True
    ) -> SimulatedTransactions:
        """Those of a region's tables."""
        return cls(tables, lambda: schedule.now_ms, names_all, schedule=schedule)

    def begin(self, writes: Sequence[Write], token: str) -> tuple[bool, float]:
        """Judge and begin; whether this request is carried out, and how long that takes in ms.

        Raises:
            Unclear: an earlier request with it is being carried out.
            As `Transactions.begin`.
        """
        if token in self._under_way:
            raise Unclear("TransactionInProgress")
        return super().begin(writes, token)

    def get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        """Items as of one moment.

        Raises:
            TransactionCancelled: a write was under way.
        """
        locked = self.tables[table].locked
        if any(key in locked for key in keys):
            codes = ("TransactionConflict" if key in locked else "None" for key in keys)
            raise TransactionCancelled(tuple(map(Reason, codes)))
        return super().get(table, keys)

    def _apply(self, changes: list[Any], token: str) -> float:
        """At once, or one item after the other; how long it takes."""
        random = self.schedule.random
        if random.random() < 0.5:
            return super()._apply(changes, token)
        # Each on its own node, in no order.
        random.shuffle(changes)
        self._under_way.add(token)
        for table, key, _ in changes:
            table.locked.add(key)
        takes_ms, spread_ms = 0.0, random.choice(_SPREAD_MS)
        for number, (table, key, after) in enumerate(changes):
            takes_ms += random.random() * spread_ms
            last = number == len(changes) - 1

            def finish(
                table: SimulatedTable = table,
                key: Key = key,
                after: Item | None = after,
                last: bool = last,  # noqa: FBT001 - bound now
            ) -> None:
                table.locked.discard(key)
                table.store(key, after)
                if last:
                    self._under_way.discard(token)

            self.schedule.at(takes_ms, finish)
        return takes_ms
