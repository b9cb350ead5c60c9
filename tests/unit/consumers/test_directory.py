"""Shards are known before their first batch, and lost progress is never taken for none."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from countledger.consumers import progress
from countledger.consumers.materializer import Materializer
from countledger.consumers.progress import (
    PASSED_AGE_MS,
    PassedShards,
    ProgressRecovery,
    ShardDirectory,
    ShardProgress,
    decode_progress,
    history_after,
)
from countledger.consumers.record import ShardName
from countledger.consumers.verify import Judgement
from countledger.ledger import keys
from countledger.ledger.errors import ProgressLost, Throttled
from countledger.ledger.limits import (
    ATTEMPTS_COUNTED_FROM_MS,
    ATTEMPTS_MAX,
    DAY_MS,
    KNOWN_SHARD_LIFE_MS,
    KNOWN_SHARD_RENEWED_MS,
    LATE_WRITE_MS,
)
from tests.unit.connections import connection_on
from tests.unit.consumers.records import record, with_stream
from tests.unit.consumers.world import COUNTERS, Kept, World, opened
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import Fault, MemoryClient, at, meanwhile, sent_twice

SHARD = ShardName("label", "s")


def _read(dynamo: MemoryClient) -> ShardProgress:
    item = dynamo.get(COUNTERS, keys.progress_key(str(SHARD)))
    assert item is not None
    return decode_progress(item)


def _made(
    dynamo: MemoryClient,
    clock: ManualClock | None = None,
    kept: Kept | None = None,
    shards: ShardDirectory | None = None,
) -> Materializer:
    quarantine, directory = kept or Kept(), shards or ShardDirectory()
    connection = connection_on(dynamo, clock or ManualClock())
    return Materializer(connection, quarantine, shards=directory)


def _changing(change: Callable[[ShardProgress], ShardProgress]) -> ShardDirectory:
    """A directory whose progress is changed as soon as it was read."""

    class Changing(ShardDirectory):
        def open(self, *arguments: Any) -> ShardProgress:  # noqa: ANN401 - handed on
            return change(ShardDirectory.open(self, *arguments))

    return Changing()


def _lose(dynamo: MemoryClient) -> None:
    key = keys.progress_key(str(SHARD))
    del dynamo.tables[COUNTERS][key["counter"], key["part"]]


def test_progress_that_another_invocation_made_meanwhile_stays() -> None:
    """Made again it would be of nothing, and what was applied would be applied again."""
    dynamo = MemoryClient()
    dynamo.plans.append(meanwhile(lambda: _made(dynamo).apply([record(100)], SHARD), "update"))

    assert ShardDirectory().open(dynamo, COUNTERS, SHARD, NOW_MS).position == 100


@pytest.mark.parametrize("how", ["gone", "corrupt"])
def test_a_known_shard_without_progress_stops(how: str) -> None:
    dynamo = opened(SHARD)
    if how == "gone":
        _lose(dynamo)
    else:
        dynamo.tables[COUNTERS][f"stream#{SHARD}", "progress"]["position"] = "x"

    with pytest.raises(ProgressLost, match="repair --lost-progress"):
        _made(dynamo).apply([record(100)], SHARD)

    assert ("a:b", "total") not in dynamo.tables[COUNTERS]


def test_progress_that_is_lost_under_way_is_not_made_by_the_end_of_a_batch() -> None:
    """It would be of one batch, and pass for all."""
    dynamo = opened(SHARD)

    def lose(progress: ShardProgress) -> ShardProgress:
        _lose(dynamo)
        return progress

    outcome = _made(dynamo, shards=_changing(lose)).apply([record(100)], SHARD)

    assert outcome.retry_from == 100
    (error,) = outcome.failed.values()
    assert isinstance(error, ProgressLost)


def test_an_entry_expires_before_the_progress_and_is_renewed_daily() -> None:
    """So that what has expired altogether is a new shard, and never a lost one."""
    dynamo, directory = MemoryClient(), ShardDirectory()
    clock = ManualClock()
    made = _made(dynamo, clock, shards=directory)
    made.apply([record(100)], SHARD)
    entry = keys.known_shard_key("label", "s")

    for number in range(20):
        clock.at_ms += KNOWN_SHARD_RENEWED_MS // 2
        made.apply([record(101 + number, age_ms=NOW_MS - clock.at_ms)], SHARD)
        known = (dynamo.get(COUNTERS, entry) or {})["expires_at"] * 1_000
        item = dynamo.get(COUNTERS, keys.progress_key(str(SHARD))) or {}
        assert clock.at_ms + 4 * DAY_MS < known < item["expires_at"] * 1_000

    clock.at_ms += KNOWN_SHARD_LIFE_MS + 1_000
    _lose(dynamo)
    assert directory.open(dynamo, COUNTERS, SHARD, clock.at_ms).position == 0


def _lost() -> tuple[World, list[dict[str, Any]]]:
    """A shard whose progress is lost; one of its records was handled, and one was not."""
    world = World()
    world.add_shard("s")
    records = [world.emit(5), world.emit(7)]
    world.deliver(records[:1])
    _lose(world.dynamo)
    return world, records


def _recovered(world: World) -> list[str]:
    lost = ProgressRecovery(world.connection())
    return list(lost.recover())


def test_a_shard_whose_progress_was_lost_counts_as_handled_to_its_end() -> None:
    """Nothing counts twice by it; a repair finds what is missing."""
    world, records = _lost()

    assert [_recovered(world), _recovered(world)] == [["label/s"], []]
    world.deliver(records)
    assert world.total()["total"] == 5
    world.repair()
    assert world.total()["total"] == 12


def test_a_recovery_knows_its_own_lost_answer() -> None:
    """The condition fails on what an attempt before wrote: the shard is named all the same."""
    world, _ = _lost()
    world.dynamo.plans.append(sent_twice())
    assert _recovered(world) == ["label/s"]


@pytest.mark.parametrize("name", ["position", "handled_at"])
def test_what_another_process_has_recovered_meanwhile_is_not_written_over(name: str) -> None:
    world, _ = _lost()
    item = world.dynamo.tables[COUNTERS].setdefault(
        ("stream#label/s", "progress"),
        {**keys.progress_key("label/s"), "position": "x", "handled_at": 1},
    )
    world.dynamo.plans.append(meanwhile(partial(item.update, {name: "another"})))

    assert _recovered(world) == []
    assert world.dynamo.tables[COUNTERS]["stream#label/s", "progress"] == item


def test_progress_that_cannot_be_read_stops_a_proof_and_says_how_to_recover_it() -> None:
    """Every verdict needs the progress of every shard."""
    world = World()
    world.add_shard("s")
    world.deliver([world.emit(5)])
    world.dynamo.tables[COUNTERS]["stream#label/s", "progress"]["position"] = "x"

    with pytest.raises(ProgressLost, match=r"label/s is lost.*'position' is 'x'.*--lost-progress"):
        world.verdict()

    assert _recovered(world) == ["label/s"]
    assert world.verdict().verdict is Judgement.EXACT


def _at(sequence: int, at_ms: int, before: ShardProgress | None = None) -> ShardProgress:
    history = () if before is None else history_after(before, at_ms, LATE_WRITE_MS)
    return ShardProgress("label/s", str(sequence), at_ms, at_ms, 0, 0, 0, *history)


def test_a_shard_counts_as_passed_late_and_never_early() -> None:
    history = [(0, NOW_MS)]
    progress = _at(0, NOW_MS)
    for number in range(1, 200):
        now_ms = NOW_MS + number * LATE_WRITE_MS // 7
        progress = _at(number, now_ms, progress)
        history.append((number, now_ms))
        for later_ms in (0, LATE_WRITE_MS // 2, LATE_WRITE_MS, 2 * LATE_WRITE_MS):
            passed = progress.passed(now_ms + later_ms)
            sure = [n for n, at_ms in history if at_ms <= now_ms + later_ms - LATE_WRITE_MS]
            assert passed is None or passed in sure
            late = [n for n, at_ms in history if at_ms <= now_ms + later_ms - 3 * LATE_WRITE_MS]
            assert passed is not None or not late
            assert passed is None or not late or passed >= late[-1]


def _with_marks(dynamo: MemoryClient, shards: int, clock: ManualClock) -> Materializer:
    """A counter that was moved by so many shards, one after the other."""
    made = _made(dynamo, clock)
    for number in range(shards):
        age_ms = NOW_MS - clock.at_ms
        made.apply([record(100 + number, age_ms=age_ms)], ShardName("label", f"s{number}"))
        clock.at_ms += LATE_WRITE_MS // 2
    return made


def test_a_total_of_a_hundred_past_shards_costs_one_unit() -> None:
    dynamo, clock = MemoryClient(), ManualClock()

    _with_marks(dynamo, 100, clock)

    total = dynamo.tables[COUNTERS]["a:b", "total"]
    assert total["total"] == 100
    assert len(progress.marks_in(total)) <= progress.STALE_ENOUGH + 4
    size = sum(len(name) + len(str(value)) for name, value in total.items())
    assert size < 1_024


def test_the_progress_of_other_shards_is_read_seldom() -> None:
    dynamo, clock = MemoryClient(), ManualClock()
    _with_marks(dynamo, 3, clock)
    total = dynamo.tables[COUNTERS]["a:b", "total"]
    passed = PassedShards(enough=3)
    dynamo.calls.clear()
    clock.at_ms += LATE_WRITE_MS

    for _ in range(10):
        assert len(passed.removable(dynamo, COUNTERS, total, "label", clock.at_ms)) == 3
    assert (dynamo.calls.count("query"), dynamo.calls.count("get")) == (1, 3)

    passed.removable(dynamo, COUNTERS, total, "label", clock.at_ms + PASSED_AGE_MS)
    assert (dynamo.calls.count("query"), dynamo.calls.count("get")) == (1, 6)
    assert PassedShards(enough=4).removable(dynamo, COUNTERS, total, "label", clock.at_ms) == {}


def test_a_watermark_stays_while_its_shard_has_not_passed_it_for_long() -> None:
    """What was sent before the progress was there may still land."""
    dynamo, clock = MemoryClient(), ManualClock()
    made = _made(dynamo, clock)
    made.apply([record(100)], SHARD)
    total = dynamo.tables[COUNTERS]["a:b", "total"]
    passed = PassedShards(enough=1)

    at_ms = clock.at_ms + LATE_WRITE_MS
    assert passed.removable(dynamo, COUNTERS, total, "label", at_ms - 1) == {}
    assert len(passed.removable(dynamo, COUNTERS, total, "label", at_ms)) == 1


class _Ends(BaseException):
    """The process."""


def _deadly(_kind: str, write: Any, request: Callable[[], Any]) -> Any:  # noqa: ANN401
    """An update of one counter ends the process."""
    if write.key["counter"] == "a:deadly":
        raise _Ends
    return request()


def test_p8_a_record_that_ends_the_process_is_quarantined_at_last() -> None:
    dynamo, kept, clock = opened(SHARD, MemoryClient(plans=[at(_deadly)])), Kept(), ManualClock()
    old_ms = ATTEMPTS_COUNTED_FROM_MS
    names = ["a:deadly" if n == 37 else f"a:{n}" for n in range(100)]
    left = [record(100 + n, 1, counter=c, age_ms=old_ms) for n, c in enumerate(names)]
    invocations = 0

    while left:
        invocations += 1
        assert invocations < 200
        try:
            outcome = _made(dynamo, clock, kept).apply(left, SHARD)
        except _Ends:
            continue
        if outcome.retry_from is None:
            break
        left = [one for one in left if int(one["dynamodb"]["SequenceNumber"]) >= outcome.retry_from]

    assert [one["dynamodb"]["SequenceNumber"] for one, _ in kept.records] == ["137"]
    assert "did not come to an end, 16 times" in kept.records[0][1]
    totals = {key[0]: i["total"] for key, i in dynamo.tables[COUNTERS].items() if key[1] == "total"}
    assert totals == {name: 1 for name in names if name != "a:deadly"}
    assert _read(dynamo).position == 199


def test_what_is_quarantined_with_the_last_attempt_is_all_that_it_passes() -> None:
    """A record without a number tells nothing to go on from; it must not be lost beside it."""
    dynamo, kept, clock = opened(SHARD, MemoryClient(plans=[at(_deadly)])), Kept(), ManualClock()
    old_ms = ATTEMPTS_COUNTED_FROM_MS
    deadly = record(100, counter="a:deadly", age_ms=old_ms)
    numberless = with_stream(record(101, age_ms=old_ms), SequenceNumber=None)
    last = record(102, age_ms=old_ms)

    for _ in range(ATTEMPTS_MAX):
        with pytest.raises(_Ends):
            _made(dynamo, clock).apply([deadly, numberless, last], SHARD)
    outcome = _made(dynamo, clock, kept).apply([deadly, numberless, last], SHARD)

    assert (outcome.retry_from, outcome.quarantined) == (102, 2)
    assert [one for one, _ in kept.records] == [deadly, numberless]
    assert "did not come to an end" in kept.records[0][1]
    assert "no sequence number" in kept.records[1][1]


def test_a_batch_that_fails_but_ends_is_never_cut_or_quarantined() -> None:
    dynamo, kept = opened(SHARD), Kept()
    made = _made(dynamo, kept=kept)
    records = [record(100 + n, age_ms=ATTEMPTS_COUNTED_FROM_MS) for n in range(8)]

    for _ in range(3 * ATTEMPTS_MAX):
        dynamo.faults[:] = [None, Fault(Throttled("slow"))]  # the attempt is noted
        outcome = made.apply(records, SHARD)
        assert (outcome.retry_from, len(outcome.failed)) == (100, 1)

    assert made.apply(records, SHARD).updates == 1
    assert kept.records == []
    assert _read(dynamo).attempts == 0


def test_an_attempt_that_another_invocation_has_passed_is_not_counted() -> None:
    dynamo = opened(SHARD)
    old = record(100, age_ms=ATTEMPTS_COUNTED_FROM_MS)
    _made(dynamo).apply([old], SHARD)

    shards = _changing(lambda progress: replace(progress, sequence="1"))
    outcome = _made(dynamo, shards=shards).apply([old], SHARD)

    assert (outcome.retry_from, outcome.updates, outcome.duplicates) == (None, 0, 1)
