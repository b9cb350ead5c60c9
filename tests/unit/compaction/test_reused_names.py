"""A name that is used again while its deletion goes on: nothing is lost, doubled or taken along."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from countledger.compaction.compactor import Compactor
from countledger.compaction.deletion import DeletionStage
from countledger.compaction.report import CompactionStep, RunOutcome, Verb
from countledger.compaction.retire import Retire
from countledger.consumers.groups import Groups
from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.before_send import leave
from countledger.ledger.entry import Entry
from countledger.ledger.errors import BadSetting, ServiceFailed
from countledger.ledger.exact import ExactReader
from countledger.ledger.head import decode_head
from countledger.ledger.ids import new_id
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS
from countledger.producers.event import Event
from countledger.producers.ingest.late import LateStatus, late_status
from countledger.producers.recorder import Recorder
from countledger.producers.sender import Sender
from tests.unit.compaction.parts import COUNTERS, HOME, LEDGER, Stack, limit_of
from tests.unit.compaction.test_deletion import COUNTER, Emptying
from tests.unit.ledger.memory import MemoryClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Delete, Put, Query, Scan, Write

_DELTAS = (1, 4, 16)
_SUM = sum(_DELTAS)


class _Stopped(BaseException):
    """The process ends here."""


@dataclass(frozen=True, slots=True)
class InterruptedClient(MemoryClient):
    """A client at which somebody else acts at a chosen moment, once.

    Attributes:
        after_query: acts once a query of entries was answered in full.
        before_head: acts before a head is put.
        before_write: acts before a put or a transaction leaves.
        before_delete: acts before an item of that sort key is deleted.
    """

    after_query: list[Callable[[], object]] = field(default_factory=list)
    before_head: list[Callable[[], object]] = field(default_factory=list)
    before_write: list[Callable[[], object]] = field(default_factory=list)
    before_delete: dict[str, Callable[[], object]] = field(default_factory=dict)

    def pages(self, read: Query | Scan) -> Iterator[list[Item]]:
        """What matches; then somebody acts."""
        yield from MemoryClient.pages(self, read)
        if self.after_query:
            self.after_query.pop()()

    def put(self, write: Put) -> None:
        """Somebody acts; then the write arrives."""
        self._leave()
        if self.before_head and write.item.get("entry") == keys.HEAD:
            self.before_head.pop()()
        MemoryClient.put(self, write)

    def delete(self, write: Delete) -> None:
        """Somebody acts; then the deletion arrives."""
        if act := self.before_delete.pop(str(write.key.get("entry") or write.key["part"]), None):
            act()
        leave()
        MemoryClient.delete(self, write)

    def transact(self, writes: Sequence[Write], token: str) -> bool:
        """All or nothing."""
        self._leave()
        return MemoryClient.transact(self, writes, token)

    def _leave(self) -> None:
        if self.before_write:
            self.before_write.pop()()
        leave()


@dataclass
class Reusing(Emptying):
    """A counter whose name is used again after its numbers were deleted."""

    stack: Stack = field(default_factory=lambda: Stack(dynamo=InterruptedClient(description={})))

    @property
    def interrupted(self) -> InterruptedClient:
        """The same client."""
        assert isinstance(self.stack.dynamo, InterruptedClient)
        return self.stack.dynamo

    def use(self, *deltas: int) -> None:
        """Entries, one after the other."""
        clock = self.stack.clock
        sender = Sender(self.dynamo, LEDGER, self.stack.namespaces, clock=clock)
        for delta in deltas:
            clock.at_ms += 1
            receipt = Recorder(sender, HOME, clock).record(Event(COUNTER, delta))
            assert receipt.status == "recorded"

    def empty(self, *, with_entries: bool = True) -> None:
        """The first two calls, over a counter that had entries, or a total of zeros alone."""
        if with_entries:
            self.use(*_DELTAS)
        self.stack.total(COUNTER, updated_at=self.stack.clock.at_ms)
        stages = []
        for _ in range(2):
            stages.append(self.deleter().delete(COUNTER).stage)
            self.stack.clock.at_ms += 2 * DAY_MS
        assert stages == [DeletionStage.MARKED, DeletionStage.DELETED]

    def forget(self) -> None:
        """The third call."""
        assert self.deleter().delete(COUNTER).stage is DeletionStage.FORGOTTEN

    def compactor(self, covers_max: int = 300) -> Compactor:
        """A run's compactor."""
        namespaces, clock = self.stack.namespaces, self.stack.clock
        regions = self.regions()
        return Compactor(regions, namespaces, limit_of, clock=clock, covers_max=covers_max)

    def exact(self) -> ExactReader:
        """A reader."""
        return ExactReader(self.dynamo, LEDGER)


