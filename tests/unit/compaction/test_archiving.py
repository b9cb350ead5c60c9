"""Entries are deleted only once their archive is recorded as stored; absence proves nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from countledger.compaction.archive import archived_of, is_archived
from countledger.compaction.compactor import Compactor
from countledger.compaction.report import CompactionReport, CompactionStep, RunOutcome, Verb
from countledger.compaction.retire import Retire
from countledger.compaction.s3_archive import ArchiveLocation, S3Archive
from countledger.ledger import keys
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.head import Head, decode_head
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.operations import Put
from tests.simulation.objects import Bucket, ObjectsClient
from tests.unit.compaction.parts import LEDGER, limit_of
from tests.unit.compaction.test_deletion import COUNTER
from tests.unit.compaction.test_reused_names import Reusing

if TYPE_CHECKING:
    from countledger.ledger.attributes import Item

_DELTAS = (1, 4, 16)


class _Stopped(BaseException):
    """The process ends here."""


@dataclass
class Archiving(Reusing):
    """A counter whose merged entries are archived, in memory."""

    bucket: Bucket = field(default_factory=Bucket)

    @property
    def archive(self) -> S3Archive:
        """The archive."""
        client: Any = ObjectsClient(self.bucket)
        return S3Archive(client, ArchiveLocation.parse("s3://archive/some/where"))

    def archiving(self, **settings: Any) -> Compactor:  # noqa: ANN401 - of a compactor
        """A compactor of a process of its own."""
        return Compactor(
            self.regions(),
            self.stack.namespaces,
            limit_of,
            Retire.DELETE,
            self.archive,
            clock=self.stack.clock,
            workers=1,
            **settings,
        )

    def compact(self, **settings: Any) -> CompactionReport:  # noqa: ANN401 - of a compactor
        """One run."""
        return self.archiving(**settings).compact(COUNTER)

    def entries(self) -> list[Item]:
        """Those that are there."""
        return [one for one in self.dynamo.items(LEDGER) if one["entry"].startswith("e#")]

    def archived(self) -> list[int]:
        """The deltas in the archive of the counter that uses the name now."""
        head = decode_head(self.dynamo.get(LEDGER, keys.head_key(COUNTER)))
        return sorted(int(e.delta) for e in self.archive.entries(COUNTER, head.incarnation))

    def published(self) -> None:
        """Entries that a head has taken in and that could not be archived."""
        self.use(*_DELTAS)
        self.stack.clock.at_ms += 2 * DAY_MS
        self.bucket.failing = 1
        assert self.compact().outcome is RunOutcome.FAILED
        assert len(self.entries()) == len(_DELTAS)

    def delete(self, number: int) -> Item:
        """Somebody deletes an entry by hand."""
        item = self.entries()[number]
        del self.dynamo.tables[LEDGER][COUNTER, item["entry"]]
        return item


def test_an_entry_deleted_by_hand_is_no_proof_that_the_archive_was_stored() -> None:
    """The others would be deleted, and archived nowhere."""
    archiving = Archiving()
    archiving.published()
    changed = archiving.entries()[0]
    archiving.dynamo.put(Put(LEDGER, {**changed, "delta": 5}))
    assert archiving.compact().outcome is RunOutcome.TAMPERED
    archiving.delete(0)

    reports = [archiving.compact(), archiving.compact()]

    for report in reports:
        assert report.outcome is RunOutcome.TAMPERED
        assert changed["entry"] in report.detail
        assert "--archive-as-found" in report.detail
    assert len(archiving.entries()) == 2
    assert archiving.exact().read(COUNTER).sum == sum(_DELTAS)


def test_an_entry_that_is_written_back_is_archived_with_the_others() -> None:
    """Then nothing is missing any more."""
    archiving = Archiving()
    archiving.published()
    item = archiving.delete(1)
    assert archiving.compact().outcome is RunOutcome.TAMPERED
    archiving.dynamo.put(Put(LEDGER, item))

    assert archiving.compact().outcome is RunOutcome.MERGED
    assert archiving.archived() == list(_DELTAS)
    assert archiving.entries() == []


@pytest.mark.parametrize("how", ["deleted", "note changed"])
def test_an_operator_may_archive_what_is_there(how: str) -> None:
    """Under the checksum of what is there; sums count every entry as before."""
    archiving = Archiving()
    archiving.published()
    if how == "deleted":
        archiving.delete(1)
    else:
        changed = archiving.entries()[1]
        archiving.dynamo.put(Put(LEDGER, {**changed, "note": {"by": "hand"}}))
        refused = archiving.compact()
        assert refused.outcome is RunOutcome.FAILED
        assert "--archive-as-found" in refused.detail

    report = archiving.compact(archive_as_found=True)

    assert report.outcome is RunOutcome.MERGED
    assert archiving.archived() == ([1, 16] if how == "deleted" else list(_DELTAS))
    assert archiving.entries() == []
    assert archiving.exact().read(COUNTER).sum == sum(_DELTAS)


@pytest.mark.parametrize("number", range(4))
def test_a_run_that_goes_on_deleting_knows_that_the_archive_was_stored(number: int) -> None:
    """Whichever entries are gone: it stores nothing again, and asks no operator."""
    archiving = Archiving()
    archiving.use(*_DELTAS)
    archiving.stack.clock.at_ms += 2 * DAY_MS

    def stop(step: CompactionStep) -> None:
        if step.verb is Verb.RETIRE:
            raise _Stopped

    with pytest.raises(_Stopped):
        archiving.archiving().compact(COUNTER, on_step=stop)
    for _ in range(min(number, 3)):
        archiving.delete(0)
    stored = dict(archiving.bucket.objects)
    archiving.bucket.objects.clear()

    assert archiving.compact().outcome is RunOutcome.MERGED
    assert archiving.bucket.objects == {}
    archiving.bucket.objects.update(stored)
    assert archiving.archived() == list(_DELTAS)


def test_a_run_that_paused_while_another_went_on_asks_no_operator() -> None:
    """What it misses was archived and deleted by the other one, and the head was replaced since."""
    archiving = Archiving()
    archiving.published()
    acted: list[CompactionReport] = []

    def act(step: CompactionStep) -> None:
        if step.verb is Verb.AWAIT and not acted:
            acted.append(archiving.compact())
            archiving.use(64)
            archiving.stack.clock.at_ms += 2 * DAY_MS
            with pytest.raises(_Stopped):
                archiving.archiving().compact(COUNTER, on_step=stop_before_deleting)

    def stop_before_deleting(step: CompactionStep) -> None:
        if step.verb is Verb.RETIRE:
            raise _Stopped

    report = archiving.archiving().compact(COUNTER, on_step=act)

    assert acted[0].outcome is RunOutcome.MERGED
    assert report.outcome is RunOutcome.OVERTAKEN


def test_a_late_record_of_an_earlier_generation_hides_no_later_one() -> None:
    """The record never goes back."""
    archiving = Archiving()
    archiving.use(*_DELTAS)
    archiving.stack.clock.at_ms += 2 * DAY_MS
    archiving.compact(covers_max=1)
    record = archiving.dynamo.get(LEDGER, keys.archived_key(COUNTER)) or {}
    head = decode_head(archiving.dynamo.get(LEDGER, keys.head_key(COUNTER)))
    earlier = {**record, "generation": 1}
    late = archived_of(LEDGER, COUNTER, replace(head, generation=2), "late", earlier)

    with pytest.raises(ConditionFailed):
        archiving.dynamo.put(late)
    assert record["generation"] == head.generation - 1
    assert record["incarnation"] == head.incarnation
    assert archiving.archived() == list(_DELTAS)


@pytest.mark.parametrize("seen", ["no record", "a record"])
def test_a_late_record_of_a_deleted_counter_hides_not_that_of_the_next_one(seen: str) -> None:
    """Its run read what was recorded, and stood still until the name was used again."""
    archiving = Archiving()
    deleted = Head(generation=5, run="paused", incarnation="deleted")
    before = Head(generation=4, run="earlier", incarnation="deleted")
    if seen == "a record":
        archiving.dynamo.put(archived_of(LEDGER, COUNTER, before, "s3://archive/4", None))
    record = archiving.dynamo.get(LEDGER, keys.archived_key(COUNTER))
    late = archived_of(LEDGER, COUNTER, deleted, "s3://archive/5", record)
    head = Head(generation=8, run="next", incarnation="next")
    archiving.dynamo.put(archived_of(LEDGER, COUNTER, head, "s3://archive/8", record))

    with pytest.raises(ConditionFailed):
        archiving.dynamo.put(late)
    assert is_archived(head, archiving.dynamo.get(LEDGER, keys.archived_key(COUNTER)))


def test_two_counters_of_one_name_have_an_archive_each() -> None:
    """At the same generations: what was deleted does not come back with the name."""
    archiving = Archiving()
    archiving.use(*_DELTAS)
    archiving.stack.clock.at_ms += 2 * DAY_MS
    assert archiving.compact().outcome is RunOutcome.MERGED
    archiving.empty(with_entries=False)
    between = archiving.archived()
    archiving.forget()
    archiving.use(64)
    archiving.stack.clock.at_ms += 2 * DAY_MS
    assert archiving.compact().outcome is RunOutcome.MERGED

    assert between == []
    assert archiving.archived() == [64]
    assert len(archiving.bucket.objects) == 2


def test_a_deletion_takes_the_record_along() -> None:
    """Nothing of the counter stays in the ledger."""
    archiving = Archiving()
    archiving.use(*_DELTAS)
    archiving.stack.clock.at_ms += 2 * DAY_MS
    archiving.compact()
    archiving.empty(with_entries=False)
    archiving.forget()

    assert [one for one in archiving.dynamo.items(LEDGER) if one["counter"] == COUNTER] == []


def test_the_record_of_the_counter_that_uses_the_name_again_stays() -> None:
    """Its head took the empty head's place, and it may be deleting what the record is of."""
    archiving = Archiving()
    archiving.empty()
    archiving.use(64)
    archiving.stack.clock.at_ms += 2 * DAY_MS
    archiving.compact()
    record = archiving.dynamo.get(LEDGER, keys.archived_key(COUNTER))

    archiving.forget()

    assert record is not None
    assert archiving.dynamo.get(LEDGER, keys.archived_key(COUNTER)) == record


