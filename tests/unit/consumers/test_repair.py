"""Repairs: a total becomes its ledger's sum, and nothing is ever counted twice by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from countledger.consumers import progress
from countledger.consumers.progress import ShardDirectory
from countledger.consumers.record import ShardName
from countledger.consumers.total_writer import TotalWriter, fold
from countledger.consumers.verify import Judgement, Remedy, Repairer
from countledger.ledger import keys
from countledger.ledger.errors import AccessDenied, Throttled, Unclear
from countledger.ledger.limits import HOUR_MS, LATE_WRITE_MS
from countledger.ledger.operations import Delete, Put
from tests.unit.consumers.world import COUNTER, COUNTERS, World, events_of
from tests.unit.ledger.memory import Fault, sent_twice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Records = Sequence[dict[str, Any]]
    Scenario = Callable[[World], Records]


def _land_late(world: World, records: Records) -> None:
    """The updates of an invocation that began before the shard had any progress."""
    changes = fold(events_of(records), world.clock.now_ms()).changes
    writer = TotalWriter(world.dynamo, COUNTERS, "label/s", lambda *_: None, world.clock.now_ms())
    for counter, found in changes.items():
        assert writer.write(counter, found).error is None


def _lose_total(world: World) -> None:
    world.dynamo.delete(Delete(COUNTERS, keys.total_key(COUNTER)))


# ---- what is written ----


def test_a_drift_is_repaired_and_all_else_stays(world: World) -> None:
    world.deliver([world.emit(5), world.emit(7)])
    before = world.total()
    world.corrupt(total=99, events=3, due_at=1)

    repair = world.repair()

    assert (repair.remedy, repair.verdict.drift, repair.healthy) == (Remedy.REPAIRED, 87, True)
    after = world.total()
    at = {name: world.clock.now_ms() for name in ("updated_at", "repaired_at")}
    assert after == {**before, "version": 2, "due_at": 1, **at}
    assert world.repair().remedy is Remedy.NONE
    assert world.total() == after


def test_the_value_of_a_strict_counter_is_never_taken_for_a_drift(world: World) -> None:
    """Its namespace says what it is, and may be missing in a ledger that was restored."""
    world.deliver([world.emit(5)])
    world.corrupt(method="marker")
    before = world.total()

    repair = world.repair()

    assert (repair.remedy, repair.verdict.verdict) == (Remedy.SKIPPED, Judgement.UNREADABLE)
    assert "method marker" in repair.reason
    assert world.total() == before


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(world: World) -> None:
    world.deliver([world.emit(1), world.emit(1)])
    world.deliver([world.emit(5, counter="a:exact"), world.emit(5, counter="a:exact")])
    world.corrupt(total=6)
    world.pass_over(world.emit(1, counter="a:lost"))
    _schedule(world, 2)
    before = dict(world.dynamo.tables[COUNTERS])

    counters = (COUNTER, "a:lost", "a:exact")
    remedies = [world.repair(name, dry_run=True).remedy for name in counters]

    assert remedies == [Remedy.WOULD_REPAIR, Remedy.WOULD_MAKE, Remedy.NONE]
    assert world.dynamo.tables[COUNTERS] == before


@pytest.mark.parametrize(("compacted", "stays"), [(1, True), (2, True), (3, False)])
def test_what_a_ledger_of_another_time_had_compacted_is_forgotten(
    world: World, compacted: int, *, stays: bool
) -> None:
    """The ledger was restored to an earlier time: more than there are cannot be in its head."""
    world.deliver([world.emit(5), world.emit(7)])
    world.corrupt(total=100, entries=10, compacted=compacted)

    assert world.repair().remedy is Remedy.REPAIRED
    assert ("compacted" in world.total()) is stays


# ---- what is left alone ----


def _many_shards(world: World, *, closed: bool) -> None:
    """Each with a record that was handled; those that are closed have quiet children."""
    for number in range(400):
        world.add_shard(f"s{number}")
        world.pass_over(world.show("other:x", f"s{number}"), f"s{number}")
        if closed:
            world.close(f"s{number}")
            world.add_shard(f"child-{number}", parent=f"s{number}")


def _edited(world: World, **attributes: object) -> None:
    world.corrupt(**attributes)  # type: ignore[arg-type]  # no name of a counter


def _too_many_shards(world: World) -> None:
    _many_shards(world, closed=False)
    world.corrupt(total=6)


def _too_long_a_sum(world: World) -> None:
    for _ in range(2):
        world.pass_over(world.emit(10**38 - 1))


_LEFT: dict[str, tuple[Callable[[World], object], str]] = {
    "a stream that lags": (lambda world: world.emit(7), "not been handled that far"),
    "all progress is lost": (
        lambda world: world.dynamo.tables[COUNTERS].clear(),
        "handled that far",
    ),
    "a total of a later release": (lambda world: _edited(world, v=2), "format 2"),
    "a version that was edited": (lambda world: _edited(world, version="x"), "'version' is 'x'"),
    "a sum of more than 38 digits": (_too_long_a_sum, "38 digits"),
    "more open shards than one write can name": (_too_many_shards, "stream shards"),
}


@pytest.mark.parametrize(("corrupt", "reason"), _LEFT.values(), ids=_LEFT)
def test_a_total_is_skipped_with_the_reason(
    world: World, corrupt: Callable[[World], object], reason: str
) -> None:
    world.deliver([world.emit(5)])
    corrupt(world)
    before = world.total()

    repair = world.repair()

    assert (repair.remedy, repair.healthy) == (Remedy.SKIPPED, False)
    assert reason in repair.reason
    assert world.total() == before


@pytest.mark.parametrize("clue", ["version", "updated_at", "made"])
def test_a_total_that_changed_at_the_last_moment_is_left_alone(world: World, clue: str) -> None:
    """Its exact sum was that of an earlier moment; version and time each show the change."""
    made = clue != "made"
    if made:
        world.deliver([world.emit(5)])
        world.corrupt(total=6)
    else:
        world.pass_over(world.emit(5))

    (finding,) = world.verifier().compare([COUNTER])
    before = world.total()
    world.deliver([world.emit(7)])
    for attribute in {"version", "updated_at"} - {clue} if made else ():
        world.corrupt(**{attribute: before[attribute]})

    repair = Repairer(world.verifier()).heal(finding)

    assert repair.remedy is Remedy.SKIPPED
    assert "just before the write" in repair.reason
    assert world.total()["total"] == (13 if made else 7)


def test_a_lost_answer_is_no_failure(world: World) -> None:
    """The SDK sends again, and the condition fails on our own write: it is known by its content."""
    world.deliver([world.emit(5)])
    world.corrupt(total=6)

    world.dynamo.plans.append(sent_twice("update"))

    assert world.repair().remedy is Remedy.REPAIRED
    assert (world.total()["total"], world.total()["version"]) == (5, 2)


@pytest.mark.parametrize("error", [Throttled("slow down"), Unclear("no answer")], ids=str)
def test_a_total_that_cannot_be_written_now_is_reported_and_the_others_go_on(
    world: World, error: Exception
) -> None:
    for name in ("a:1", "a:2"):
        world.pass_over(world.emit(1, counter=name))
    world.dynamo.faults.append(Fault(error))

    first, second = Repairer(world.verifier()).repair(["a:1", "a:2"])

    assert (first.remedy, first.reason) == (Remedy.SKIPPED, str(error))
    assert second.remedy is Remedy.MADE


def test_what_concerns_every_counter_is_raised(world: World) -> None:
    world.pass_over(world.emit(1))
    world.dynamo.faults.append(Fault(AccessDenied("no")))

    with pytest.raises(AccessDenied):
        world.repair()


# ---- the due index ----


def _schedule(world: World, min_entries: int) -> None:
    rule = {"min_entries": min_entries, "age_ms": HOUR_MS}
    world.dynamo.put(Put(COUNTERS, {**keys.schedule_key("a"), **rule}))


def test_what_a_crash_left_out_of_the_index_the_next_repair_puts_there(world: World) -> None:
    for _ in range(2):
        world.pass_over(world.emit(1))
    _schedule(world, 2)
    world.dynamo.faults.extend([None, Fault(Throttled("slow down"))])

    first = world.repair()
    total = world.total()
    second = world.repair()

    assert (first.remedy, first.healthy) == (Remedy.SKIPPED, False)
    assert "slow down" in first.reason
    assert (total["total"], "due_at" in total) == (2, False)
    assert (second.remedy, "due_at" in world.total()) == (Remedy.NONE, True)


# ---- watermarks: what an earlier invocation sends late ----


def _handled_lately(world: World) -> Records:
    records = [world.emit(5), world.emit(7)]
    world.deliver(records)
    _lose_total(world)
    return records


def _quarantined(world: World) -> Records:
    records = [world.emit(5), world.emit(7)]
    world.deliver(records[:1])
    world.corrupt(total="five")
    world.deliver(records[1:])
    assert len(world.quarantine.records) == 1
    return records


def _begin_child(world: World) -> None:
    world.close("s")
    world.add_shard("child", parent="s")
    world.deliver([world.emit(1, counter="a:other", shard="child")], shard="child")


def _expired_unread(world: World) -> Records:
    world.deliver([world.emit(5)])
    late = world.emit(7)
    world.clock.at_ms += 24 * HOUR_MS
    world.stream.records["s"].clear()
    _begin_child(world)
    return [late]


def _only_opened(world: World) -> Records:
    late = world.emit(12)
    ShardDirectory().open(world.dynamo, COUNTERS, ShardName("label", "s"), world.clock.now_ms())
    world.clock.at_ms += 24 * HOUR_MS
    world.stream.records["s"].clear()
    world.close("s")
    return [late]


def _proven_by_a_child(world: World) -> Records:
    records = _handled_lately(world)
    _begin_child(world)
    world.dynamo.delete(Delete(COUNTERS, keys.progress_key("label/s")))
    return records


_LATE: dict[str, Scenario] = {
    "of a shard that was handled lately": _handled_lately,
    "of a record that was quarantined": _quarantined,
    "of records that expired before they were handled": _expired_unread,
    "of a shard of which nothing was handled": _only_opened,
    "of a shard without progress, whose child has some": _proven_by_a_child,
}


@pytest.mark.parametrize("scenario", _LATE.values(), ids=_LATE)
def test_a_repair_refuses_what_an_earlier_invocation_sends_late(
    world: World, scenario: Scenario
) -> None:
    late = scenario(world)

    assert world.repair().healthy
    _land_late(world, late)

    assert world.total()["total"] == 12


@pytest.mark.parametrize("kept", [False, True], ids=["all progress lost", "an earlier progress"])
def test_a_parent_that_its_progress_does_not_cover_is_passed_to_its_end(
    world: World, *, kept: bool
) -> None:
    """A table of another time lacks progress; a mapping that is made again reads from the start."""
    records = [world.emit(5), world.emit(7)]
    world.deliver(records[:1])
    earlier = {key: dict(item) for key, item in world.dynamo.tables[COUNTERS].items()}
    world.deliver(records[1:])
    world.dynamo.tables[COUNTERS].clear()
    if kept:
        world.dynamo.tables[COUNTERS].update(earlier)
    _begin_child(world)
    world.clock.at_ms += LATE_WRITE_MS
    world.deliver([world.emit(1, counter="a:other", shard="child")], shard="child")

    assert world.repair().healthy
    world.deliver(records)

    assert world.total()["total"] == 12


def test_only_shards_that_were_handled_lately_leave_a_watermark(world: World) -> None:
    """No write of the others can land any more; what comes again is below their progress."""
    records = [world.emit(5)]
    world.deliver(records)
    _many_shards(world, closed=True)
    world.add_shard("other")
    world.clock.at_ms += LATE_WRITE_MS
    world.pass_over(world.emit(1, counter="a:other", shard="other"), "other")
    _lose_total(world)

    assert world.repair().remedy is Remedy.MADE

    assert set(progress.marks_in(world.total())) == {progress.attribute("label/other")}
    world.deliver(records)
    assert world.total()["total"] == 5