@pytest.mark.parametrize(
    "with_entries", [True, False], ids=["generations go back", "one generation on"]
)
def test_an_exact_read_across_the_third_call_starts_over(*, with_entries: bool) -> None:
    """It saw the entries of the new counter, and then a head of that, which has them in its sum."""
    reusing = Reusing()
    reusing.empty(with_entries=with_entries)
    reusing.use(*_DELTAS)
    reusing.stack.clock.at_ms += 2 * DAY_MS

    def act() -> None:
        reusing.forget()
        assert reusing.compactor().compact(COUNTER).outcome is RunOutcome.MERGED

    reusing.interrupted.after_query.append(act)

    assert reusing.exact().read(COUNTER).sum == _SUM


def test_a_run_that_paused_publishes_over_no_head_of_another_run() -> None:
    """Its generation came again: the head that lies there is another one, of the new counter."""
    reusing = Reusing()
    reusing.empty()
    reusing.use(*_DELTAS)
    reusing.stack.clock.at_ms += 2 * DAY_MS
    empty = reusing.dynamo.get(LEDGER, keys.head_key(COUNTER)) or {}

    def stop_at_the_same_generation(step: CompactionStep) -> None:
        if step.verb is Verb.SELECT and step.generation == empty["generation"]:
            raise _Stopped

    def act() -> None:
        reusing.forget()
        with pytest.raises(_Stopped):
            reusing.compactor(covers_max=1).compact(COUNTER, on_step=stop_at_the_same_generation)

    reusing.interrupted.before_head.append(act)
    report = reusing.compactor(covers_max=1).compact(COUNTER)

    assert reusing.exact().read(COUNTER).sum == _SUM
    assert report.outcome is RunOutcome.OVERTAKEN


def test_the_head_of_the_counter_that_uses_the_name_again_is_not_forgotten() -> None:
    """It took the empty head's place: its sum and its covers are in it."""
    reusing = Reusing()
    reusing.empty()
    reusing.use(*_DELTAS)
    reusing.stack.clock.at_ms += 2 * DAY_MS
    reusing.compactor().compact(COUNTER)

    reusing.forget()

    assert reusing.exact().read(COUNTER).sum == _SUM


@pytest.mark.parametrize(("hours", "again"), [(11, False), (13, True)])
def test_an_exact_read_that_took_half_a_day_starts_over(hours: int, *, again: bool) -> None:
    """From "no head" to the first one there may have been a whole deletion."""
    reusing = Reusing()
    reusing.use(*_DELTAS)
    clock = reusing.stack.clock
    reusing.interrupted.after_query.append(lambda: clock.sleep_ms(hours * HOUR_MS))

    reader = ExactReader(reusing.dynamo, LEDGER, clock)
    found = reader.read(COUNTER)

    assert (found.sum, found.read_units) == (_SUM, 4.0 if again else 2.0)


@pytest.mark.parametrize("retire", list(Retire))
def test_a_strongly_consistent_table_is_merged_by_single_deletes_alone(retire: Retire) -> None:
    """It takes no transactions: a run by them is refused before it writes anything."""
    reusing = Reusing()
    reusing.use(*_DELTAS)
    reusing.stack.clock.at_ms += 2 * DAY_MS
    assert not isinstance(reusing.dynamo.description, Exception)
    reusing.dynamo.description["MultiRegionConsistency"] = "STRONG"

    report = replace(reusing.compactor(), retire=retire).compact(COUNTER)

    refused = retire is Retire.TRANSACTION
    assert report.outcome is (RunOutcome.FAILED if refused else RunOutcome.MERGED)
    assert isinstance(report.error, BadSetting) is refused
    assert (reusing.dynamo.get(LEDGER, keys.head_key(COUNTER)) is None) is refused


