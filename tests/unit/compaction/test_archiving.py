"""Entries are deleted only once their archive is recorded as stored; absence proves nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from countledger.compaction.archive import archived_of, checksum, is_archived, items_in, lines_of
from countledger.compaction.report import CompactionReport, CompactionStep, Retire, RunOutcome, Verb
from countledger.infra.memory.tables import holds
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.errors import CorruptArchive
from countledger.ledger.exact import Head
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.operations import Put
from tests.unit.compaction import world as worlds
from tests.unit.compaction.parts import LEDGER
from tests.unit.compaction.world import COUNTER, DELTAS, Stopped


@dataclass
class World(worlds.World):
    """A counter whose merged entries are archived."""

    def compact(
        self,
        on_step: Callable[[CompactionStep], None] = lambda _: None,
        **settings: Any,  # noqa: ANN401 - of a compactor
    ) -> CompactionReport:
        with_archive = {"retire": Retire.DELETE, "archive": self.archive, **settings}
        return self.compactor(**with_archive).compact(COUNTER, on_step=on_step)

    def merge(self, *deltas: int) -> None:
        """Entries, and the run that archives and deletes them."""
        self.age(*deltas)
        assert self.compact().outcome is RunOutcome.MERGED

    def publish(self) -> None:
        """Entries that a head has taken in and that could not be archived."""
        self.age()
        self.bucket.failing = 1
        assert self.compact().outcome is RunOutcome.FAILED
        assert len(self.entries()) == len(DELTAS)

    def lose(self, number: int) -> Item:
        item = self.entries()[number]
        del self.dynamo.tables[LEDGER][COUNTER, item["entry"]]
        return item

    def change(self, number: int, **attributes: object) -> Item:
        item = self.entries()[number]
        self.dynamo.put(Put(LEDGER, {**item, **attributes}))
        return item

    @property
    def archived(self) -> list[int]:
        """The deltas in the archive of the counter that uses the name now."""
        entries = self.archive.entries(COUNTER, self.head.incarnation)
        return sorted(int(entry.delta) for entry in entries)

    @property
    def archive_record(self) -> Item | None:
        """What says that the last archive was stored."""
        return self.item(keys.archived_key(COUNTER))


def _stop_at(verb: Verb) -> Callable[[CompactionStep], None]:
    def stop(step: CompactionStep) -> None:
        if step.verb is verb:
            raise Stopped

    return stop


def test_an_entry_deleted_by_hand_is_no_proof_that_the_archive_was_stored() -> None:
    """The others would be deleted, and archived nowhere; written back, it is archived."""
    world = World()
    world.publish()
    changed = world.change(0, delta=5)
    assert world.compact().outcome is RunOutcome.TAMPERED
    world.lose(0)

    for report in [world.compact(), world.compact()]:
        assert report.outcome is RunOutcome.TAMPERED
        assert changed["entry"] in report.detail
        assert "--archive-as-found" in report.detail
    assert len(world.entries()) == 2
    assert world.exact() == sum(DELTAS)
    world.dynamo.put(Put(LEDGER, changed))
    assert world.compact().outcome is RunOutcome.MERGED
    assert (world.archived, world.entries()) == ([*DELTAS], [])


@pytest.mark.parametrize(
    ("by_hand", "refused", "archived"),
    [
        (lambda world: world.lose(1), RunOutcome.TAMPERED, [1, 16]),
        (lambda world: world.change(1, note={"by": "hand"}), RunOutcome.FAILED, [*DELTAS]),
    ],
    ids=["deleted", "changed"],
)
def test_an_operator_may_archive_what_is_there(
    by_hand: Callable[[World], object], refused: RunOutcome, archived: list[int]
) -> None:
    """Under the checksum of what is there; sums count every entry as before."""
    world = World()
    world.publish()
    by_hand(world)
    report = world.compact()
    assert report.outcome is refused
    assert "--archive-as-found" in report.detail

    assert world.compact(archive_as_found=True).outcome is RunOutcome.MERGED

    assert (world.archived, world.entries()) == (archived, [])
    assert world.exact() == sum(DELTAS)


@pytest.mark.parametrize("gone", range(4))
def test_a_run_that_goes_on_deleting_knows_that_the_archive_was_stored(gone: int) -> None:
    """Whichever entries are gone: it stores nothing again, and asks no operator."""
    world = World()
    world.age()
    with pytest.raises(Stopped):
        world.compact(_stop_at(Verb.RETIRE))
    for _ in range(min(gone, len(DELTAS))):
        world.lose(0)
    stored = dict(world.bucket.objects)
    world.bucket.objects.clear()

    assert world.compact().outcome is RunOutcome.MERGED
    assert world.bucket.objects == {}
    world.bucket.objects.update(stored)
    assert world.archived == [*DELTAS]


def test_a_run_that_paused_while_another_went_on_asks_no_operator() -> None:
    """What it misses was archived and deleted by the other one, and the head was replaced since."""
    world = World()
    world.publish()
    acted: list[CompactionReport] = []

    def act(step: CompactionStep) -> None:
        if step.verb is Verb.AWAIT and not acted:
            acted.append(world.compact())
            world.age(64)
            with pytest.raises(Stopped):
                world.compact(_stop_at(Verb.RETIRE))
            # By its own clock the first run paused for less than the time after which it ends.
            world.stack.clock.at_ms -= 2 * DAY_MS

    report = world.compact(act)

    assert acted[0].outcome is RunOutcome.MERGED
    assert report.outcome is RunOutcome.OVERTAKEN


_OLD = Head(generation=5, run="old", incarnation="deleted")
_OLDER = Head(generation=4, run="older", incarnation="deleted")
_NEXT = Head(generation=3, run="next", incarnation="next")


def _record(head: Head) -> Item:
    return archived_of(LEDGER, COUNTER, head, "s3://archive/name", None).item


_RECORDS: dict[str, tuple[Head | None, Head | None, bool]] = {
    "the first record": (None, None, True),
    "the record that was read": (_OLDER, _OLDER, True),
    "a later generation's": (_OLDER, _OLD, False),
    "that of the next counter, instead of none": (None, _NEXT, False),
    "that of the next counter, instead of the last one's": (_OLDER, _NEXT, False),
}


@pytest.mark.parametrize(("seen", "stored", "replaced"), _RECORDS.values(), ids=_RECORDS)
def test_a_late_record_replaces_only_the_one_that_was_read(
    seen: Head | None, stored: Head | None, *, replaced: bool
) -> None:
    write = archived_of(LEDGER, COUNTER, _OLD, "s3://archive/5", _record(seen) if seen else None)

    assert write.condition is not None
    assert holds(write.condition, _record(stored) if stored else {}) is replaced
    assert stored is None or is_archived(_OLD, _record(stored)) is (stored is _OLD)


def test_two_counters_of_one_name_have_an_archive_each() -> None:
    """At the same generations: what was deleted does not come back with the name."""
    world = World()
    world.merge()
    world.empty()
    between = world.archived
    world.forget()
    assert [one for one in world.dynamo.items(LEDGER) if one["counter"] == COUNTER] == []
    world.merge(64)

    assert (between, world.archived) == ([], [64])
    assert len(world.bucket.objects) == 2


def test_the_record_of_the_counter_that_uses_the_name_again_stays() -> None:
    """Its head took the empty head's place, and it may be deleting what the record is of."""
    world = World()
    world.use(*DELTAS)
    world.empty()
    world.merge(64)
    record = world.archive_record

    world.forget()

    assert record is not None
    assert world.archive_record == record


