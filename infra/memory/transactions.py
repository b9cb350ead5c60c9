"""Transactions over tables in memory: all writes or none, at one moment; and their tokens.

A token is remembered for ten minutes after its first request. Whether a cancelled transaction names
every failed condition, or the first one only, is documented nowhere; here it names all by default.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from countledger.infra.memory.table import Conflict
from countledger.ledger.errors import (
    ConditionFailed,
    Reason,
    TokenMismatch,
    TransactionCancelled,
)
from countledger.ledger.limits import TOKEN_LIFE_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from countledger.infra.memory.table import Key, Table
    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write


@dataclass
class Transactions:
    """The transactions of one region.

    Attributes:
        tables: by name.
        now_ms: the time.
        names_all: whether a cancelled transaction names every failed condition.
        known: what was written under each token, and when that was completed.
    """

    tables: Mapping[str, Table]
    now_ms: Callable[[], float]
    names_all: bool = True
    known: dict[str, tuple[str, float]] = field(default_factory=dict)

    def begin(self, writes: Sequence[Write], token: str) -> tuple[bool, float]:
        """Carry out a transaction; whether this request did, and how long that takes in ms.

        Raises:
            TransactionCancelled: with a reason for each write.
            TokenMismatch: the token stands for other writes.
        """
        body = repr(writes)
        known, ended_ms = self.known.get(token, ("", 0.0))
        if known and self.now_ms() - ended_ms <= TOKEN_LIFE_MS:
            if known != body:
                raise TokenMismatch("IdempotentParameterMismatch")
            return False, 0
        self._check(writes)
        tables = [self.tables[write.table] for write in writes]
        changes = [
            (table, table.written_key(write), table.after(write))
            for table, write in zip(tables, writes, strict=True)
        ]
        takes_ms = self._apply(changes, token)
        self.known[token] = body, self.now_ms() + takes_ms
        return True, takes_ms

    def get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        """Items as of one moment."""
        items = self.tables[table].items
        return [dict(items[key]) if key in items else None for key in keys]

    def _check(self, writes: Sequence[Write]) -> None:
        reasons: list[Reason] = []
        failed = False
        for write in writes:
            table = self.tables[write.table]
            try:
                if failed and not self.names_all:
                    reasons.append(Reason("None"))
                    continue
                table.check(table.written_key(write), write.condition)
            except Conflict:
                reasons.append(Reason("TransactionConflict"))
            except ConditionFailed as error:
                failed = True
                reasons.append(Reason("ConditionalCheckFailed", error.item))
            else:
                reasons.append(Reason("None"))
        if any(reason.code != "None" for reason in reasons):
            raise TransactionCancelled(tuple(reasons))

    def _apply(self, changes: list[tuple[Table, Key, Item | None]], token: str) -> float:  # noqa: ARG002 - of others
        """Store the items, all at this moment; how long it takes in ms."""
        for table, key, after in changes:
            table.store(key, after)
        return 0
