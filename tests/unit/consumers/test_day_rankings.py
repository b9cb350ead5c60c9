"""Rankings of days: which board a day has, and how its items are kept."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from threading import Barrier
from typing import Any

import pytest

from countledger.consumers.rankings import board_of_day, top_of
from countledger.consumers.window_verify import broken_links
from countledger.ledger import keys
from countledger.ledger.calendar import Per, window_of
from countledger.ledger.errors import BadSetting, BadTime, NotRanked, NoWindows
from countledger.ledger.indexes import day_board, day_clauses, namespace_board
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS
from countledger.ledger.operations import Add
from countledger.ledger.total import windows_id_of
from countledger.ledger.windows import WindowSetting, decode_settings, encode_settings
from tests.unit.connections import connection_on
from tests.unit.consumers.records import COUNTER
from tests.unit.consumers.test_window_writing import TABLE, apply, late_mix, setting, timed, total
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import MemoryClient, meanwhile

ZONE = "Asia/Kolkata"
NAMESPACE = keys.namespace_of(COUNTER)


def ranked(finest: Per = Per.DAY, **more: Any) -> WindowSetting:  # noqa: ANN401 - handed on
    return replace(setting(finest, ZONE), ranked=4, **more)


def day_items(dynamo: MemoryClient, one: WindowSetting) -> dict[str, dict[str, Any]]:
    prefix = keys.window_part(windows_id_of(total(dynamo), one.id) or "", f"{Per.DAY}#")
    items = {item["part"]: item for item in dynamo.items(TABLE)}
    return {part.removeprefix(prefix): items[part] for part in items if part.startswith(prefix)}


def day_of(at_ms: int) -> str:
    return window_of(at_ms, Per.DAY, ranked().calendar).name


@pytest.mark.parametrize("finest", [Per.DAY, Per.HOUR])
def test_each_day_is_on_its_board_with_its_sum(finest: Per) -> None:
    """Late events move it, also those of days long ago, while their day is kept."""
    dynamo, one = MemoryClient(), ranked(finest)
    lateness = late_mix(60)
    records = [
        timed(100 + n, 2**n, occurred_ms=NOW_MS - late_ms) for n, late_ms in enumerate(lateness)
    ]
    for begin in range(0, 60, 11):
        apply(dynamo, records[begin : begin + 11], one)
    apply(dynamo, records, one)

    sums: dict[str, int] = {}
    for n, late_ms in enumerate(lateness):
        window = window_of(NOW_MS - late_ms, Per.DAY, one.calendar)
        if window.end_ms + one.keep_ms >= NOW_MS:
            sums[window.name] = sums.get(window.name, 0) + 2**n
    found = day_items(dynamo, one)
    assert {day: item["total"] for day, item in found.items()} == sums
    for day, item in found.items():
        assert item["ranked"] == day_board(NAMESPACE, one, day).bucket_of(COUNTER)
        assert item["total"] == item["sum"]
        assert item["expires_at"] * 1_000 > NOW_MS


def test_only_days_are_ranked() -> None:
    one, change = ranked(Per.MINUTE), Add("total", 1)

    assert day_clauses(one, COUNTER, "month#2026-11", change) == ()
    assert day_clauses(one, COUNTER, "hour#2026-11-22T13:30", change) == ()
    assert day_clauses(one, COUNTER, "day#2026-11-22", change)[0] is change


def test_the_chain_names_a_day_whose_rank_is_not_its_sum() -> None:
    dynamo, one = MemoryClient(), ranked()
    apply(dynamo, [timed(100, 5)], one)
    items = [item for item in dynamo.items(TABLE) if item["part"].startswith("w#")]
    day = next(item for item in items if "ranked" in item)

    assert list(broken_links(one, items, (5, 1), NOW_MS)) == []
    day["total"] = 6
    (text,) = broken_links(one, items, (5, 1), NOW_MS)
    assert text.endswith("is ranked by 6, and its sum is 5")


def test_a_day_has_the_board_of_the_newest_setting() -> None:
    one = ranked()

    today = board_of_day(NAMESPACE, [one], "today", NOW_MS)

    assert today == day_board(NAMESPACE, one, day_of(NOW_MS))
    assert today == board_of_day(NAMESPACE, [one], day_of(NOW_MS), NOW_MS)
    assert today == board_of_day(NAMESPACE, [one], date.fromisoformat(day_of(NOW_MS)), NOW_MS)
    assert (today.index, today.attribute, len(today.buckets)) == ("ranks", "ranked", 4)


def test_a_day_of_two_settings_of_one_zone_is_refused() -> None:
    """What the earlier one counted is on another board, so the sums would be too low."""
    changed_ms = NOW_MS - 3 * DAY_MS
    earlier = replace(setting(Per.DAY, ZONE, "earlier"), ended_ms=changed_ms)
    settings = [earlier, ranked(from_ms=changed_ms)]

    with pytest.raises(NotRanked, match="were changed at"):
        board_of_day(NAMESPACE, settings, day_of(changed_ms), NOW_MS)
    board_of_day(NAMESPACE, settings, day_of(changed_ms + DAY_MS), NOW_MS)
    other_zone = [replace(earlier, zone="UTC"), settings[1]]
    board_of_day(NAMESPACE, other_zone, day_of(changed_ms), NOW_MS)


def test_what_was_dated_ahead_counts_in_a_day_after_the_change() -> None:
    midnight_ms = window_of(NOW_MS, Per.DAY, ranked().calendar).start_ms
    earlier = replace(setting(Per.DAY, ZONE, "earlier"), ended_ms=midnight_ms - MINUTE_MS + 1)
    settings = [earlier, ranked(from_ms=midnight_ms - MINUTE_MS + 1)]

    with pytest.raises(NotRanked):
        board_of_day(NAMESPACE, settings, "today", NOW_MS)


@pytest.mark.parametrize(
    ("settings", "day", "error", "text"),
    [
        ([], "today", NoWindows, "windows enable"),
        ([setting(Per.HOUR)], "today", NotRanked, "--by hour --rank"),
        ([ranked()], "yesterday", BadTime, "2026-11-22, or today"),
        ([ranked()], 7, BadTime, "2026-11-22, or today"),
        ([ranked()], "2026-02-30", BadTime, "2026-11-22, or today"),
        ([ranked()], day_of(NOW_MS - 9 * DAY_MS), BadTime, "kept for 7 d"),
        ([replace(ranked(), zone="Pacific/Apia")], "0001-01-01", BadTime, "date"),
    ],
)
def test_a_day_without_a_ranking_is_refused_with_the_reason(
    settings: Sequence[WindowSetting],
    day: Any,  # noqa: ANN401
    error: type[Exception],
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        board_of_day(NAMESPACE, settings, day, NOW_MS)


@pytest.mark.parametrize("partitions", [-1, 101, True, 1.5])
def test_a_wrong_number_of_partitions_is_refused(partitions: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadSetting, match="1 to 100 partitions"):
        replace(setting(), ranked=partitions)


def test_the_setting_is_stored_and_read() -> None:
    settings = (setting(Per.HOUR), ranked(from_ms=NOW_MS + HOUR_MS))

    assert decode_settings(encode_settings(NAMESPACE, settings)) == settings


def test_the_partitions_of_a_board_are_read_at_the_same_time() -> None:
    """Each request leaves only once all are on their way."""
    dynamo, together = MemoryClient(), Barrier(4, timeout=20)
    dynamo.plans.append(meanwhile(together.wait, "query", times=4))

    assert top_of(connection_on(dynamo), namespace_board(NAMESPACE, 4), 10) == []
    assert dynamo.calls == ["query"] * 4
