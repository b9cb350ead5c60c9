"""Reads the windows of a counter: its sums for each minute, hour, day or month."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from countledger.consumers.proof import waiting_since_ms
from countledger.consumers.total_writer import TtlCache
from countledger.consumers.totals import freshness_of
from countledger.consumers.window_sums import (
    WindowSum,
    WindowSums,
    check_counted,
    check_kept,
    check_per,
    check_range,
    no_windows,
    of_the_zone,
)
from countledger.ledger import keys
from countledger.ledger.calendar import Per, windows_in
from countledger.ledger.clock import Clock, SystemClock, to_ms
from countledger.ledger.limits import CLOCK_SKEW_DEFAULT_MS, SECOND_MS, WINDOWS_LIFE_MS
from countledger.ledger.operations import AllOf, Between, Compare, Query
from countledger.ledger.total import repaired_ms_of, windows_id_of
from countledger.ledger.windows import decode_settings, item_name, slots_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from countledger.consumers.record import LedgerStream
    from countledger.consumers.totals import TotalsReader
    from countledger.ledger.attributes import Item
    from countledger.ledger.calendar import Window
    from countledger.ledger.windows import WindowSetting

# In an item of this kind are the windows of each kind.
_ITEM_OF: Final = {
    Per.MONTH: Per.MONTH,
    Per.DAY: Per.MONTH,
    Per.HOUR: Per.DAY,
    Per.MINUTE: Per.HOUR,
}
# For so long a process does not look again how far the stream has been handled.
_PROGRESS_LIFE_MS: Final = WINDOWS_LIFE_MS


@dataclass(frozen=True, slots=True)
class WindowsReader:
    """Reads windows.

    Attributes:
        totals: the reader of totals: client, table, state of the region, progress of shards.
        stream: the stream of `ledger`.
        clock: the time.
        clock_skew_ms: by how much clocks may differ.
    """

    totals: TotalsReader
    stream: LedgerStream
    clock: Clock = field(default_factory=SystemClock)
    clock_skew_ms: int = CLOCK_SKEW_DEFAULT_MS
    _settings: TtlCache[tuple[WindowSetting, ...]] = field(
        default_factory=lambda: TtlCache(WINDOWS_LIFE_MS), init=False, repr=False
    )
    _through: TtlCache[int] = field(
        default_factory=lambda: TtlCache(_PROGRESS_LIFE_MS), init=False, repr=False
    )

    def read(
        self,
        counter: str,
        per: str,
        since: datetime,
        until: datetime | None = None,
        *,
        prove: bool = False,
    ) -> list[WindowSum]:
        """As `CountLedger.windows`."""
        now_ms = self.clock.now_ms()
        start_ms = to_ms(since)
        end_ms = now_ms if until is None else to_ms(until)
        counter = keys.check_counter(counter)
        namespace = keys.namespace_of(counter)
        self.totals.check_region()
        known = self._settings.of(namespace, now_ms, self._read_settings)
        settings = of_the_zone(known)
        if not settings:
            raise no_windows(namespace)
        kind = check_per(per, namespace, settings)
        check_range(kind, start_ms, end_ms)
        windows = [*windows_in(start_ms, end_ms, kind, settings[-1].calendar)]
        with_kind = [one for one in settings if one.has(kind)]
        if kind in {Per.MINUTE, Per.HOUR}:
            check_counted(kind, windows, settings, namespace)
            check_kept(kind, windows[0], with_kind, now_ms)
        total = self.totals.dynamo.get(self.totals.table, keys.total_key(counter)) or {}
        sums = WindowSums(windows, kind, repaired_ms_of(total))
        for setting in with_kind:
            windows_id = windows_id_of(total, setting.id)
            if windows_id is None:
                continue
            for item in self._items(counter, windows_id, setting, kind, windows):
                sums.add(slots_of(setting, item))
        ended = [window.end_ms for window in windows if window.end_ms <= now_ms]
        through_ms = self._handled_through_ms(now_ms, max(ended), prove=prove) if ended else 0
        return sums.read(settings, through_ms)

    def _read_settings(self, namespace: str) -> tuple[WindowSetting, ...]:
        return decode_settings(
            self.totals.dynamo.get(self.totals.table, keys.windows_key(namespace))
        )

    def _items(
        self,
        counter: str,
        windows_id: str,
        setting: WindowSetting,
        per: Per,
        windows: Sequence[Window],
    ) -> Iterator[Item]:
        kind = _ITEM_OF[per]
        first, last = (
            keys.window_part(windows_id, f"{kind}#{item_name(setting, kind, at_ms)}")
            for at_ms in (windows[0].start_ms, windows[-1].end_ms - 1)
        )
        where = AllOf(Compare("counter", "=", counter), Between("part", first, last))
        for page in self.totals.dynamo.pages(Query(self.totals.table, where)):
            yield from page

    def _handled_through_ms(self, now_ms: int, wanted_ms: int, *, prove: bool) -> int:
        """Up to when the stream is known to be handled: not looked at again for a few seconds.

        A shard without records never makes progress, so only the stream itself can show that
        nothing is left in it.
        """
        through_ms = self._through.of("progress", now_ms, lambda _: self._by_progress())
        if through_ms >= wanted_ms or not prove:
            return through_ms
        return max(through_ms, self._through.of("proof", now_ms, lambda _: self._by_stream(now_ms)))

    def _by_progress(self) -> int:
        shards = self.stream.shards()
        found = freshness_of(shards, self.totals.progress(str(one.shard) for one in shards))
        # The stream shows whole seconds, and more records may come of the last one.
        return 0 if found.idle else (found.handled_through_ms or 0) - SECOND_MS

    def _by_stream(self, now_ms: int) -> int:
        shards = self.stream.shards()
        progress = self.totals.progress(str(one.shard) for one in shards)
        waiting_ms = waiting_since_ms(self.stream, shards, progress)
        # The stream shows a record a little after it was written.
        seen_ms = now_ms - self.clock_skew_ms
        return seen_ms if waiting_ms is None else min(waiting_ms - SECOND_MS, seen_ms)
