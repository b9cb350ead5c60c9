"""Repairs: a total becomes its ledger's sum, and nothing is ever counted twice by it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from countledger.consumers import repair as repair_module
from countledger.consumers import watermark
from countledger.consumers.directory import ShardDirectory
from countledger.consumers.fold import fold
from countledger.consumers.repair import Remedy, Repairer, plan_of
from countledger.consumers.stream import ShardName
from countledger.consumers.total_writer import TotalWriter
from countledger.consumers.verify import Evidence, Judgement, Verifier
from countledger.ledger import keys
from countledger.ledger.errors import AccessDenied, ProgressLost, Throttled, Unclear
from countledger.ledger.limits import HOUR_MS, LATE_WRITE_MS
from countledger.ledger.operations import Delete, Put
from tests.unit.consumers.world import COUNTER, COUNTERS, LEDGER, World, events_of
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


@pytest.fixture
def world() -> World:
    """One open shard."""
    world = World()
    world.add_shard("s")
    return world


def _land_late(world: World, records: Sequence[dict[str, Any]]) -> None:
    """The updates of an invocation that began before the shard had any progress."""
    changes = fold(events_of(records), world.clock.now_ms()).changes
    writer = TotalWriter(world.dynamo, COUNTERS, "label/s", lambda *_: None, world.clock.now_ms())
    for counter, found in changes.items():
        assert writer.write(counter, found).error is None


def _lose_total(world: World, counter: str = COUNTER) -> None:
    world.dynamo.delete(Delete(COUNTERS, keys.total_key(counter)))


def test_a_drift_is_repaired_and_the_version_goes_on(world: World) -> None:
    """Total and events become the ledger's; watermark and whatever else lies there stay."""
    world.deliver([world.emit(5), world.emit(7)])
    before = world.total()
    world.spoil(total=99, events=3, due_at=1)

    repair = world.repair()

    assert (repair.remedy, repair.verdict.drift, repair.healthy) == (Remedy.REPAIRED, 87, True)
    after = world.total()
    assert after == {**before, "version": 2, "due_at": 1, "updated_at": after["updated_at"]}
    assert world.verdict().verdict is Judgement.EXACT


def test_an_exact_total_is_not_written(world: World) -> None:
    """Nothing is done where nothing is wrong."""
    world.deliver([world.emit(5)])
    before = world.total()

    repair = world.repair()

    assert (repair.remedy, repair.healthy) == (Remedy.NONE, True)
    assert world.total() == before


def test_a_dry_run_says_what_it_would_do(world: World) -> None:
    """And writes nothing."""
    world.deliver([world.emit(5)])
    world.spoil(total=6)
    world.pass_over(world.emit(1, counter="a:lost"))
    before = dict(world.dynamo.tables[COUNTERS])

    remedies = [world.repair(name, dry_run=True).remedy for name in (COUNTER, "a:lost")]

    assert remedies == [Remedy.WOULD_REPAIR, Remedy.WOULD_MAKE]
    assert world.dynamo.tables[COUNTERS] == before


def test_a_false_drift_is_never_repaired(world: World) -> None:
    """The stream shows the entry only while it settles: repaired, it would count twice."""
    world.deliver([world.emit(5)])
    item = world.write(7)

    def show_and_deliver(_now_ms: int) -> None:
        if len(world.stream.records["s"]) == 1:
            world.deliver([world.show(item=item)])

    world.clock.on_sleep = show_and_deliver

    repair = world.repair()

    assert repair.remedy is Remedy.NONE
    assert (world.total()["total"], world.total()["version"]) == (12, 2)


def test_behind_a_stream_that_lags_nothing_is_repaired(world: World) -> None:
    """The record will come; its counter is left alone."""
    world.deliver([world.emit(5)])
    record = world.emit(7)

    repair = world.repair()

    assert (repair.remedy, repair.healthy) == (Remedy.SKIPPED, False)
    assert "not been handled that far" in repair.reason
    world.deliver([record])
    assert world.total()["total"] == 12


