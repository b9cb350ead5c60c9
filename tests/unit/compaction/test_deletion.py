"""What a deletion refuses, and what it leaves to a later call: on tables in memory."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from countledger.compaction import deletion
from countledger.compaction.compactor import Compactor
from countledger.compaction.deletion import DeletionMark, DeletionStage, plan_deletion
from countledger.compaction.deletions import Deletions
from countledger.compaction.ledger_deletion import LedgerDeleter
from countledger.compaction.regions import Regions
from countledger.ledger import keys
from countledger.ledger.errors import (
    AccessDenied,
    BadSetting,
    ConditionFailed,
    TransactionCancelled,
)
from countledger.ledger.head import Head, encode_head
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS
from countledger.ledger.operations import Put
from countledger.producers.event import Event
from countledger.producers.recorder import Recorder
from countledger.producers.sender import Sender
from tests.unit.compaction.parts import COUNTERS, HOME, LEDGER, Stack, limit_of
from tests.unit.ledger.memory import MemoryClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.report import CompactionReport
    from countledger.ledger.errors import CountledgerError
    from countledger.ledger.operations import Write

COUNTER = "likes:post"


@dataclass
class Emptying:
    """A stack in memory whose counters are deleted.

    Attributes:
        tidied: up to which moment what lies beside a counter was deleted, call by call.
        unproven: why no total can be taken for its last word.
        stays: what lies beside a counter and is younger.
    """

    stack: Stack = field(default_factory=lambda: Stack(dynamo=MemoryClient(description={})))
    tidied: list[int] = field(default_factory=list)
    unproven: str | None = None
    stays: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the namespace."""
        self.stack.namespace("likes")

    @property
    def dynamo(self) -> MemoryClient:
        """Where all of it lies."""
        assert isinstance(self.stack.dynamo, MemoryClient)
        return self.stack.dynamo

    def deleter(self, compact: Callable[[str], CompactionReport] | None = None) -> LedgerDeleter:
        """A process of its own."""
        clock, regions = self.stack.clock, self.regions()
        compactor = Compactor(regions, self.stack.namespaces, limit_of, clock=clock)
        return LedgerDeleter(
            self.dynamo,
            COUNTERS,
            regions,
            self.stack.namespaces,
            limit_of,
            compact or compactor.compact,
            lambda _: self.unproven,
            self._tidy,
            clock,
        )

    def _tidy(self, _: str, before_ms: int) -> list[str]:
        self.tidied.append(before_ms)
        return list(self.stays)

    def regions(self) -> Regions:
        """As the table says now."""
        return Regions(self.dynamo, LEDGER, HOME, HOME, lambda _: self.dynamo, self.stack.clock)

    def deletions(self, deleter: LedgerDeleter, names: list[str]) -> Deletions:
        """All counters of the namespace."""
        return Deletions(
            deleter, {}, lambda *_: None, lambda _: iter(names), lambda _: lambda: None
        )

    def record(self, counter: str = COUNTER) -> None:
        """An entry, and the total that knows of it."""
        self.send(counter)
        self.stack.total(counter, updated_at=self.stack.clock.at_ms)

    def send(self, counter: str) -> None:
        """An entry that no total knows of yet."""
        clock = self.stack.clock
        sender = Sender(self.dynamo, LEDGER, self.stack.namespaces, clock=clock)
        assert Recorder(sender, HOME, clock).record(Event(counter, 1)).status == "recorded"


def test_a_total_of_another_region_is_never_left_behind() -> None:
    """Totals are regional, and what is merged adds nothing: those elsewhere would stay for ever."""
    emptying = Emptying()
    emptying.record()
    marked = emptying.deleter().delete(COUNTER)
    emptying.stack.clock.at_ms += 2 * DAY_MS
    assert not isinstance(emptying.dynamo.description, Exception)
    emptying.dynamo.description["Replicas"] = [{"RegionName": "b", "ReplicaStatus": "ACTIVE"}]

    with pytest.raises(BadSetting, match="its ledger has replicas in b"):
        emptying.deleter().delete(COUNTER)
    emptying.record("likes:other")
    with pytest.raises(BadSetting, match="its ledger has replicas in b"):
        emptying.deleter().delete("likes:other")

    assert marked.stage is DeletionStage.MARKED
    assert emptying.deleter().mark("likes:other") is None


