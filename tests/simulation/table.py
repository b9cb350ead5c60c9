"""One region's copy of a table: items in key order, conditions, what a write makes of an item.

Nothing here takes time. Who calls when, and what is seen of a page while others write, is a matter
of the client.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from countledger.ledger.errors import ConditionFailed, Throttled
from countledger.ledger.operations import Check, Delete, Put, Update
from tests.simulation.judgement import changed, holds, key_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.attributes import Item
    from countledger.ledger.expressions import Condition
    from countledger.ledger.operations import Write

Key: TypeAlias = "tuple[str, str]"


class Conflict(Throttled):
    """A transaction is at work on the item; the SDK does not try that again."""


@dataclass(frozen=True, slots=True)
class Change:
    """An item that a write has changed.

    Attributes:
        table: where.
        key: which.
        before: as it was, or None.
        after: as it is, or None.
        local: whether it was written here, and not in another region.
    """

    table: Table
    key: Key
    before: Item | None
    after: Item | None
    local: bool


@dataclass(eq=False)
class Table:
    """The items.

    Attributes:
        name: of the table.
        region: whose copy it is.
        items: by key.
        partitions: the sort keys of each partition, in order.
        locked: what a transaction is at work on.
        earlier: of items changed: when, and what a read that is not consistent may still show.
        watchers: told of every change.
    """

    name: str
    region: str
    items: dict[Key, Item] = field(default_factory=dict)
    partitions: dict[str, list[str]] = field(default_factory=dict)
    locked: set[Key] = field(default_factory=set)
    earlier: dict[Key, tuple[float, Item | None]] = field(default_factory=dict)
    watchers: list[Callable[[Change], None]] = field(default_factory=list)
    now_ms: Callable[[], float] = lambda: 0.0

    @property
    def sort(self) -> str:
        """The name of its sort key."""
        return "entry" if self.name.endswith("ledger") else "part"

    def check(self, key: Key, condition: Condition | None) -> None:
        """Judge a condition.

        Raises:
            Conflict: a transaction is at work on the item.
            ConditionFailed: with the item that is there.
        """
        if key in self.locked:
            raise Conflict(f"TransactionConflict on {key}")
        there = self.items.get(key)
        if condition is not None and not holds(condition, there or {}):
            raise ConditionFailed(dict(there) if there is not None else None)

    def write(self, write: Write) -> Item | None:
        """Carry a write out; the item as it is now.

        Raises:
            As `check`, and RequestRejected where the service calls it invalid.
        """
        key = written_key(write)
        self.check(key, write.condition)
        after = self.after(write)
        self.store(key, after)
        return after

    def after(self, write: Write) -> Item | None:
        """What a write makes of its item."""
        match write:
            case Put():
                return {name: value for name, value in write.item.items() if value is not None}
            case Update():
                there = self.items.get(key_of(write.key))
                return changed(there if there is not None else dict(write.key), write.clauses)
            case Delete():
                return None
            case Check():
                return self.items.get(key_of(write.key))

    def store(self, key: Key, after: Item | None, *, local: bool = True) -> bool:
        """Let an item be so; whether that changed anything."""
        before = self.items.get(key)
        if before == after:
            return False
        order = self.partitions.setdefault(key[0], [])
        if after is None:
            del self.items[key]
            del order[bisect_left(order, key[1])]
        else:
            self.items[key] = after
            if before is None:
                insort(order, key[1])
        self.earlier[key] = self.now_ms(), before
        change = Change(self, key, before, after, local)
        for watcher in self.watchers:
            watcher(change)
        return True


def written_key(write: Write) -> Key:
    """The key of the item that a write is about."""
    return key_of(write.item if isinstance(write, Put) else write.key)