@dataclass(frozen=True, slots=True)
class _Interrupted(Verifier):
    """Something happens between a finding and what is done about it."""

    meanwhile: Callable[[], object] = lambda: None

    def compare(self, counters: Iterable[str]) -> Iterator[Evidence]:
        """The findings, each late."""
        for finding in Verifier.compare(self, counters):
            self.meanwhile()
            yield finding


def _interrupted(world: World, meanwhile: Callable[[], object]) -> Repairer:
    plain = world.verifier()
    return Repairer(
        _Interrupted(plain.totals, plain.exact, plain.stream, plain.clock, meanwhile=meanwhile)
    )


def test_a_counter_that_moved_at_the_last_moment_is_left_alone(world: World) -> None:
    """Its version is another one: the sum was of an earlier moment."""
    world.deliver([world.emit(5)])
    world.spoil(total=6)
    repairer = _interrupted(world, lambda: world.deliver([world.emit(7)]))

    (repair,) = repairer.repair([COUNTER])

    assert repair.remedy is Remedy.SKIPPED
    assert "just before the write" in repair.reason
    assert world.total()["total"] == 13
    assert world.repair().remedy is Remedy.REPAIRED
    assert world.total()["total"] == 12


def test_a_total_that_is_made_meanwhile_is_left_alone(world: World) -> None:
    """A missing one is made on condition that it is still missing."""
    world.pass_over(world.emit(5))
    repairer = _interrupted(world, lambda: world.deliver([world.emit(7)]))

    (repair,) = repairer.repair([COUNTER])

    assert repair.remedy is Remedy.SKIPPED
    assert world.total()["total"] == 7


def test_redelivery_after_a_repair_never_doubles(world: World) -> None:
    """The watermarks stay where they were, or higher."""
    records = [world.emit(delta) for delta in (5, 7, -2)]
    world.deliver(records)
    world.spoil(total=0)
    world.repair()

    world.deliver(records)
    world.deliver(records[1:])

    assert world.total()["total"] == 10


def test_a_lost_total_is_made_with_its_watermarks(world: World) -> None:
    """Without them the records that are delivered again would count a second time."""
    records = [world.emit(5), world.emit(7)]
    world.deliver(records)
    _lose_total(world)

    repair = world.repair()
    world.deliver(records)

    assert (repair.remedy, repair.verdict.drift) == (Remedy.MADE, -12)
    total = world.total()
    assert (total["total"], total["events"], total["entries"], total["version"]) == (12, 2, 2, 1)
    new = world.emit(1)
    world.deliver([*records, new])
    assert world.total()["total"] == 13


def test_a_record_that_was_quarantined_counts_once_by_repair(world: World) -> None:
    """Delivered again after its hindrance is gone, it meets a watermark that has passed it."""
    first, second = world.emit(5), world.emit(7)
    world.deliver([first])
    world.spoil(total="five")
    world.deliver([second])
    assert len(world.quarantine.records) == 1

    repair = world.repair()
    world.deliver([first, second])

    assert (repair.verdict.verdict, repair.remedy) == (Judgement.UNREADABLE, Remedy.REPAIRED)
    assert (world.total()["total"], world.total()["entries"]) == (12, 2)


@pytest.mark.parametrize("accident", ["quarantined", "lost"])
def test_without_raised_watermarks_a_record_would_count_twice(
    world: World, monkeypatch: pytest.MonkeyPatch, accident: str
) -> None:
    """By an invocation that is under way still; the rule switched off."""
    monkeypatch.setattr(repair_module, "_raised", lambda *_: ())
    records = [world.emit(5), world.emit(7)]
    world.deliver(records[:1])
    if accident == "quarantined":
        world.spoil(total="five")
    world.deliver(records)
    if accident == "lost":
        _lose_total(world)
    assert world.repair().healthy

    _land_late(world, records)

    assert world.total()["total"] > 12


def test_a_repair_refuses_what_an_earlier_invocation_sends_late(world: World) -> None:
    """Its shard was handled lately, so its watermark is raised."""
    records = [world.emit(5), world.emit(7)]
    world.deliver(records)
    _lose_total(world)

    assert world.repair().remedy is Remedy.MADE
    _land_late(world, records)

    assert world.total()["total"] == 12


