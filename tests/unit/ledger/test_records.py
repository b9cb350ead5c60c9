"""Records: what a call writes, what it costs, and when it says that nobody knows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest

from countledger.ledger.errors import NoSuchQuota, QuotaExists, Throttled, Unclear
from countledger.ledger.operations import Absent, Put
from countledger.ledger.records import NotRead, Records, RecordWritten, Replacement
from countledger.ledger.tombstones import present, removed_id
from countledger.testing import MemoryStack

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.attributes import Item
    from countledger.ledger.records import Decide, Seen

KEY: Final = {"counter": "record#", "part": "r"}
MARK: Final = {"counter": "record#", "part": "mark"}


class Kept:
    """One record of a stack in memory, and what its calls cost."""

    def __init__(self, *, removable: bool = True) -> None:
        self.stack = MemoryStack(at=datetime(2030, 1, 1, tzinfo=UTC))
        self.connection = self.stack.ledger.connection
        self.records = Records(self.connection, self.connection.counters, "record", removable)

    def write(self, decide: Decide, seen: Seen = NotRead.READ_IT) -> RecordWritten:
        return self.connection.run(self.records.write("r", KEY, decide, seen=seen))

    def make(self, value: int) -> RecordWritten:
        return self.write(new(value), NotRead.EXPECT_NOTHING)

    def stored(self) -> Item | None:
        return self.connection.retrying.get(self.connection.counters, KEY, consistent=True)

    def value(self) -> int | None:
        there = present(self.stored())
        return None if there is None else there["value"]

    def units(self, call: Callable[[], object]) -> tuple[float, float]:
        meter = self.connection.meter
        before = meter.write_units, meter.read_units
        call()
        return meter.write_units - before[0], meter.read_units - before[1]


def valued(value: int) -> Replacement:
    return Replacement({**KEY, "value": value})


def new(value: int) -> Decide:
    def decide(there: Item | None) -> Replacement:
        if there is not None:
            raise QuotaExists("r")
        return valued(value)

    return decide


def add(there: Item | None) -> Replacement:
    if there is None:
        raise NoSuchQuota("r")
    return valued(there["value"] + 1)


def remove(there: Item | None) -> Replacement | None:
    return None if there is None else Replacement(None)


def test_each_write_names_its_call_and_follows_the_revision_before() -> None:
    kept = Kept()
    made, added = kept.make(5).item, kept.write(add).item

    assert made is not None
    assert added is not None
    assert added["incarnation"] == made["incarnation"]
    assert (made["revision"], added["revision"]) == (1, 2)
    assert made["changed_by"] != added["changed_by"]
    assert kept.stored() == added


def test_a_removed_record_leaves_a_tombstone_that_its_successor_follows() -> None:
    kept = Kept()
    made = kept.make(5).item
    kept.write(remove)
    left = kept.stored()
    again = kept.make(7).item

    assert made is not None
    assert left is not None
    assert again is not None
    assert removed_id(left) == made["incarnation"] != again["incarnation"]
    assert (left["revision"], again["revision"]) == (2, 3)


def test_a_call_that_changes_nothing_writes_nothing() -> None:
    kept = Kept()
    kept.make(5)

    assert kept.units(lambda: kept.write(lambda _: None)) == (0, 1)
    assert not kept.write(lambda _: None).changed


def test_costs() -> None:
    kept = Kept()

    assert kept.units(lambda: kept.make(5)) == (1, 0)
    assert kept.units(lambda: kept.write(add)) == (1, 1)
    assert kept.units(lambda: kept.write(add, kept.stored())) == (1, 1)  # the read of the test
    assert kept.units(lambda: kept.write(remove)) == (1, 1)
    # In place of a tombstone of this minute: a refused request, and one that names it.
    assert kept.units(lambda: kept.make(5)) == (2, 0)
    beside = Put(kept.connection.counters, {**MARK}, Absent("counter"))
    assert kept.units(lambda: kept.write(lambda _: Replacement({**KEY}, (beside,)))) == (4, 1)


def test_a_call_that_was_second_decides_on_what_it_meets() -> None:
    kept = Kept()
    kept.make(5)
    kept.stack.before_next_request(lambda: kept.write(add), skip=1)

    assert kept.write(add).item == kept.stored()
    assert kept.value() == 7


def test_a_call_whose_answer_was_lost_recognises_its_write() -> None:
    kept = Kept()
    kept.make(5)
    kept.stack.lose_next_answer()
    kept.write(add)

    assert kept.value() == 6


def test_a_creation_whose_answer_was_lost_is_done_although_it_was_removed_since() -> None:
    kept = Kept()
    kept.stack.lose_next_answer()
    kept.stack.before_next_request(lambda: kept.write(remove))

    assert kept.make(5).changed
    assert kept.value() is None


def test_after_an_attempt_without_an_answer_the_next_revision_decides() -> None:
    """One other call was first: the attempt was not applied, and cannot be any more."""
    kept = Kept()
    kept.make(5)
    kept.stack.delay_next()
    kept.stack.before_next_request(lambda: kept.write(add))
    kept.write(add)
    kept.stack.land()

    assert kept.value() == 7


@pytest.mark.parametrize("lands", [True, False])
def test_after_an_attempt_without_an_answer_and_two_changes_nobody_knows(*, lands: bool) -> None:
    kept = Kept()
    kept.make(5)

    def two_changes() -> None:
        if lands:
            kept.stack.land()
        kept.write(add)
        kept.write(add)

    kept.stack.delay_next()
    kept.stack.before_next_request(two_changes)
    with pytest.raises(Unclear, match="to change record 'r'"):
        kept.write(add)

    assert kept.value() == (8 if lands else 7)


def test_a_creation_is_not_refused_while_a_request_of_it_may_be_applied() -> None:
    kept = Kept()
    kept.stack.delay_next()
    kept.stack.before_next_request(lambda: kept.make(7))

    with pytest.raises(Unclear):
        kept.make(5)


def test_a_creation_of_a_kind_that_stays_is_refused_for_good() -> None:
    kept = Kept(removable=False)
    kept.stack.delay_next()
    kept.stack.before_next_request(lambda: kept.make(7))

    with pytest.raises(QuotaExists):
        kept.make(5)
    kept.stack.land()
    assert kept.value() == 7


def test_a_late_creation_does_not_bring_a_removed_record_back() -> None:
    kept = Kept()
    kept.stack.delay_next()
    kept.make(5)
    kept.stack.advance(minutes=2)
    kept.write(remove)
    kept.stack.land()

    assert kept.value() is None


def test_a_suspended_change_does_not_change_the_next_record_of_the_name() -> None:
    """Its revision is the same: the record's own id decides."""
    kept = Kept()
    kept.make(5)

    def another_record() -> None:
        kept.write(remove)
        kept.stack.advance(hours=1)
        kept.make(7)
        item = kept.stored()
        assert item is not None
        assert item["revision"] == 1

    kept.stack.before_next_request(another_record, skip=1)
    with pytest.raises(Throttled, match="nothing was written"):
        kept.write(add)

    assert kept.value() == 7


