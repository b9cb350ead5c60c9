"""The copy of a restore: no item comes back that was used and deleted since it was copied."""

from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from countledger.infra.portability.restore import Copying
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.errors import BadSetting, ServiceFailed, Throttled
from countledger.ledger.limits import MINUTE_MS, SECOND_MS
from countledger.ledger.operations import Absent, Delete, Put
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient, applied_then_lost, meanwhile, refuses

LEDGER, COUNTERS = "ledger", "counters"
_KEY = {"counter": "likes:a", "entry": "e#1"}
_ENTRY = Put(LEDGER, {**_KEY, "delta": 5}, Absent("entry"))


@dataclass
class Restoring:
    """A new stack into which several calls of one restore copy."""

    dynamo: MemoryClient = field(default_factory=MemoryClient)
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.dynamo.put(Put(COUNTERS, keys.restore_key()))

    def call(self, name: str) -> Copying:
        return Copying(connection_on(self.dynamo, self.clock, unique_id=lambda: name))

    @property
    def record(self) -> Item:
        return self.dynamo.get(COUNTERS, keys.restore_key()) or {}

    @property
    def entries(self) -> list[Item]:
        return self.dynamo.items(LEDGER)

    def finish(self, name: str = "second") -> None:
        """Another call copies everything; then the entry is merged."""
        with self.call(name) as copying:
            copying.put(_ENTRY)
            copying.complete()
        self.dynamo.delete(Delete(LEDGER, _KEY))


def test_a_call_that_was_suspended_brings_no_merged_entry_back() -> None:
    restoring = Restoring()
    with restoring.call("first") as first:
        restoring.finish()
        restoring.clock.at_ms += 30 * SECOND_MS
        with pytest.raises(ServiceFailed, match="another call has copied everything"):
            first.put(_ENTRY)

    assert restoring.entries == []


def test_a_put_that_was_held_up_before_it_left_brings_no_merged_entry_back() -> None:
    """Between its look at the record and its request."""
    restoring = Restoring()

    def held_up() -> None:
        restoring.finish()
        restoring.clock.at_ms += MINUTE_MS

    with restoring.call("first") as first:
        restoring.dynamo.plans.append(meanwhile(held_up, "put", times=1))
        with pytest.raises(ServiceFailed, match="suspended"):
            first.put(_ENTRY)

    assert restoring.entries == []


def test_a_restore_settles_late_where_a_call_was_killed() -> None:
    """A put of it may have left just before the end of the copy."""
    restoring = Restoring()
    restoring.call("killed").__enter__()

    restoring.finish()

    late_ms = restoring.record["settles_at"] - restoring.clock.at_ms
    assert late_ms == 34 * MINUTE_MS


def test_a_restore_settles_late_where_a_put_got_no_answer() -> None:
    restoring = Restoring()
    restoring.dynamo.plans.append(applied_then_lost("put", times=1))

    restoring.finish()

    assert "settles_at" in restoring.record


def test_a_restore_settles_at_once_where_each_call_has_ended() -> None:
    """Also one that was interrupted: its puts were answered."""
    restoring = Restoring()
    restoring.dynamo.plans.append(refuses(Throttled("slow down"), "put", times=1))
    with suppress(KeyboardInterrupt), restoring.call("first") as first:
        first.put(_ENTRY)
        raise KeyboardInterrupt

    restoring.finish()

    assert "settles_at" not in restoring.record


def test_a_call_that_begins_at_the_end_of_another_one_is_waited_for() -> None:
    """Between the last look at the record and the write that ends the copy."""
    restoring = Restoring()
    late = restoring.call("late")

    with restoring.call("first") as first:
        begins = meanwhile(late.__enter__, "update", times=1)
        restoring.dynamo.plans.append(begins)
        first.complete()

    assert "settles_at" in restoring.record


def test_an_end_whose_answer_was_lost_is_an_end() -> None:
    restoring = Restoring()
    with restoring.call("first") as first:
        restoring.dynamo.plans.append(applied_then_lost("update", times=1))
        first.complete()
    with pytest.raises(ServiceFailed, match="another call has copied everything"):
        restoring.call("second").__enter__()

    assert "copied_at" in restoring.record


def test_an_item_that_differs_is_refused() -> None:
    restoring = Restoring()
    restoring.dynamo.put(Put(LEDGER, {**_KEY, "delta": 6}))

    with (
        restoring.call("first") as first,
        pytest.raises(BadSetting, match="used before the restore ended"),
    ):
        first.put(_ENTRY)