def test_what_a_late_evaluator_left_is_tidied_before_the_name_is_forgotten() -> None:
    """Its records come behind the deletion, for as long as the stream keeps them."""
    emptying = Emptying()
    emptying.record()
    clock = emptying.stack.clock
    stages: list[DeletionStage] = []
    deleted_ms = 0
    for _ in range(3):
        deleted_ms = deleted_ms if len(stages) > 1 else clock.at_ms
        stages.append(emptying.deleter().delete(COUNTER).stage)
        clock.at_ms += 2 * DAY_MS

    assert stages == [DeletionStage.MARKED, DeletionStage.DELETED, DeletionStage.FORGOTTEN]
    # Clocks, the wait of a membership, the life of a request, and a whole second.
    assert emptying.tidied == [deleted_ms - MINUTE_MS - MINUTE_MS - 15 * MINUTE_MS - 1_000] * 2


def test_one_counter_that_cannot_be_read_stops_no_other() -> None:
    """It is left alone for the reason given, and the rest of its namespace goes on."""
    emptying = Emptying()
    names = [f"likes:{n}" for n in "abc"]
    for name in names:
        emptying.record(name)
    corrupt = {**keys.deletion_key("likes:b"), "id": "m", "at": "yesterday"}
    emptying.dynamo.put(Put(COUNTERS, corrupt))

    deletions = emptying.deletions(emptying.deleter(), names).delete_all("likes")
    stages = {one.counter: (one.stage, one.detail) for one in deletions}

    assert stages["likes:a"][0] is stages["likes:c"][0] is DeletionStage.MARKED
    assert stages["likes:b"][0] is DeletionStage.SKIPPED
    assert "yesterday" in stages["likes:b"][1]


def test_a_page_without_items_is_not_the_end_of_a_ledger() -> None:
    """An entry made behind the mark lies behind it: the counter is in use, and nothing goes."""
    emptying = Emptying(Stack(dynamo=MemoryClient(hesitant=True, description={})))
    emptying.record()
    emptying.deleter().delete(COUNTER)
    emptying.stack.clock.at_ms += 2 * DAY_MS
    emptying.send(COUNTER)

    assert emptying.deleter().delete(COUNTER).stage is DeletionStage.IN_USE
    assert emptying.dynamo.get(COUNTERS, keys.total_key(COUNTER)) is not None


@pytest.mark.parametrize("error", [AccessDenied("no"), BadSetting("strong")])
def test_what_concerns_every_counter_stops_all(error: CountledgerError) -> None:
    """A right that is missing is no property of one counter."""
    emptying = Emptying()
    emptying.record()

    def compact(_: str) -> CompactionReport:
        raise error

    deleter = emptying.deleter(compact)
    deleter.delete(COUNTER)
    emptying.stack.clock.at_ms += 2 * DAY_MS

    with pytest.raises(type(error)):
        list(emptying.deletions(deleter, [COUNTER]).delete_all("likes"))


def test_what_was_made_behind_the_mark_stops_a_deletion_also_once_it_is_merged() -> None:
    """No entry of it is left by then; the head tells when the newest was made."""
    emptying = Emptying()
    emptying.record()
    emptying.deleter().delete(COUNTER)
    emptying.stack.clock.at_ms += 1
    emptying.record()
    emptying.stack.clock.at_ms += 2 * DAY_MS

    deletion = emptying.deleter().delete(COUNTER)

    assert deletion.stage is DeletionStage.IN_USE
    entries = [one for one in emptying.dynamo.items(LEDGER) if one["entry"].startswith("e#")]
    assert entries == []
    assert emptying.dynamo.get(COUNTERS, keys.total_key(COUNTER)) is not None


