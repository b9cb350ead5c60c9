"""Windows as the materializer writes them: exact under whatever comes again or breaks off."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from countledger.consumers.materializer import BatchOutcome, Materializer
from countledger.consumers.progress import ShardDirectory
from countledger.consumers.record import ShardName
from countledger.consumers.total_writer import windows_of
from countledger.ledger import keys
from countledger.ledger.calendar import Per
from countledger.ledger.errors import Throttled, Unclear
from countledger.ledger.limits import DAY_MS, FORMAT, HOUR_MS, MINUTE_MS
from countledger.ledger.operations import Delete, Put, Update
from countledger.ledger.total import windows_id_of, windows_names
from countledger.ledger.windows import WindowSetting, cells_of, encode_settings
from tests.unit.connections import connection_on
from tests.unit.consumers.records import COUNTER, image, record, with_stream
from tests.unit.consumers.world import Kept
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient, at, meanwhile
from tests.unit.ledger.window_settings import window_setting

TABLE = "counters"
SHARD = ShardName("label", "shardId-1")
BEGUN_MS = NOW_MS - 40 * DAY_MS


def setting(finest: Per = Per.MINUTE, zone: str = "UTC", name: str = "one") -> WindowSetting:
    return window_setting(zone, id=name, finest=finest, from_ms=BEGUN_MS)


def timed(
    sequence: int,
    delta: int = 1,
    *,
    ago_ms: int = 0,
    occurred_ms: int | None = None,
    counter: str = COUNTER,
) -> dict[str, Any]:
    """A record of an entry with its times."""
    found = record(sequence, delta, counter=counter)
    times = {"at": {"N": str(NOW_MS - ago_ms)}}
    if occurred_ms is not None:
        times["occurred_at"] = {"N": str(occurred_ms)}
    return with_stream(found, NewImage={**found["dynamodb"]["NewImage"], **times})


def materializer(
    dynamo: MemoryClient, *settings: WindowSetting, quarantine: Kept | None = None
) -> Materializer:
    shards = ShardDirectory({str(SHARD): NOW_MS})
    return Materializer(
        connection_on(dynamo, ManualClock()),
        quarantine or Kept(),
        shards=shards,
        windows=lambda _counter: settings,
    )


def apply(
    dynamo: MemoryClient, records: Sequence[dict[str, Any]], *settings: WindowSetting
) -> BatchOutcome:
    return materializer(dynamo, *(settings or (setting(),))).apply(records, SHARD)


def total(dynamo: MemoryClient, counter: str = COUNTER) -> dict[str, Any]:
    return dynamo.get(TABLE, keys.total_key(counter), consistent=True) or {}


def stored(dynamo: MemoryClient, one: WindowSetting, counter: str = COUNTER) -> Counter[Any]:
    """Sum and events of each cell of a counter, by item and cell."""
    windows = windows_id_of(total(dynamo, counter), one.id)
    found: Counter[Any] = Counter()
    if windows is None:
        return found
    prefix = f"{keys.WINDOW_PREFIX}{windows}#"
    for item in dynamo.items(TABLE):
        part = item["part"]
        if item["counter"] != counter or not part.startswith(prefix):
            continue
        name = part.removeprefix(prefix)
        cells = {n[1:] for n in item if n[0] == "n" and n[1:].isdigit()}
        for cell in cells:
            found[name, cell] += item[f"s{cell}"]
            found[name, cell, "events"] += item[f"n{cell}"]
        assert item["sum"] == sum(item[f"s{cell}"] for cell in cells)
        assert item["events"] == sum(item[f"n{cell}"] for cell in cells)
    return found


def expected(records: Sequence[Mapping[str, Any]], one: WindowSetting) -> Counter[Any]:
    """A recount from the events."""
    found: Counter[Any] = Counter()
    for each in records:
        new = each["dynamodb"]["NewImage"]
        occurred = new.get("occurred_at")
        at_ms = int(new["at"]["N"])
        if one.holds_at(at_ms):
            for cell in cells_of(one, at_ms, occurred and int(occurred["N"])):
                found[cell.item, cell.name] += int(new["delta"]["N"])
                found[cell.item, cell.name, "events"] += 1
    return found


def mixed(count: int, seed: int = 1) -> list[dict[str, Any]]:
    """Records of late events, each of a delta of its own."""
    lateness = late_mix(count, seed)
    return [timed(100 + n, 2**n, occurred_ms=NOW_MS - late) for n, late in enumerate(lateness)]


def late_mix(count: int, seed: int = 1) -> list[int]:
    """How late events come, in ms: 56 % over an hour, 20 % over a day, some over the retention."""
    random = Random(seed)  # noqa: S311 - of a test
    found = []
    for draw in (random.random() for _ in range(count)):
        least, most = (DAY_MS, 12 * DAY_MS) if draw < 0.2 else (HOUR_MS, DAY_MS)
        found.append(random.randrange(*((least, most) if draw < 0.56 else (0, HOUR_MS))))
    return found


def test_each_window_is_a_recount_of_its_events() -> None:
    dynamo, one = MemoryClient(), setting()
    records = mixed(60)

    for begin in range(0, 60, 7):
        assert apply(dynamo, records[begin : begin + 7]).retry_from is None

    assert stored(dynamo, one) == expected(records, one)
    names = windows_names(one.id)
    assert (total(dynamo)[names[1]], total(dynamo)[names[2]]) == (2**60 - 1, 60)


def _forget_progress(dynamo: MemoryClient) -> None:
    """An invocation that began before the progress was stored."""
    item = dynamo.get(TABLE, keys.progress_key(str(SHARD)), consistent=True)
    assert item is not None
    dynamo.put(Put(TABLE, {**item, "sequence": "0", "position": "0" * 40}))


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("number", range(5))
def test_a_crash_between_two_items_loses_nothing(number: int, *, lost: bool) -> None:
    """The total contains the changes, some windows do not: each item decides for itself."""
    dynamo, one = MemoryClient(), setting()
    apply(dynamo, [timed(99, 7)])
    records = mixed(12)
    seen: list[str] = []

    def fails_at(_kind: str, write: Any, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        if write.key["counter"] != COUNTER:
            return request()
        seen.append(write.key["part"])
        if len(seen) - 1 != number:
            return request()
        if lost:
            request()
            raise Unclear("the answer was lost")
        raise Throttled("not now")

    dynamo.plans.append(at(fails_at, "update"))
    outcome = apply(dynamo, records)
    assert outcome.retry_from == 100
    dynamo.plans.clear()
    assert apply(dynamo, records).retry_from is None

    assert stored(dynamo, one) == expected([timed(99, 7), *records], one)
    assert seen[0] == keys.TOTAL
    assert total(dynamo)["total"] == 2**12 - 1 + 7
    assert total(dynamo)[windows_names(one.id)[1]] == 2**12 - 1 + 7


@pytest.mark.parametrize("together", [False, True])
def test_a_changed_entry_moves_to_its_new_windows(*, together: bool) -> None:
    dynamo, one = MemoryClient(), setting()
    before, after = timed(100, 5, occurred_ms=NOW_MS - 3 * DAY_MS), timed(100, 8)
    modified = with_stream(
        record(101, 8, name="MODIFY", old=image(5)),
        OldImage=before["dynamodb"]["NewImage"],
        NewImage=after["dynamodb"]["NewImage"],
    )
    batches = [[before, modified]] if together else [[before], [modified]]

    for batch in batches:
        apply(dynamo, batch)
    _forget_progress(dynamo)
    for batch in batches:
        apply(dynamo, batch)

    assert +stored(dynamo, one) == expected([after], one)
    assert total(dynamo)[windows_names(one.id)[1]] == 8


def test_records_that_come_again_with_later_ones_add_the_later_ones() -> None:
    dynamo, one = MemoryClient(), setting()
    records = [timed(100 + n, 2**n, ago_ms=n) for n in range(4)]
    apply(dynamo, records[:2])
    _forget_progress(dynamo)

    apply(dynamo, records)

    assert stored(dynamo, one) == expected(records, one)


@pytest.mark.parametrize(
    ("from_ms_ago", "ended_ms_ago"), [(10_000, None), (DAY_MS, None), (DAY_MS, 10_000)]
)
@pytest.mark.parametrize(
    "ago_ms",
    [
        [0, 1, 20_000],
        [0, MINUTE_MS - 1],  # one of them is of the minute before
        [0, 10_000, 10_001, 20_000],  # the windows begin, or end, between them
        [0, 10_001],
        [10_001, 20_000],
    ],
)
@pytest.mark.parametrize("without_time", [False, True])
def test_entries_of_one_minute_are_read_at_once_or_one_by_one_to_the_same_end(
    ago_ms: list[int], from_ms_ago: int, ended_ms_ago: int | None, *, without_time: bool
) -> None:
    ended_ms = None if ended_ms_ago is None else NOW_MS - ended_ms_ago
    one = replace(setting(), from_ms=NOW_MS - from_ms_ago, ended_ms=ended_ms)
    dynamo = MemoryClient()
    records = [timed(100 + n, 2**n, ago_ms=each) for n, each in enumerate(ago_ms)]

    apply(dynamo, [*records, *([record(110, 64)] if without_time else [])], one)

    assert stored(dynamo, one) == expected(records, one)


def test_a_total_whose_entries_are_in_no_window_names_none() -> None:
    dynamo, later = MemoryClient(), replace(setting(), from_ms=NOW_MS + 1)

    apply(dynamo, [timed(100, 5)], later)

    assert total(dynamo)["total"] == 5
    assert not any(name.startswith("window") for name in total(dynamo))


def test_an_item_of_a_later_release_is_waited_for() -> None:
    dynamo, one = MemoryClient(), setting()
    apply(dynamo, [timed(100, 5)])
    windows = windows_id_of(total(dynamo), one.id)
    key = keys.window_key(COUNTER, str(windows), cells_of(one, NOW_MS)[1].item)
    newer = {**(dynamo.get(TABLE, key, consistent=True) or {}), "v": FORMAT + 1}
    dynamo.put(Put(TABLE, newer))

    assert apply(dynamo, [timed(101, 4)]).retry_from == 101

    assert dynamo.get(TABLE, key, consistent=True) == newer


def test_an_item_has_a_time_to_live_where_its_windows_are_not_kept_for_ever() -> None:
    dynamo, writes = MemoryClient(), list[Any]()

    def note(_kind: str, write: object, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        writes.append(write)
        return request()

    dynamo.plans.append(at(note, "update"))
    apply(dynamo, mixed(20))

    kinds = {
        write.key["part"].split("#")[2]: any(one.name == "expires_at" for one in write.clauses)
        for write in writes
        if write.key["part"].startswith(keys.WINDOW_PREFIX)
    }
    assert kinds == {"hour": True, "day": True, "month": False}


def test_an_entry_without_readable_times_counts_in_the_total_alone() -> None:
    dynamo, one = MemoryClient(), setting()
    flawed = [record(100, 3), *_flawed({"S": "x"}, {"N": "1.5"}, {"N": "-1"})]

    apply(dynamo, [*flawed, timed(110, 4)])

    assert total(dynamo)["total"] == 3 + 3 * 1 + 4
    assert stored(dynamo, one) == expected([timed(110, 4)], one)


def _flawed(*times: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        with_stream(record(101 + n), NewImage={**image(1), "at": at_})
        for n, at_ in enumerate(times)
    ]


def test_what_a_window_cannot_take_is_quarantined_and_blocks_nothing() -> None:
    """Somebody edited one cell; the other windows and later records go on."""
    dynamo, one, kept = MemoryClient(), setting(), Kept()
    apply(dynamo, [timed(100)])
    windows = windows_id_of(total(dynamo), one.id)
    assert windows is not None
    cells = cells_of(one, NOW_MS)
    key = keys.window_key(COUNTER, windows, cells[1].item)
    item = dynamo.get(TABLE, key, consistent=True)
    dynamo.put(Put(TABLE, {**(item or {}), "s" + cells[1].name: "spoilt"}))
    records = [timed(101), timed(102, occurred_ms=NOW_MS - DAY_MS), timed(103)]

    outcome = materializer(dynamo, one, quarantine=kept).apply(records, SHARD)

    assert (outcome.retry_from, total(dynamo)["total"]) == (None, 4)
    assert [one for one, _ in kept.records] == [records[0], records[2]]
    assert all(cells[1].item in reason for _, reason in kept.records)
    month = dynamo.get(TABLE, keys.window_key(COUNTER, windows, cells[0].item), consistent=True)
    assert month is not None
    assert month["s" + cells[0].name] == 3


def test_settings_that_cannot_be_read_stop_no_total() -> None:
    """Their windows are rebuilt later; the totals of all namespaces go on."""
    dynamo, errors = MemoryClient(), list[str]()
    item = encode_settings("n", [setting()])
    dynamo.put(Put(TABLE, {**item, **keys.windows_key(keys.namespace_of(COUNTER)), "settings": 5}))
    windows = windows_of(
        connection_on(dynamo, ManualClock()), on_corrupt=lambda error: errors.append(str(error))
    )
    made = replace(materializer(dynamo), windows=windows)

    assert made.apply([timed(100, 5)], SHARD).retry_from is None

    assert (total(dynamo)["total"], len(errors)) == (5, 1)
    assert "settings" in errors[0]


def test_settings_of_a_later_release_are_waited_for() -> None:
    dynamo = MemoryClient()
    item = encode_settings("n", [setting()])
    key = keys.windows_key(keys.namespace_of(COUNTER))
    dynamo.put(Put(TABLE, {**item, **key, "v": FORMAT + 1}))
    made = replace(materializer(dynamo), windows=windows_of(connection_on(dynamo, ManualClock())))

    assert made.apply([timed(100, 5)], SHARD).retry_from == 100


def test_times_that_are_not_accepted_are_counted() -> None:
    """Dated ahead, too late or before 1970: they count when they were recorded."""
    one = replace(setting(), max_lateness_ms=HOUR_MS)
    dynamo = MemoryClient()
    times = [NOW_MS + HOUR_MS, NOW_MS - 2 * HOUR_MS, -5, NOW_MS - MINUTE_MS, None]
    records = [timed(100 + n, occurred_ms=at_ms) for n, at_ms in enumerate(times)]

    first, again = apply(dynamo, records, one), apply(dynamo, records, one)

    assert (first.refused_times, again.refused_times) == (3, 0)
    assert stored(dynamo, one) == expected(records, one)


def test_a_counter_that_is_made_again_has_windows_of_its_own() -> None:
    dynamo, one = MemoryClient(), setting()
    apply(dynamo, [timed(100, 5)])
    dynamo.delete(Delete(TABLE, keys.total_key(COUNTER)))

    apply(dynamo, [timed(200, 3)])

    assert stored(dynamo, one) == expected([timed(200, 3)], one)


def _repaired() -> MemoryClient:
    """A total that names no windows, and a record that it contains, which comes again."""
    dynamo = MemoryClient()
    apply(dynamo, [timed(100, 5)])
    _forget_progress(dynamo)
    item = {n: v for n, v in total(dynamo).items() if not n.startswith("window")}
    dynamo.put(Put(TABLE, item))
    return dynamo


def _names_windows(write: Update) -> bool:
    return write.key == keys.total_key(COUNTER) and len(write.clauses) == 1


def test_a_total_that_is_deleted_before_it_names_its_windows_stays_deleted() -> None:
    """The record comes again, and then belongs to a new total."""
    dynamo, one = _repaired(), setting()

    def delete() -> None:
        dynamo.delete(Delete(TABLE, keys.total_key(COUNTER)))

    dynamo.plans.append(meanwhile(delete, "update", where=_names_windows))

    assert apply(dynamo, [timed(100, 5)]).retry_from == 100
    assert total(dynamo) == {}
    assert apply(dynamo, [timed(100, 5)]).retry_from is None
    assert stored(dynamo, one) == expected([timed(100, 5)], one)


def test_a_total_that_has_no_windows_yet_gets_their_id_before_they_are_written() -> None:
    """It was repaired after its own watermark had been raised past the record."""
    dynamo, one = _repaired(), setting()
    named = list[str]()

    def note(_kind: str, write: Update, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        named.append(write.key["counter"])
        return request()

    dynamo.plans.append(at(note, "update", where=_names_windows))

    apply(dynamo, [timed(100, 5)])
    apply(dynamo, [timed(101, 4)])

    assert stored(dynamo, one) == expected([timed(100, 5), timed(101, 4)], one)
    assert named == [COUNTER]
