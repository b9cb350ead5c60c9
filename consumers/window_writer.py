"""Writes one counter's changes into the items of its windows, after its total.

Each item has its own watermark of the shard, by the same attribute and the same condition as the
total: effect and watermark are one write. So each item is decided by its own watermark alone. What
the total contains already (a crash between the two writes) is still written here, and what an item
contains already is dropped, whatever the total says.

The items of a counter are named by an id that its total gets with its first windowed entry. A
counter that is deleted and used again gets another total and another id, so it never meets the
windows of the deleted one. The id is part of the total's own answer, hence total first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.consumers import progress
from countledger.ledger import amount, keys
from countledger.ledger.attributes import check_format
from countledger.ledger.errors import (
    ConditionFailed,
    RequestRejected,
    ServiceFailed,
    SumOverflow,
)
from countledger.ledger.indexes import day_clauses
from countledger.ledger.limits import FORMAT
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    Compare,
    Update,
)
from countledger.ledger.total import new_windows_id, windows_id_of, windows_names
from countledger.ledger.windows import EVENTS, SUM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from countledger.consumers.window_changes import FoldedItem, ItemChanges, WindowChanges
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Clause
    from countledger.ledger.windows import WindowSetting

# As for totals: another write moves the watermark only if a late write of an earlier invocation
# lands at the same time.
_ATTEMPTS: Final = 10
_READABLE: Final = AnyOf(Absent("v"), Compare("v", "=", FORMAT))
_NEXT_VERSION: Final = Add("version", 1)


def windowed_clauses(
    changes: Iterable[WindowChanges], shard: str, first: int
) -> tuple[Clause, ...]:
    """What the update of a total adds for windows: their id, and the sum of all months.

    Args:
        changes: for each setting.
        shard: the stream shard of the records.
        first: the first sequence number of the update.
    """
    clauses: list[Clause] = []
    for one in changes:
        windows, total, events = windows_names(one.setting.id)
        new_id = new_windows_id(one.setting.id, shard, first)
        clauses += (AssignOnce(windows, new_id), Add(total, one.delta), Add(events, one.events))
    return tuple(clauses)


def item_update_of(  # noqa: PLR0917 - of one write
    table: str, key: Key, step: FoldedItem, shard: str, now_ms: int, also: Iterable[Clause] = ()
) -> Update:
    """The one write of changes into an item of windows. One write unit below 1 KB.

    `also`: what its ranking adds; two write units more, of the index.

    Conditional on the shard's watermark being lower than the first of the changes.
    """
    mark = progress.attribute(shard)
    clauses: list[Clause] = [
        Add("sum", step.delta),
        Add("events", step.events),
        _NEXT_VERSION,
        Assign(mark, progress.encode(step.last, now_ms)),
        *also,
    ]
    if step.expires_at is not None:
        clauses.append(Assign("expires_at", step.expires_at))
    for number, (delta, events) in step.cells.items():
        clauses += (Add(SUM + number, delta), Add(EVENTS + number, events))
    condition = AllOf(
        _READABLE, AnyOf(Absent(mark), Compare(mark, "<", progress.floor(step.first)))
    )
    return Update(table, key, tuple(clauses), condition, returning="ALL_NEW")


@dataclass(frozen=True, slots=True)
class WindowWriter:
    """Writes the windows of one batch.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry, because a second application is refused.
        table: the table `counters`.
        shard: the stream shard of the records.
        quarantine: quarantines the record with a sequence number, with a reason.
        now_ms: the time of the batch, ms since the epoch.
        clean_up: removes watermarks that refuse nothing any more from an item that was written.
    """

    dynamo: DynamoClient
    table: str
    shard: str
    quarantine: Callable[[int, str], None]
    now_ms: int
    clean_up: Callable[[Key, Item], None]

    def write(self, counter: str, total: Item, changes: Iterable[WindowChanges]) -> int:
        """Apply changes of one counter to its windows: one write unit for each item below 1 KB.

        A change that the service calls invalid (the item was edited by hand) is quarantined before
        a later one moves the item's watermark past it.

        Args:
            counter: its name.
            total: the total's item, which contains the changes already.
            changes: for each setting.

        Returns:
            How many items were written; the others contained their changes already.

        Raises:
            CountledgerError: an item could not be written now; all changes must come again.
        """
        written = 0
        for one in changes:
            windows = windows_id_of(total, one.setting.id)
            if windows is None:
                windows = self._named(counter, one)
            for item in one.items:
                written += self._write(counter, windows, item, one.setting)
        return written

    def _named(self, counter: str, changes: WindowChanges) -> str:
        """Give the windows of a total an id: the total was made by a repair, or edited by hand."""
        setting, first = changes.setting.id, changes.items[0].sequences()[0]
        clause = AssignOnce(windows_names(setting)[0], new_windows_id(setting, self.shard, first))
        condition = Compare("part", "=", keys.TOTAL)
        update = Update(self.table, keys.total_key(counter), (clause,), condition, "ALL_NEW")
        try:
            found = windows_id_of(self.dynamo.update(update) or {}, setting)
        except ConditionFailed:
            found = None
        if found is None:
            raise ServiceFailed(f"the total of counter {counter!r} was deleted meanwhile")
        return found

    def _write(
        self, counter: str, windows: str, changes: ItemChanges, setting: WindowSetting
    ) -> int:
        try:
            return self._apply(counter, windows, changes, setting)
        except RequestRejected as rejection:
            sequences = changes.sequences()
            if len(sequences) > 1:
                middle = sequences[len(sequences) // 2 - 1]
                first = self._write(counter, windows, changes.up_to(middle), setting)
                return first + self._write(counter, windows, changes.above(middle), setting)
            reason = f"windows {changes.item!r} of counter {counter!r}: {rejection}"
            self.quarantine(sequences[0], reason)
            return 0

    def _apply(
        self, counter: str, windows: str, changes: ItemChanges, setting: WindowSetting
    ) -> int:
        """Write the changes that the item does not contain yet; 0: it contains all."""
        key = keys.window_key(counter, windows, changes.item)
        pending = changes
        for _ in range(_ATTEMPTS):
            step = pending.folded()
            if not amount.fits(step.delta):
                raise SumOverflow("the sum needs more than 38 digits")
            also = day_clauses(setting, counter, changes.item, Add("total", step.delta))
            update = item_update_of(self.table, key, step, self.shard, self.now_ms, also)
            try:
                item = self.dynamo.update(update)
            except ConditionFailed as failed:
                check_format(failed.item or {})
                pending = pending.above(progress.sequence_in(failed.item, self.shard))
                if not pending.parts:
                    return 0
            else:
                self.clean_up(key, item or {})
                return 1
        raise ServiceFailed(
            f"windows {changes.item!r} of counter {counter!r}: other writes moved the watermark "
            f"during {_ATTEMPTS} updates"
        )
