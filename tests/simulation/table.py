"""One region's copy of a table, in which transactions take time and reads may be stale."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from countledger.infra.memory.tables import Change, Conflict, Key, Table, key_of
from countledger.ledger.attributes import Item
from countledger.ledger.operations import Condition, Put, Write


@dataclass(eq=False)
class SimulatedTable(Table):
    """The items.

    Attributes:
        locked: what a transaction is at work on.
        earlier: of items changed: when, and what a read that is not consistent may still show.
        now_ms: the true time.
    """

    locked: set[Key] = field(default_factory=set)
    earlier: dict[Key, tuple[float, Item | None]] = field(default_factory=dict)
    now_ms: Callable[[], float] = lambda: 0.0

    @classmethod
    def of(cls, name: str, region: str) -> Self:
        """An empty copy; the table's name says which sort key it has."""
        return cls(name, "entry" if name.endswith("ledger") else "part", region=region)

    def check(self, key: Key, condition: Condition | None) -> None:
        """Judge a condition.

        Raises:
            Conflict: a transaction is at work on the item.
            ConditionFailed: with the item that is there.
        """
        if key in self.locked:
            raise Conflict(f"TransactionConflict on {key}")
        super().check(key, condition)

    def _changed(self, change: Change) -> None:
        self.earlier[change.key] = self.now_ms(), change.before
        super()._changed(change)


def written_key(write: Write) -> Key:
    """The key of the item that a write is about."""
    return key_of(write.item if isinstance(write, Put) else write.key)
