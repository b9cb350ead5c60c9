"""The ranking of a day: which of its boards to read. Pure.

The items of the counters' windows of a day are in the index of its ranking, sorted by their sums.
Each setting has boards of its own. So a day is ranked if the newest setting alone has counted it:
then its ranking has the sums that `windows` reads.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

from countledger.consumers.window_sums import no_windows, of_the_zone
from countledger.ledger.calendar import Per, Window, window_of, window_on
from countledger.ledger.clock import show_duration, to_datetime
from countledger.ledger.errors import BadTime, NotRanked, shown
from countledger.ledger.ranking import Board, day_board

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger.ledger.windows import WindowSetting

TODAY: Final = "today"


def board_of_day(
    namespace: str, settings: Sequence[WindowSetting], day: date | str, now_ms: int
) -> Board:
    """The board of a day.

    Args:
        namespace: whose counters.
        settings: its window settings, the oldest first.
        day: a date in the time zone of the windows, also as text; or `today`.
        now_ms: the time, ms since the epoch.

    Raises:
        NoWindows: the namespace has no windows.
        NotRanked: its days are not ranked, or an earlier setting has counted a part of this one.
        BadTime: the time zone has no such day, or its ranking is no longer kept.
    """
    if not settings:
        raise no_windows(namespace)
    newest = settings[-1]
    if not newest.ranked:
        raise NotRanked(
            f"days of namespace {namespace!r} are not ranked: `countledger windows enable "
            f"{namespace} --by {newest.finest} --rank` ranks them, for what is recorded from then "
            "on"
        )
    window = _named(newest, day, now_ms)
    for one in of_the_zone(settings)[:-1]:
        if (one.ended_ms or 0) + one.skew_ms > window.start_ms:
            changed = to_datetime(newest.from_ms).isoformat(" ", "minutes")
            raise NotRanked(
                f"windows of namespace {namespace!r} were changed at {changed}: what was counted "
                f"before is not in the ranking of {window.name}; give a later day, or read windows"
            )
    if window.end_ms + newest.keep_ms <= now_ms:
        raise BadTime(
            f"rankings of days are kept for {show_duration(newest.keep_ms)} after their day, and "
            f"that of {window.name} no longer: give a later day"
        )
    return day_board(namespace, newest, window.name)


def _named(setting: WindowSetting, day: date | str, now_ms: int) -> Window:
    if day == TODAY:
        return window_of(now_ms, Per.DAY, setting.calendar)
    try:
        wanted = date.fromisoformat(day) if isinstance(day, str) else day
        return window_on(wanted, Per.DAY, setting.calendar)
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise BadTime(
            f"day {shown(str(day))}: {error}; give a date such as 2026-11-22, or {TODAY}"
        ) from error
