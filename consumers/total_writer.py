"""Writes one counter's changes into its total, then into its windows.

Effect and watermark are one write, in the total as in each item of windows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from countledger.consumers import watermark
from countledger.consumers.fold import FoldedChange, after, folded_change
from countledger.consumers.record import EntryChange
from countledger.ledger import amount, keys
from countledger.ledger.attributes import check_format
from countledger.ledger.errors import (
    ConditionFailed,
    CountledgerError,
    RequestRejected,
    ServiceFailed,
    SumOverflow,
)
from countledger.ledger.limits import FORMAT
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    AssignOnce,
    Compare,
    Drop,
    Update,
)
from countledger.ledger.total import new_incarnation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from countledger.consumers.fold import CounterChanges
    from countledger.consumers.window_changes import WindowChanges
    from countledger.ledger.attributes import Item, Key
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.operations import Clause
    from countledger.ledger.windows import WindowSetting

# Another write moves the watermark only if a late write of an earlier invocation lands at the same
# time; each attempt leaves fewer changes.
_ATTEMPTS: Final = 10
_CLEANED_AT_ONCE: Final = 100
_SHOWN: Final = 60
_NEXT_VERSION: Final = Add("version", 1)
_READABLE: Final = AnyOf(Absent("v"), Compare("v", "=", FORMAT))
# Strict counters and sequences have the same key, and bounds.
_NOT_STRICT: Final = Absent("method")


class Written(NamedTuple):
    """What became of one counter's changes.

    Attributes:
        applied: how many this call applied to the total.
        duplicates: how many had been applied before.
        rejected: how many can never be applied and were quarantined.
        windows: how many items of windows this call wrote.
        refused_times: how many changes count in the windows of their recording, because their own
            time is ahead, before 1970 or too long ago.
        error: why the others could not be written now; None: all were written.
    """

    applied: int = 0
    duplicates: int = 0
    rejected: int = 0
    windows: int = 0
    refused_times: int = 0
    error: CountledgerError | None = None


def update_of(table: str, counter: str, step: FoldedChange, shard: str, now_ms: int) -> Update:
    """The one write of a change: its effect and the shard's watermark. One write unit below 1 KB.

    Conditional on the watermark being lower than the change's first record.
    """
    mark = watermark.attribute(shard)
    return Update(
        table,
        keys.total_key(counter),
        (
            Add("total", step.delta),
            Add("events", step.events),
            Add("entries", step.entries),
            _NEXT_VERSION,
            Assign("updated_at", now_ms),
            Assign(mark, watermark.encode(step.last, now_ms)),
            AssignOnce("incarnation", new_incarnation(shard, step.first, now_ms)),
        ),
        AllOf(
            _READABLE,
            _NOT_STRICT,
            AnyOf(Absent(mark), Compare(mark, "<", watermark.floor(step.first))),
        ),
        returning="ALL_NEW",
    )


def and_also(update: Update, also: tuple[Clause, ...]) -> Update:
    """The same write with the clauses of a ranking and of windows."""
    return replace(update, clauses=(*update.clauses, *also)) if also else update


def clean_up_of(table: str, key: Key, stale: Mapping[str, bytes]) -> Update:
    """Remove watermarks that refuse nothing any more, unless one of them has moved."""
    return Update(
        table,
        key,
        tuple(Drop(name) for name in stale),
        AllOf(*(Compare(name, "=", value) for name, value in stale.items())),
    )


@dataclass(frozen=True, slots=True)
class TotalWriter:
    """Writes the totals of one batch.

    Attributes:
        dynamo: a DynamoDB client; the SDK may retry, because a second application is refused.
        table: the table `counters`.
        shard: the stream shard of the records.
        quarantine: quarantines the record of a change, with a reason.
        now_ms: the time of the batch, ms since the epoch.
        index: puts a counter into the due index, if its total has enough entries.
        also: the clauses that a ranking adds to the update of a counter's total.
        removable: the watermarks of a total that can be removed; None: by their age alone.
        windows: which windows a counter has; None: none has any.
    """

    dynamo: DynamoClient
    table: str
    shard: str
    quarantine: Callable[[EntryChange, str], None]
    now_ms: int
    index: Callable[[Item], None] | None = None
    also: Callable[[str], tuple[Clause, ...]] | None = None
    removable: Callable[[Item], dict[str, bytes]] | None = None
    windows: Callable[[str], Sequence[WindowSetting]] | None = None

    def write(self, counter: str, changes: CounterChanges) -> Written:
        """Apply changes of one counter, in order, to its total and then to its windows.

        One write unit, and one for each item of windows that they touch.

        If the service calls the update invalid, the changes are halved until the invalid one is
        alone. It is quarantined *before* a later change moves the watermark past it, so it is not
        lost.
        """
        try:
            windowed = self._window_changes(counter, changes)
            applied, item = self._apply(counter, changes, windowed)
            windows = self._write_windows(counter, item, windowed)
        except RequestRejected as rejection:
            if len(changes) > 1:
                half = len(changes) // 2
                first = self.write(counter, changes[:half])
                return first if first.error else _both(first, self.write(counter, changes[half:]))
            try:
                self.quarantine(changes[0], str(rejection))
            except CountledgerError as error:
                return Written(error=error)
            return Written(rejected=1)
        except CountledgerError as error:
            return Written(error=error)
        return Written(
            applied,
            len(changes) - applied,
            windows=windows,
            refused_times=sum(one.refused for one in windowed) if windows else 0,
            error=self._indexed(item),
        )

    def _window_changes(self, counter: str, changes: CounterChanges) -> list[WindowChanges]:
        settings = self.windows(counter) if self.windows is not None else ()
        if not settings:
            return []
        from countledger.consumers.window_changes import window_changes  # noqa: PLC0415 - at first windows

        return window_changes(changes, settings)

    def _write_windows(self, counter: str, total: Item, windowed: Sequence[WindowChanges]) -> int:
        """Write windows, whether the total contained their changes before or not."""
        if not windowed:
            return 0
        from countledger.consumers.window_writer import WindowWriter  # noqa: PLC0415 - as above

        def quarantine(sequence: int, reason: str) -> None:
            self.quarantine(EntryChange(sequence, counter, 0, 0, 0), reason)

        writer = WindowWriter(
            self.dynamo, self.table, self.shard, quarantine, self.now_ms, self._clean_up
        )
        return writer.write(counter, total, windowed)

    def _indexed(self, item: Item) -> CountledgerError | None:
        """Put the counter into the due index; an error makes the changes come again, so it too."""
        try:
            if self.index is not None:
                self.index(item)
        except CountledgerError as error:
            return error
        return None

    def _apply(
        self, counter: str, changes: CounterChanges, windowed: Sequence[WindowChanges]
    ) -> tuple[int, Item]:
        """Write the changes that are not applied yet; their number, and the total's item now."""
        if not keys.is_counter(counter):
            raise RequestRejected(f"{counter[:_SHOWN]!r} is not the name of a counter")
        pending = changes
        also = () if self.also is None else self.also(counter)
        for _ in range(_ATTEMPTS):
            step = folded_change(pending)
            if not amount.fits(step.delta):
                raise SumOverflow(f"counter {counter!r}: the sum needs more than 38 digits")
            try:
                update = update_of(self.table, counter, step, self.shard, self.now_ms)
                if windowed:
                    update = and_also(update, _of_windows(windowed, self.shard, step.first))
                item = self.dynamo.update(and_also(update, also))
            except ConditionFailed as failed:
                check_format(failed.item or {})
                if "method" in (failed.item or {}):
                    raise RequestRejected(
                        f"counter {counter!r} is strict or a sequence: entries are not added to it"
                    ) from failed
                left = after(pending, watermark.sequence_in(failed.item, self.shard))
                if not left:
                    return 0, failed.item or {}
                pending, windowed = left, self._window_changes(counter, left)
            else:
                self._clean_up(keys.total_key(counter), item or {})
                return len(pending), item or {}
        raise ServiceFailed(
            f"counter {counter!r}: other writes moved its watermark during {_ATTEMPTS} updates"
        )

    def _clean_up(self, key: Key, item: Item) -> None:
        """Remove watermarks if several can be removed: a write of its own, one write unit."""
        try:
            # The watermarks of a repair become stale together; one expression is limited in size.
            gone = dict(islice(self._removable(item).items(), _CLEANED_AT_ONCE))
            if gone:
                self.dynamo.update(clean_up_of(self.table, key, gone))
        except (ConditionFailed, ServiceFailed):
            # The changes are applied; the next update of this counter tries again.
            return

    def _removable(self, item: Item) -> dict[str, bytes]:
        if self.removable is not None:
            return self.removable(item)
        stale = watermark.stale(item, self.now_ms)
        return stale if len(stale) >= watermark.STALE_ENOUGH else {}


def _of_windows(windowed: Sequence[WindowChanges], shard: str, first: int) -> tuple[Clause, ...]:
    from countledger.consumers.window_writer import windowed_clauses  # noqa: PLC0415 - as above

    return windowed_clauses(windowed, shard, first)


def _both(first: Written, second: Written) -> Written:
    return second._replace(
        applied=first.applied + second.applied,
        duplicates=first.duplicates + second.duplicates,
        rejected=first.rejected + second.rejected,
        windows=first.windows + second.windows,
        refused_times=first.refused_times + second.refused_times,
    )