def test_a_third_call_that_stood_still_takes_no_record_of_the_next_counter() -> None:
    """Generations begin again: that of the next counter is lower than the empty head's."""
    archiving = Archiving()
    archiving.use(*_DELTAS)
    archiving.stack.clock.at_ms += 2 * DAY_MS
    archiving.compact()
    archiving.empty(with_entries=False)
    records: list[Item | None] = []

    def act() -> None:
        archiving.forget()
        archiving.use(64)
        archiving.stack.clock.at_ms += 2 * DAY_MS
        assert archiving.compact().outcome is RunOutcome.MERGED
        records.append(archiving.dynamo.get(LEDGER, keys.archived_key(COUNTER)))

    archiving.interrupted.before_delete[keys.ARCHIVED] = act
    archiving.forget()

    assert records[0] is not None
    assert archiving.dynamo.get(LEDGER, keys.archived_key(COUNTER)) == records[0]


def test_the_archive_shows_an_entry_of_two_objects_of_a_generation_once() -> None:
    """A run stored all of them and died; then an entry was lost, and the others were archived."""
    archiving = Archiving()
    archiving.use(*_DELTAS)
    archiving.stack.clock.at_ms += 2 * DAY_MS

    def die() -> None:
        raise _Stopped

    def before_the_record(step: CompactionStep) -> None:
        if step.verb is Verb.ARCHIVE:
            archiving.interrupted.before_write.append(die)

    with pytest.raises(_Stopped):
        archiving.archiving().compact(COUNTER, on_step=before_the_record)
    archiving.delete(1)

    assert archiving.compact(archive_as_found=True).outcome is RunOutcome.MERGED
    assert len(archiving.bucket.objects) == 2
    assert archiving.archived() == list(_DELTAS)


