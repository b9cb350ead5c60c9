"""Transactions: judged at one moment, then each item changes at its own; and their tokens.

A token is remembered for ten minutes after its first request was completed. Whether a cancelled
transaction names every condition that failed, or the first one alone, is nowhere promised: the seed
decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.ledger.errors import (
    ConditionFailed,
    Reason,
    TokenMismatch,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.limits import TOKEN_LIFE_MS
from tests.simulation.table import Conflict, written_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Write
    from tests.simulation.schedule import Schedule
    from tests.simulation.table import Key, Table

# How far apart its items land at the most; now and then one of their nodes is slow.
_SPREAD_MS: Final = (30, 30, 30, 30, 30, 30, 30, 30, 30, 300)


@dataclass
class Transactions:
    """The transactions of one region.

    Attributes:
        tables: by name.
        schedule: time, and what happens by itself.
        names_all: whether a cancelled one names all that failed.
    """

    tables: dict[str, Table]
    schedule: Schedule
    names_all: bool = True
    _under_way: set[str] = field(default_factory=set)
    _known: dict[str, tuple[str, float]] = field(default_factory=dict)

    def begin(self, writes: Sequence[Write], token: str) -> tuple[bool, float]:
        """Judge and begin; whether this request is carried out, and how long that takes in ms.

        Raises:
            TransactionCancelled: with a reason for each write.
            TokenMismatch: the token stands for other writes.
            Unclear: an earlier request with it is being carried out.
        """
        body = repr(writes)
        if token in self._under_way:
            raise Unclear("TransactionInProgress")
        known, ended_ms = self._known.get(token, ("", 0.0))
        if known and self.schedule.now_ms - ended_ms <= TOKEN_LIFE_MS:
            if known != body:
                raise TokenMismatch("IdempotentParameterMismatch")
            return False, 0
        self._judge(writes)
        left = [(self.tables[w.table], written_key(w), self._after(w)) for w in writes]
        takes_ms = self._carry_out(left, token)
        self._known[token] = body, self.schedule.now_ms + takes_ms
        return True, takes_ms

    def get(self, table: str, keys: Sequence[Key]) -> list[Item | None]:
        """Items as of one moment.

        Raises:
            TransactionCancelled: a write was under way.
        """
        copy = self.tables[table]
        if any(key in copy.locked for key in keys):
            codes = ("TransactionConflict" if key in copy.locked else "None" for key in keys)
            raise TransactionCancelled(tuple(map(Reason, codes)))
        return [dict(copy.items[key]) if key in copy.items else None for key in keys]

    def _after(self, write: Write) -> Item | None:
        return self.tables[write.table].after(write)

    def _judge(self, writes: Sequence[Write]) -> None:
        reasons: list[Reason] = []
        failed = False
        for write in writes:
            try:
                if failed and not self.names_all:
                    reasons.append(Reason("None"))
                    continue
                self.tables[write.table].check(written_key(write), write.condition)
            except Conflict:
                reasons.append(Reason("TransactionConflict"))
            except ConditionFailed as error:
                failed = True
                reasons.append(Reason("ConditionalCheckFailed", error.item))
            else:
                reasons.append(Reason("None"))
        if any(reason.code != "None" for reason in reasons):
            raise TransactionCancelled(tuple(reasons))

    def _carry_out(self, left: list[tuple[Table, Key, Item | None]], token: str) -> float:
        """At once, or one item after the other; how long it takes."""
        random = self.schedule.random
        if random.random() < 0.5:
            for table, key, after in left:
                table.store(key, after)
            return 0
        # Each on its own node, in no order.
        random.shuffle(left)
        self._under_way.add(token)
        for table, key, _ in left:
            table.locked.add(key)
        takes_ms, spread_ms = 0.0, random.choice(_SPREAD_MS)
        for number, (table, key, after) in enumerate(left):
            takes_ms += random.random() * spread_ms
            last = number == len(left) - 1

            def finish(
                table: Table = table,
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