@pytest.mark.parametrize("late", [False, True])
def test_a_deletion_that_stood_still_is_not_sent_under_an_old_time(*, late: bool) -> None:
    """Its empty head would be forgotten before a day is over."""
    reusing = Reusing()
    reusing.use(*_DELTAS)
    clock = reusing.stack.clock
    reusing.stack.total(COUNTER, updated_at=clock.at_ms)
    reusing.deleter().delete(COUNTER)
    clock.at_ms += 2 * DAY_MS
    report = reusing.compactor().compact(COUNTER)
    waited_ms = HOUR_MS + late
    reusing.interrupted.before_write.append(lambda: clock.sleep_ms(waited_ms))

    assert report.outcome is RunOutcome.MERGED
    if late:
        with pytest.raises(ServiceFailed, match="was suspended"):
            reusing.deleter().delete(COUNTER)
    deleted = reusing.deleter().delete(COUNTER)

    assert deleted.stage is DeletionStage.DELETED
    assert deleted.next_at_ms is not None
    assert deleted.next_at_ms - clock.at_ms >= DAY_MS - HOUR_MS


@pytest.mark.parametrize("late", [False, True])
def test_a_membership_leaves_soon_after_the_time_that_it_carries(*, late: bool) -> None:
    """Later it could pass for one of a counter that was deleted in between."""
    reusing = Reusing()
    clock = reusing.stack.clock
    groups = Groups(TotalsReader(reusing.dynamo, COUNTERS), reusing.stack.namespaces, clock)
    groups.add("group", [])
    reusing.interrupted.before_write.append(lambda: clock.sleep_ms(MINUTE_MS + late))

    with pytest.raises(ServiceFailed, match="again") if late else nullcontext():
        groups.add("group", [COUNTER])

    assert [one.group for one in groups.memberships.of(COUNTER)] == ([] if late else ["group"])


def test_what_expired_is_not_said_to_be_uncounted_while_the_empty_head_is_there() -> None:
    """It may have been counted and deleted; what is younger than the mark was not."""
    reusing = Reusing()
    reusing.empty()
    head = decode_head(reusing.dynamo.get(LEDGER, keys.head_key(COUNTER)))
    assert head.to_at_ms is not None
    entries = [
        Entry(counter=COUNTER, id=new_id(at_ms), delta=1, at_ms=at_ms, origin="r")
        for at_ms in (head.to_at_ms, head.to_at_ms + 1)
    ]

    found = [late_status(entry, None, head) for entry in entries]

    assert found == [LateStatus.UNKNOWN, LateStatus.UNCOUNTED]


@pytest.mark.parametrize("retire", Retire)
@pytest.mark.parametrize(("hours", "outcome"), [(11, RunOutcome.MERGED), (13, RunOutcome.FAILED)])
def test_a_run_that_slept_for_half_a_day_deletes_nothing(
    retire: Retire, hours: int, outcome: RunOutcome
) -> None:
    """By then an entry of the next counter may have that key: one that expired and was resent."""
    reusing = Reusing()
    reusing.use(*_DELTAS)
    clock = reusing.stack.clock
    clock.at_ms += 2 * DAY_MS

    def sleep() -> None:
        clock.at_ms += hours * HOUR_MS

    def at_retire(step: CompactionStep) -> None:
        if step.verb is Verb.RETIRE:
            first = min(item["entry"] for item in entries())
            if retire is Retire.DELETE:
                reusing.interrupted.before_delete[first] = sleep
            else:
                reusing.interrupted.before_write.append(sleep)

    def entries() -> list[Item]:
        return [one for one in reusing.dynamo.items(LEDGER) if one["entry"].startswith("e#")]

    run = replace(reusing.compactor(), retire=retire, workers=1)
    report = run.compact(COUNTER, on_step=at_retire)

    assert report.outcome is outcome
    assert len(entries()) == (0 if outcome is RunOutcome.MERGED else len(_DELTAS))