def test_a_third_call_that_stood_still_takes_no_record_of_the_next_counter() -> None:
    """Generations begin again: that of the next counter is lower than the empty head's."""
    world = World()
    world.merge()
    world.empty()
    records: list[Item | None] = []

    def act() -> None:
        world.forget()
        world.merge(64)
        records.append(world.archive_record)

    world.before_delete(keys.ARCHIVED, act)
    world.forget()

    assert records[0] is not None
    assert world.archive_record == records[0]


def test_the_archive_shows_an_entry_of_two_objects_of_a_generation_once() -> None:
    """A run stored all of them and died; then an entry was lost, and the others were archived."""
    world = World()
    world.age()

    def die() -> None:
        raise Stopped

    def before_the_record(step: CompactionStep) -> None:
        if step.verb is Verb.ARCHIVE:
            world.before_write(die)

    with pytest.raises(Stopped):
        world.compact(before_the_record)
    world.lose(1)

    assert world.compact(archive_as_found=True).outcome is RunOutcome.MERGED
    assert len(world.bucket.objects) == 2
    assert world.archived == [*DELTAS]


@pytest.mark.parametrize(("hours", "outcome"), [(11, RunOutcome.MERGED), (13, RunOutcome.FAILED)])
def test_a_run_that_slept_for_half_a_day_records_no_archive(
    hours: int, outcome: RunOutcome
) -> None:
    """The counter may have been deleted by then; without a record nothing is deleted."""
    world = World(lease_ms=DAY_MS)
    world.age()

    def sleep(step: CompactionStep) -> None:
        if step.verb is Verb.ARCHIVE:
            world.later(hours * HOUR_MS)

    assert world.compact(sleep).outcome is outcome
    assert (world.entries() == []) is (outcome is RunOutcome.MERGED)