def test_a_call_that_is_suspended_after_an_attempt_without_an_answer_sends_nothing_more() -> None:
    """What it has made may be removed, and the tombstone of that may be gone."""
    kept = Kept()
    kept.stack.lose_next_answer()

    def an_hour_later() -> None:
        kept.write(remove)
        kept.stack.advance(hours=1)
        assert kept.stored() is None

    kept.stack.before_next_request(an_hour_later)
    with pytest.raises(Unclear):
        kept.make(5)

    assert kept.value() is None


def test_a_write_beside_that_is_refused_leaves_the_record() -> None:
    kept = Kept()
    kept.make(5)
    mark = Put(kept.connection.counters, {**MARK}, Absent("counter"))
    kept.write(lambda _: valued(6)._replace(beside=(mark,)))

    written = kept.write(lambda _: valued(7)._replace(beside=(mark,)))

    assert not written.changed
    assert written.refused[0].condition_failed
    assert kept.value() == 6


def test_a_change_that_must_not_leave_any_more_is_decided_again() -> None:
    kept = Kept()
    kept.make(5)
    late = [Throttled("too late for its time")]
    decided = []

    def leaves() -> None:
        if late:
            raise late.pop()

    def decide(there: Item | None) -> Replacement:
        decided.append(there)
        return add(there)._replace(before_send=leaves)

    kept.write(decide)

    assert len(decided) == 2
    assert kept.value() == 6


def test_what_was_written_is_what_the_attempt_without_an_answer_decided() -> None:
    """Each attempt decides for itself: the one that was applied counts."""
    kept = Kept()
    kept.make(5)
    values = iter((6, 7))
    kept.stack.lose_next_answer()

    written = kept.write(lambda _: valued(next(values)))

    assert written.item == kept.stored()
    assert kept.value() == 6


def test_a_change_that_is_pointless_after_an_attempt_without_an_answer_is_unclear() -> None:
    kept = Kept()
    kept.make(5)
    decisions = [valued(6), None]
    kept.stack.delay_next()

    with pytest.raises(Unclear):
        kept.write(lambda _: decisions.pop(0))