def test_a_repair_leaves_shards_alone_that_rested(world: World) -> None:
    """No write of an earlier invocation can land any more; what comes again is dropped."""
    records = [world.emit(5), world.emit(7)]
    world.deliver(records)
    world.add_shard("other")
    world.clock.at_ms += LATE_WRITE_MS
    world.deliver([world.emit(1, counter="a:other", shard="other")], shard="other")
    _lose_total(world)

    assert world.repair().remedy is Remedy.MADE

    marks = set(watermark.marks_in(world.total()))
    assert marks == {watermark.attribute("label/other")}
    world.deliver(records)
    assert world.total()["total"] == 12


def test_a_shard_whose_records_were_dropped_unread_is_passed_to_its_end(world: World) -> None:
    """Its progress is old and not its end: whoever read them before may still write."""
    first = world.emit(5)
    world.deliver([first])
    late = world.emit(7)
    world.clock.at_ms += 24 * HOUR_MS
    world.stream.records["s"].clear()
    world.close("s")
    world.add_shard("child", parent="s")
    world.deliver([world.emit(1, counter="a:other", shard="child")], shard="child")

    assert world.repair().remedy is Remedy.REPAIRED
    _land_late(world, [late])

    assert world.total()["total"] == 12


def test_a_shard_with_a_child_is_passed_to_its_end(world: World) -> None:
    """Its own progress may be gone; a child with progress proves that all of it was handled."""
    parent_record = world.emit(5)
    world.deliver([parent_record])
    world.close("s")
    world.add_shard("child", parent="s")
    child_record = world.emit(7, shard="child")
    world.deliver([child_record], shard="child")
    world.dynamo.delete(Delete(COUNTERS, keys.progress_key("label/s")))
    _lose_total(world)

    assert world.repair().remedy is Remedy.MADE
    with pytest.raises(ProgressLost):
        world.deliver([parent_record])
    _land_late(world, [parent_record])
    world.deliver([child_record], shard="child")

    assert world.total()["total"] == 12


@pytest.mark.parametrize("kept", [False, True], ids=["all progress lost", "an earlier progress"])
def test_a_parent_that_its_progress_does_not_cover_is_passed_to_its_end(
    world: World,
    kept: bool,  # noqa: FBT001 - a case
) -> None:
    """A table of another time lacks progress; a mapping that is made again reads from the start."""
    records = [world.emit(5), world.emit(7)]
    world.deliver(records[:1])
    earlier = {key: dict(item) for key, item in world.dynamo.tables[COUNTERS].items()}
    world.deliver(records[1:])
    world.close("s")
    world.dynamo.tables[COUNTERS].clear()
    if kept:
        world.dynamo.tables[COUNTERS].update(earlier)
    world.add_shard("child", parent="s")
    world.deliver([world.emit(1, counter="a:other", shard="child")], shard="child")
    world.clock.at_ms += LATE_WRITE_MS
    world.deliver([world.emit(1, counter="a:other", shard="child")], shard="child")

    assert world.repair().healthy
    world.deliver(records)

    assert world.total()["total"] == 12


def test_a_shard_of_which_nothing_was_handled_is_passed_to_its_end(world: World) -> None:
    """Its records were dropped unread, but for an invocation that may still write."""
    late = world.emit(7)
    ShardDirectory().open(world.dynamo, COUNTERS, ShardName("label", "s"), world.clock.now_ms())
    world.clock.at_ms += 24 * HOUR_MS
    world.stream.records["s"].clear()
    world.close("s")

    assert world.repair().remedy is Remedy.MADE
    _land_late(world, [late])

    assert world.total()["total"] == 7


def test_all_is_lost_and_nothing_is_guessed(world: World) -> None:
    """Without progress nobody knows what will be delivered again: left alone until it moves."""
    records = [world.emit(5), world.emit(7)]
    world.deliver(records)
    world.dynamo.tables[COUNTERS].clear()

    assert world.repair().remedy is Remedy.SKIPPED

    world.deliver(records)
    assert world.total()["total"] == 12
    assert world.repair().remedy is Remedy.NONE