def test_the_record_never_goes_back_to_an_earlier_generation() -> None:
    """Of a run that stood still after it had published: it need not read its entries again."""
    world = World()
    world.age()
    records: list[Item | None] = []

    def overtake(step: CompactionStep) -> None:
        if (step.verb, step.generation) == (Verb.AWAIT, 1) and not records:
            assert world.compact(covers_max=1).merged == len(DELTAS) - 1
            records.append(world.archive_record)

    assert world.compact(overtake, covers_max=1).outcome is RunOutcome.OVERTAKEN
    assert records == [world.archive_record]
    assert (world.archived, world.exact()) == ([*DELTAS], sum(DELTAS))


# ---- the content of an archive ----


def test_lines_hold_whatever_an_item_may_hold() -> None:
    items: list[dict[str, Any]] = [
        {
            "counter": "c",
            "entry": "e#2",
            "delta": Decimal("-0.1"),
            "raw": b"\x00\xff",
            "l": [1, "x"],
        },
        {"counter": "c", "entry": "e#1", "delta": 10**37, "note": {"NS": "a", "B": "c"}},
        {"counter": "c", "entry": "e#3", "delta": 1, "set": {"b", "a"}, "blobs": {b"2", b"1"}},
    ]

    lines = lines_of(items)

    assert lines == lines_of(reversed(items))
    assert items_in(lines, "here") == [items[1], items[0], items[2]]
    with pytest.raises(CorruptArchive, match="here has a line"):
        items_in(b'{"Item": 1}\n', "here")


def test_how_a_line_is_written_never_changes() -> None:
    """A run may be resumed by another release: what was sealed must be written again alike."""
    item = {"counter": "a:b", "entry": "e#1", "delta": -5, "at": 1_700_000_000_000, "origin": "r"}

    lines = lines_of([item])

    assert lines == (
        b'{"Item":{"at":{"N":"1700000000000"},"counter":{"S":"a:b"},"delta":{"N":"-5"},'
        b'"entry":{"S":"e#1"},"origin":{"S":"r"}}}\n'
    )
    assert checksum(lines) == "16a326474ed44e2dc94f43587627bc2f6766ba86a4e2df9b3b01b45687933527"


def test_the_same_item_gives_the_same_line_whatever_the_order_of_its_sets() -> None:
    """The checksum of a generation is made of its lines."""
    one, other = {0, 8}, {8, 0}
    assert list(one) != list(other)

    lines = [
        lines_of([{"counter": "a:b", "entry": "e#1", "note": {"n": found}, "tags": found}])
        for found in (one, other)
    ]

    assert lines[0] == lines[1]
