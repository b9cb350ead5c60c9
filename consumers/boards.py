"""The top of a board: read from each of its partitions as far as needed, and sorted.

And which board is that of a day. The items of the counters' windows of a day are in the index of
its ranking, sorted by their sums. Each setting has boards of its own. So a day is ranked if the
newest setting alone has counted it: then its ranking has the sums that `windows` reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from countledger.consumers.windows import no_windows, of_the_zone
from countledger.ledger.amount import negated
from countledger.ledger.attributes import require, require_amount
from countledger.ledger.calendar import Per, Window, window_of, window_on
from countledger.ledger.clock import show_duration, to_datetime
from countledger.ledger.errors import BadSetting, BadTime, NotRanked, shown
from countledger.ledger.indexes import Board, day_board, top_query
from countledger.ledger.limits import TOP_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from countledger.ledger.amount import Amount
    from countledger.ledger.dynamo import DynamoClient
    from countledger.ledger.windows import WindowSetting

_TIES_MAX: Final = 1_000
_READERS: Final = 8
TODAY: Final = "today"


@dataclass(frozen=True, slots=True)
class Ranked:
    """A counter's place in a ranking.

    Attributes:
        rank: 1 for the highest; equal totals have the same rank, and the next ones are left out.
        counter: its name.
        value: the total by which it is ranked.
    """

    rank: int
    counter: str
    value: Amount


def check_limit(limit: int) -> int:
    """Return the limit if it is in range.

    Raises:
        BadSetting: it is out of range.
    """
    if isinstance(limit, bool) or not 1 <= limit <= TOP_MAX:
        raise BadSetting(f"limit {shown(limit)} is out of range: give a number from 1 to {TOP_MAX}")
    return limit


def ranked(found: Iterable[tuple[str, Amount]], limit: int) -> list[Ranked]:
    """Counters and totals in their order: the highest first, equal ones by name. Pure."""
    ordered = sorted(found, key=lambda one: (negated(one[1]), one[0]))
    ranks: list[Ranked] = []
    for place, (counter, total) in enumerate(ordered[:limit], start=1):
        tied = bool(ranks) and ranks[-1].value == total
        ranks.append(Ranked(ranks[-1].rank if tied else place, counter, total))
    return ranks


def top_of(dynamo: DynamoClient, table: str, board: Board, limit: int) -> list[Ranked]:
    """The top of a board, its partitions read up to eight at a time.

    Half a read unit for each of its partitions, and each 4 KB read there.
    """

    def read(bucket: str) -> list[tuple[str, Amount]]:
        return _top_of_bucket(dynamo, table, board, bucket, limit)

    with dynamo.workers(_READERS, "countledger-top") as pool:
        return ranked(chain.from_iterable(pool.map(read, board.buckets)), limit)


def _top_of_bucket(
    dynamo: DynamoClient, table: str, board: Board, bucket: str, limit: int
) -> list[tuple[str, Amount]]:
    pages = dynamo.pages(top_query(table, board, bucket, limit + 1))
    items = (item for page in pages for item in page)
    found: list[tuple[str, Amount]] = []
    for item in islice(items, limit + _TIES_MAX):
        one = require(item, "counter", str), require_amount(item, "total")
        if len(found) >= limit and one[1] != found[-1][1]:
            break
        found.append(one)
    return found


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
    except (AttributeError, TypeError, ValueError) as error:
        raise BadTime(
            f"day {shown(str(day))}: {error}; give a date such as 2026-11-22, or {TODAY}"
        ) from error