def test_a_total_of_a_later_release_is_left_alone(world: World) -> None:
    """Whatever it says, it is not ours to write."""
    world.deliver([world.emit(5)])
    world.spoil(v=2)

    repair = world.repair()

    assert (repair.verdict.verdict, repair.remedy) == (Judgement.UNREADABLE, Remedy.SKIPPED)
    assert "format 2" in repair.reason


def test_a_total_whose_version_is_corrupt_is_left_alone(world: World) -> None:
    """Nothing could tell whether it rests."""
    world.deliver([world.emit(5)])
    world.spoil(version="x")

    assert world.repair().remedy is Remedy.SKIPPED
    assert world.total()["version"] == "x"


def test_a_ledger_that_cannot_be_read_stops_no_other_counter(world: World) -> None:
    """It is named, with the reason; the next one is repaired."""
    item = world.write(5, "a:bad")
    world.dynamo.put(Put(LEDGER, {**item, "delta": "five"}))
    world.pass_over(world.emit(1, counter="a:good"))

    bad, good = Repairer(world.verifier()).repair(["a:bad", "a:good"])

    assert (bad.verdict.verdict, bad.remedy) == (Judgement.UNREADABLE, Remedy.SKIPPED)
    assert "'delta' is 'five'" in bad.reason
    assert bad.verdict.exact is None
    assert good.remedy is Remedy.MADE


def test_a_sum_that_no_total_can_hold_is_said(world: World) -> None:
    """The ledger may hold what a number of 38 digits does not."""
    most = 10**38 - 1
    world.deliver([world.emit(most), world.emit(most)])
    assert len(world.quarantine.records) == 1

    repair = world.repair()

    assert (repair.verdict.verdict, repair.remedy) == (Judgement.DRIFT, Remedy.SKIPPED)
    assert "38 digits" in repair.reason


def test_a_lost_answer_is_no_failure(world: World) -> None:
    """The SDK sends again, and the condition fails on our own write: it is known by its content."""
    world.deliver([world.emit(5)])
    world.spoil(total=6)
    (finding,) = world.verifier().compare([COUNTER])
    plan = plan_of(COUNTERS, finding, NOW_MS)
    assert not isinstance(plan, str)
    world.dynamo.update(plan)
    world.clock.at_ms = NOW_MS

    repair = Repairer(world.verifier())._heal(finding)

    assert repair.remedy is Remedy.REPAIRED
    assert (world.total()["total"], world.total()["version"]) == (5, 2)


@pytest.mark.parametrize("error", [Throttled("slow down"), Unclear("no answer")], ids=str)
def test_a_total_that_cannot_be_written_now_is_reported(world: World, error: Exception) -> None:
    """And the others go on."""
    for name in ("a:1", "a:2"):
        world.pass_over(world.emit(1, counter=name))
    world.dynamo.faults.append(Fault(error))

    first, second = Repairer(world.verifier()).repair(["a:1", "a:2"])

    assert (first.remedy, first.reason) == (Remedy.SKIPPED, str(error))
    assert second.remedy is Remedy.MADE


def _schedule(world: World, min_entries: int) -> None:
    rule = {"min_entries": min_entries, "age_ms": HOUR_MS}
    world.dynamo.put(Put(COUNTERS, {**keys.schedule_key("a"), **rule}))


@pytest.mark.parametrize(("min_entries", "is_due"), [(2, True), (3, False)])
def test_a_total_that_is_made_is_due_if_enough_entries_wait(
    world: World, min_entries: int, *, is_due: bool
) -> None:
    """Its next entry may never come, so nobody else would have it merged."""
    for _ in range(2):
        world.pass_over(world.emit(1))
    _schedule(world, min_entries)

    repair = world.repair()

    assert repair.remedy is Remedy.MADE
    assert (world.total().get("due_at", 0) >= NOW_MS + HOUR_MS) is is_due
    assert ("due_bucket" in world.total()) is is_due


def test_what_a_crash_left_out_of_the_index_the_next_repair_puts_there(world: World) -> None:
    """The total is exact by then; and whoever could not put it there says so."""
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


def test_a_dry_run_puts_nothing_into_the_index(world: World) -> None:
    """Neither a total that is right nor one that would be made."""
    world.deliver([world.emit(1), world.emit(1)])
    _schedule(world, 2)

    world.repair(dry_run=True)

    assert "due_at" not in world.total()