@pytest.mark.parametrize(
    ("after_ms", "stage"), [(0, DeletionStage.WAITING), (1, DeletionStage.DELETED)]
)
def test_a_deletion_waits_until_no_record_of_its_total_can_come_again(
    after_ms: int, stage: DeletionStage
) -> None:
    """For 30 hours since it last moved, and not only since the mark: its watermarks go with it."""
    emptying = Emptying()
    emptying.record()
    marked = emptying.deleter().delete(COUNTER)
    moved_ms = emptying.stack.clock.at_ms + 20 * HOUR_MS
    emptying.stack.total(COUNTER, updated_at=moved_ms)
    emptying.stack.clock.at_ms = moved_ms + 30 * HOUR_MS + MINUTE_MS + after_ms

    deletion = emptying.deleter().delete(COUNTER)

    assert marked.next_at_ms is not None
    assert marked.next_at_ms < emptying.stack.clock.at_ms
    assert deletion.stage is stage


def test_a_counter_whose_entries_no_total_knows_of_is_marked() -> None:
    """It can be deleted 30 hours later, for no record of a total is older than the mark."""
    emptying = Emptying()
    emptying.send(COUNTER)
    marked_ms = emptying.stack.clock.at_ms

    marked = emptying.deleter().delete(COUNTER)

    assert marked.stage is DeletionStage.MARKED
    assert marked.next_at_ms == marked_ms + 30 * HOUR_MS + MINUTE_MS + 1


def _planned(
    emptying: Emptying, head: Head, *, total: bool
) -> tuple[DeletionMark, tuple[Write, ...]]:
    """A deletion as it is planned, of a counter whose head is stored."""
    mark = DeletionMark(counter=COUNTER, id="mark", at_ms=1)
    emptying.dynamo.put(deletion.mark_of(COUNTERS, COUNTER, mark.id, mark.at_ms))
    if head.generation:
        emptying.dynamo.put(Put(LEDGER, encode_head(COUNTER, head)))
    item = emptying.stack.total(COUNTER) if total else None
    return mark, plan_deletion((LEDGER, COUNTERS), mark, head, item, 2)


_HEAD = Head(generation=4, run="run", incarnation="first", sum=5)


@pytest.mark.parametrize(
    ("name", "value", "goes"),
    [
        ("generation", 4, True),
        ("generation", 5, False),
        ("run", "another run", False),
    ],
)
def test_the_numbers_go_only_with_the_head_that_was_read(
    name: str, value: object, *, goes: bool
) -> None:
    """Its generation alone does not identify it."""
    emptying = Emptying()
    _, writes = _planned(emptying, _HEAD, total=True)
    emptying.dynamo.tables[LEDGER][COUNTER, keys.HEAD][name] = value

    with nullcontext() if goes else pytest.raises(TransactionCancelled):
        emptying.dynamo.transact(writes, "token")

    head = emptying.dynamo.get(LEDGER, keys.head_key(COUNTER)) or {}
    assert head["sum"] == (0 if goes else 5)
    assert (emptying.dynamo.get(COUNTERS, keys.total_key(COUNTER)) is None) is goes


@pytest.mark.parametrize("read", [True, False], ids=["moved", "made"])
def test_a_total_that_came_or_moved_since_it_was_read_stays(*, read: bool) -> None:
    """A total that was absent must be absent still: an entry has arrived."""
    emptying = Emptying()
    _, writes = _planned(emptying, _HEAD, total=read)
    emptying.stack.total(COUNTER, version=7)

    with pytest.raises(TransactionCancelled):
        emptying.dynamo.transact(writes, "token")

    assert emptying.dynamo.get(COUNTERS, keys.total_key(COUNTER)) is not None


def test_a_mark_that_another_deletion_made_is_not_this_one() -> None:
    """It was taken off and made again in the same millisecond: nothing goes, nothing is undone."""
    emptying = Emptying()
    mark, writes = _planned(emptying, _HEAD, total=True)
    again = deletion.mark_of(COUNTERS, COUNTER, "another", mark.at_ms)
    emptying.dynamo.put(replace(again, condition=None))

    with pytest.raises(TransactionCancelled):
        emptying.dynamo.transact(writes, "token")
    for write in (deletion.cancel_of(COUNTERS, mark), deletion.unmark_of(COUNTERS, mark)):
        with pytest.raises(ConditionFailed):
            emptying.dynamo.delete(write)
    with pytest.raises(ConditionFailed):
        emptying.dynamo.update(deletion.tidied_of(COUNTERS, mark))