def test_the_record_of_an_earlier_counter_hinders_no_later_one() -> None:
    """Its generation is higher, and says nothing."""
    archiving = Archiving()
    archiving.use(*_DELTAS)
    archiving.stack.clock.at_ms += 2 * DAY_MS
    other = Head(generation=57, run="r", incarnation="earlier")
    archiving.dynamo.put(archived_of(LEDGER, COUNTER, other, "s3://archive/earlier", None))

    assert archiving.compact().outcome is RunOutcome.MERGED
    assert archiving.archived() == list(_DELTAS)


@pytest.mark.parametrize(("hours", "outcome"), [(11, RunOutcome.MERGED), (13, RunOutcome.FAILED)])
def test_a_run_that_slept_for_half_a_day_records_no_archive(
    hours: int, outcome: RunOutcome
) -> None:
    """The counter may have been deleted by then; without a record nothing is deleted."""
    archiving = Archiving()
    archiving.use(*_DELTAS)
    clock = archiving.stack.clock
    clock.at_ms += 2 * DAY_MS

    def sleep(step: CompactionStep) -> None:
        if step.verb is Verb.ARCHIVE:
            clock.at_ms += hours * HOUR_MS

    report = archiving.archiving().compact(COUNTER, on_step=sleep)

    assert report.outcome is outcome
    assert (archiving.entries() == []) is (outcome is RunOutcome.MERGED)