def test_what_concerns_every_counter_is_raised(world: World) -> None:
    """Without permission there is no use in going on."""
    world.pass_over(world.emit(1))
    world.dynamo.faults.append(Fault(AccessDenied("no")))

    with pytest.raises(AccessDenied):
        world.repair()


def test_of_very_many_shards_only_those_that_moved_lately_leave_a_watermark(world: World) -> None:
    """The total stays a small item; what may still land is refused."""
    world.deliver([world.emit(5)])
    for n in range(300):
        world.add_shard(f"child {n}", parent="s" if n == 0 else f"child {n - 1}")
        world.pass_over(world.emit(1, counter="a:other", shard=f"child {n}"), f"child {n}")
    world.clock.at_ms += LATE_WRITE_MS
    world.pass_over(world.emit(1, counter="a:other", shard="child 299"), "child 299")
    _lose_total(world)

    world.repair()

    marks = {name for name in world.total() if name.startswith(watermark.PREFIX)}
    assert marks == {watermark.attribute("label/child 299")}


@pytest.mark.parametrize("seed", range(200))
def test_after_any_accidents_a_repair_is_exact_and_stays_so(seed: int) -> None:
    """Redelivery, quarantine, edits by hand and lost totals, in any order."""
    random = Random(seed)  # noqa: S311 - a test's
    world = World()
    world.add_shard("s")
    records = [world.emit(1)]
    world.deliver(records)
    handled = 1
    for _ in range(random.randrange(3, 25)):
        act = random.randrange(6)
        if act == 0:
            records.append(world.emit(random.choice([-3, 2, 5])))
        elif act == 1 and handled < len(records):
            handled = random.randrange(handled, len(records)) + 1
            world.deliver(records[random.randrange(handled) : handled])
            world.deliver(records[:handled])
        elif act == 2 and world.total():
            world.spoil(total=random.choice([0, 7, "corrupt"]))
        elif act == 3:
            _lose_total(world)
        elif act == 4:
            repair = world.repair()
            if repair.healthy:
                assert world.total().get("total", 0) == world.verifier().exact.read(COUNTER).sum
        else:
            world.deliver(records[random.randrange(handled) : handled])
    world.deliver(records)
    assert world.repair().healthy
    world.deliver(records)

    assert world.total()["total"] == world.verifier().exact.read(COUNTER).sum


def _shards(world: World, count: int, *, closed: bool) -> None:
    """So many, each with a record that was handled; those that are closed have quiet children."""
    for number in range(count):
        world.add_shard(f"s{number}")
        world.pass_over(world.show("other:x", f"s{number}"), f"s{number}")
        if closed:
            world.close(f"s{number}")
            world.add_shard(f"child-{number}", parent=f"s{number}")


def test_a_counter_beside_many_closed_shards_is_repaired(world: World) -> None:
    """Of what was handled long ago nothing can land; the expression names the others."""
    world.deliver([world.emit(5)])
    _shards(world, 400, closed=True)
    world.clock.at_ms += LATE_WRITE_MS
    world.spoil(total=6)

    assert world.repair().remedy is Remedy.REPAIRED
    assert world.total()["total"] == 5


def test_a_counter_beside_too_many_open_shards_is_left_alone(world: World) -> None:
    """Each needs its watermark; they do not fit into one write, and that is said."""
    world.deliver([world.emit(5)])
    _shards(world, 400, closed=False)
    world.spoil(total=6)

    repair = world.repair()

    assert repair.remedy is Remedy.SKIPPED
    assert "stream shards" in repair.reason


@pytest.mark.parametrize(("compacted", "stays"), [(1, True), (2, True), (3, False)])
def test_what_a_ledger_of_another_time_had_compacted_is_forgotten(
    world: World, compacted: int, *, stays: bool
) -> None:
    """The ledger was restored to an earlier time: more than there are cannot be in its head."""
    world.deliver([world.emit(5), world.emit(7)])
    world.spoil(total=100, entries=10, compacted=compacted)

    assert world.repair().remedy is Remedy.REPAIRED

    assert ("compacted" in world.total()) is stays
