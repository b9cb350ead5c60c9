"""The windows of a counter, added up from their items, and what is known of each. Pure."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from math import inf
from typing import TYPE_CHECKING, Final

from countledger.ledger import amount
from countledger.ledger.calendar import Per, Window, window_of, windows_in
from countledger.ledger.clock import show_duration, to_datetime
from countledger.ledger.errors import BadSetting, BadTime, NoWindows, shown
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, WINDOWS_MAX
from countledger.ledger.windows import LATEST_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.windows import Slot, WindowSetting

_LENGTH_MS: Final = {
    Per.MINUTE: MINUTE_MS,
    Per.HOUR: HOUR_MS,
    Per.DAY: DAY_MS,
    Per.MONTH: 30 * DAY_MS,
}


@dataclass(frozen=True, slots=True)
class WindowSum:
    """What a counter's entries of one window come to.

    Attributes:
        name: of the window, as `2026-11-22` or `2026-11-22T13+01:00`.
        start: its first moment, in its time zone.
        end: the first moment after it.
        value: the sum of the deltas of its entries.
        events: how many events they carried.
        complete: whether everything that was recorded before its end is in it: the stream has been
            handled past its end, windows were on all that time, the rules of the zone were the same
            for all of it, and the total was not repaired since. Later entries may still be of this
            window.
        final: whether no later entry can be of it: `max_lateness` after its end has passed, and
            the time in which an entry of then could still arrive.
        zone: the name of its time zone.
    """

    name: str
    start: datetime
    end: datetime
    value: Amount
    events: int
    complete: bool
    final: bool
    zone: str


@dataclass(slots=True)
class WindowSums:
    """Adds up what items say about windows that follow each other.

    Attributes:
        windows: in order, without gaps.
        per: of which kind they are.
        sums, events: of each.
        repaired_ms: when the total was last repaired without a rebuild of its windows since: what
            was recorded before may be missing from them. None: never.
    """

    windows: Sequence[Window]
    per: Per
    repaired_ms: int | None = None
    sums: list[Amount] = field(init=False)
    events: list[int] = field(init=False)
    _starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        """Nothing in them so far."""
        self.sums, self.events = [0] * len(self.windows), [0] * len(self.windows)
        self._starts = [window.start_ms for window in self.windows]

    def add(self, slots: Iterable[Slot]) -> None:
        """Add what is in an item. A month is added up from its days.

        What was counted under other rules of the zone may have other bounds: it is added to the
        window in which its middle is, so a day stays the day of its date.
        """
        for slot in slots:
            middle_ms = _middle_ms(slot.window)
            place = bisect_right(self._starts, middle_ms) - 1
            if place < 0 or middle_ms >= self.windows[place].end_ms:
                continue
            self.sums[place] = amount.add(self.sums[place], slot.sum)
            self.events[place] += slot.events

    def read(self, settings: Sequence[WindowSetting], through_ms: int) -> list[WindowSum]:
        """The windows, with what is known of each.

        Args:
            settings: of the same zone, the oldest first.
            through_ms: up to when the stream has been handled.
        """
        with_kind = [one for one in settings if one.has(self.per)]
        found: list[WindowSum] = []
        for place, window in enumerate(self.windows):
            complete = (
                through_ms >= window.end_ms
                and covered(window, with_kind)
                and not is_torn(window, self.per, settings)
                and not self._is_doubtful(window, with_kind)
            )
            found.append(
                WindowSum(
                    window.name,
                    _local(window.start_ms, settings[-1]),
                    _local(window.end_ms, settings[-1]),
                    self.sums[place],
                    self.events[place],
                    complete,
                    final=complete and final_from_ms(window, settings) <= through_ms,
                    zone=settings[-1].zone,
                )
            )
        return found

    def _is_doubtful(self, window: Window, settings: Sequence[WindowSetting]) -> bool:
        """Whether something of a window may have been recorded before the total was repaired."""
        if self.repaired_ms is None:
            return False
        return any(
            max(one.from_ms, window.start_ms - one.skew_ms) <= self.repaired_ms + one.skew_ms
            for one in settings
        )


def no_windows(namespace: str) -> NoWindows:
    """The error for a namespace that never had windows."""
    return NoWindows(
        f"namespace {namespace!r} has no windows: `countledger windows enable {namespace} --by "
        "day` switches them on, for what is recorded from then on"
    )


def of_the_zone(settings: Sequence[WindowSetting]) -> list[WindowSetting]:
    """The settings whose windows are those of the newest one: of the same time zone."""
    return [one for one in settings if one.zone == settings[-1].zone]


def check_per(per: str, namespace: str, settings: Sequence[WindowSetting]) -> Per:
    """The kind of windows, if a namespace has them.

    Raises:
        BadSetting: no kind has that name, or the namespace has only coarser ones.
    """
    if per not in list(Per):
        raise BadSetting(f"windows by {shown(str(per))} do not exist: give {', '.join(Per)}")
    if not any(one.has(Per(per)) for one in settings):
        raise BadSetting(
            f"namespace {namespace!r} has windows by {settings[-1].finest}, not by {per}: "
            f"`countledger windows enable {namespace} --by {per}` adds them, for what is recorded "
            "from then on"
        )
    return Per(per)


def check_range(per: Per, start_ms: int, end_ms: int) -> None:
    """Refuse a range that is empty, or has too many windows for one call.

    Raises:
        BadTime: naming the rule that it breaks.
    """
    if not 0 <= start_ms < end_ms <= LATEST_MS:
        raise BadTime(
            f"windows since {to_datetime(start_ms).isoformat()} until "
            f"{to_datetime(end_ms).isoformat()}: give a time from 1970 on, and a later one, up to "
            f"{to_datetime(LATEST_MS).isoformat()}"
        )
    count = (end_ms - start_ms) // _LENGTH_MS[per]
    if count > WINDOWS_MAX:
        coarser = list(Per)[list(Per).index(per) + 1] if per is not Per.MONTH else per
        raise BadTime(
            f"{show_duration(end_ms - start_ms)} has about {count} windows by {per}; one call "
            f"reads up to {WINDOWS_MAX}: give a shorter time, or windows by {coarser}"
        )


def check_kept(per: Per, first: Window, settings: Sequence[WindowSetting], now_ms: int) -> None:
    """Refuse minutes and hours that may have been deleted.

    Raises:
        BadTime: the first window has not been kept until now.
    """
    for one in _adding(settings, first):
        day = window_of(first.start_ms, Per.DAY, one.calendar)
        if day.end_ms + one.keep_ms <= now_ms:
            raise BadTime(
                f"windows by {per} are kept for {show_duration(one.keep_ms)} after their day, and "
                f"those of {day.name} no longer: give a later time, or windows by day"
            )


def check_counted(
    per: Per, windows: Iterable[Window], settings: Sequence[WindowSetting], namespace: str
) -> None:
    """Refuse windows in whose time only coarser ones were counted.

    Raises:
        BadTime: naming the first of them.
    """
    coarser = [one for one in settings if not one.has(per)]
    for window in windows if coarser else ():
        if _is_within(window.start_ms, window.end_ms, coarser):
            by = next(one.finest for one in coarser if one.holds_at(window.start_ms))
            raise BadTime(
                f"windows by {per} of namespace {namespace!r} were not counted in {window.name}, "
                f"but windows by {by}: read those, or another time"
            )


def _adding(settings: Sequence[WindowSetting], window: Window) -> list[WindowSetting]:
    """The settings whose entries may be of a window: not those that ended before it began.

    What is recorded up to the clock skew before a window may be dated in it.
    """
    found = [one for one in settings if _may_add(one, window)]
    return found or [settings[-1]]


def _may_add(setting: WindowSetting, window: Window) -> bool:
    return setting.ended_ms is None or setting.ended_ms + setting.skew_ms > window.start_ms


def covered(window: Window, settings: Sequence[WindowSetting]) -> bool:
    """Whether windows of this kind were on while anything was recorded that may be of a window.

    That is from the clock skew before its beginning, when it may have been dated ahead, to its end.
    """
    skew_ms = max((one.skew_ms for one in settings if _may_add(one, window)), default=0)
    return _is_within(window.start_ms - skew_ms, window.end_ms, settings)


def is_torn(window: Window, per: Per, settings: Sequence[WindowSetting]) -> bool:
    """Whether a setting with other rules may have counted a part of it elsewhere, or more in it.

    Args:
        window: with the bounds of the newest setting.
        per: its kind.
        settings: of the same zone, the oldest first.
    """
    for one in settings[:-1]:
        if one.rules == settings[-1].rules or not one.has(per):
            continue
        counted_ms = (one.ended_ms or 0) + one.skew_ms
        for other in windows_in(window.start_ms, window.end_ms, per, one.calendar):
            until_ms = min(other.end_ms, counted_ms)
            if other.start_ms >= until_ms:
                continue  # it has counted nothing there
            if window.start_ms <= _middle_ms(other) < window.end_ms:
                is_right = window.start_ms <= other.start_ms and until_ms <= window.end_ms
            else:
                is_right = window.end_ms <= other.start_ms or until_ms <= window.start_ms
            if not is_right:
                return True
    return False


def _middle_ms(window: Window) -> int:
    """What was counted under other bounds is of the window in which its middle is."""
    return (window.start_ms + window.end_ms) // 2


def _is_within(start_ms: int, end_ms: int, settings: Sequence[WindowSetting]) -> bool:
    """Whether settings hold for the whole of a time, one after the other."""
    reached_ms = start_ms
    for one in settings:
        if one.holds_at(reached_ms):
            if one.ended_ms is None or one.ended_ms >= end_ms:
                return True
            reached_ms = one.ended_ms
    return False


def final_from_ms(window: Window, settings: Sequence[WindowSetting]) -> float:
    """When no entry can be of a window any more; infinity: at no time."""
    latest_ms = 0
    for one in _adding(settings, window):
        if one.max_lateness_ms is None:
            return inf
        latest_ms = max(latest_ms, window.end_ms + one.max_lateness_ms + one.late_entry_ms)
    return latest_ms


def _local(at_ms: int, setting: WindowSetting) -> datetime:
    """A moment with the offset of the zone then.

    Times of one `ZoneInfo` are compared and subtracted by what the clocks show, which is wrong
    where clocks go back; times with offsets are compared by the moment.
    """
    local = to_datetime(at_ms).astimezone(setting.calendar)
    return local.astimezone(timezone(local.utcoffset() or timedelta(0)))
