"""The auditor's account of what is kept beside counters whose names are used again."""

from dataclasses import dataclass, field

from countledger.infra.memory.tables import Change
from countledger.ledger import keys
from countledger.ledger.records import write_of
from countledger.ledger.tombstones import present
from tests.simulation.ledger_account import is_deletion
from tests.simulation.shape import COUNTERS, LEDGER
from tests.simulation.sums import Wrong


@dataclass
class DeletionAccounts:
    """What lies beside counters, and when it was put there.

    Attributes:
        wake_ms: when those that rest go on, all at once.
        deleted_ms: when the numbers of a counter were deleted last.
        joined: when a membership was written: group and counter.
        left: the writes of memberships that were removed, or renewed by another write.
        lost: entries that somebody deleted by hand before they were archived.
    """

    wake_ms: float = 0.0
    deleted_ms: dict[str, float] = field(default_factory=dict)
    joined: dict[tuple[str, str], float] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    lost: dict[str, set[int]] = field(default_factory=dict)

    def changed(self, change: Change, now_ms: float) -> None:
        """A head was replaced by an empty one, or a membership was written or deleted."""
        name, key = change.key
        is_head = change.table.name == LEDGER and key == keys.HEAD and change.local
        if is_head and is_deletion(change.after):
            self.deleted_ms[name] = now_ms
        if change.table.name != COUNTERS or not key.startswith(keys.MEMBER_PREFIX):
            return
        counter = key.removeprefix(keys.MEMBER_PREFIX)
        before, after = present(change.before), present(change.after)
        written = write_of(after) if after else None
        if written in self.left:
            raise Wrong(f"membership {written} of {counter} in {name} is there again")
        if before and write_of(before) != written:
            self.left.add(write_of(before))
        if after:
            self.joined[name, counter] = now_ms
            return
        if not before:
            return  # a tombstone goes
        joined_ms = self.joined.pop((name, counter))
        if joined_ms > self.deleted_ms.get(counter, 0.0):
            raise Wrong(f"{counter} was taken out of {name}, to which it was added again")
