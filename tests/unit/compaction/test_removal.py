"""What a removal refuses, and what it leaves to a later call: on tables in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from countledger.compaction.compactor import Compactor
from countledger.compaction.regions import Regions
from countledger.compaction.removal import LedgerRemover
from countledger.compaction.removal_stage import Stage
from countledger.compaction.removals import Removals
from countledger.ledger import keys
from countledger.ledger.errors import AccessDenied, BadSetting
from countledger.ledger.limits import DAY_MS
from countledger.ledger.operations import Put
from countledger.producers.event import Event
from countledger.producers.recorder import Recorder
from countledger.producers.sender import Sender
from tests.unit.compaction.parts import COUNTERS, HOME, LEDGER, Stack, limit_of
from tests.unit.ledger.memory import HesitantDoor
from tests.unit.ledger.transactions import TransactingDoor

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.report import Report
    from countledger.ledger.errors import CountledgerError

COUNTER = "likes:post"


@dataclass
class Emptying:
    """A stack in memory whose counters are removed.

    Attributes:
        tidied: up to which moment what lies beside a counter was removed, call by call.
        unproven: why no total can be taken for its last word.
    """

    stack: Stack = field(default_factory=lambda: Stack(door=TransactingDoor(description={})))
    tidied: list[int] = field(default_factory=list)
    unproven: str | None = None

    def __post_init__(self) -> None:
        """Make the namespace."""
        self.stack.namespace("likes")

    @property
    def door(self) -> TransactingDoor:
        """Where all of it lies."""
        assert isinstance(self.stack.door, TransactingDoor)
        return self.stack.door

    def remover(self, compact: Callable[[str], Report] | None = None) -> LedgerRemover:
        """A process of its own."""
        clock, regions = self.stack.clock, self.regions()
        compactor = Compactor(regions, self.stack.namespaces, limit_of, clock=clock)
        return LedgerRemover(
            self.door,
            COUNTERS,
            regions,
            self.stack.namespaces,
            limit_of,
            compact or compactor.compact,
            lambda _: self.unproven,
            lambda _, before_ms: self.tidied.append(before_ms),
            clock,
        )

    def regions(self) -> Regions:
        """As the table says now."""
        return Regions(self.door, LEDGER, HOME, HOME, lambda _: self.door, self.stack.clock)

    def removals(self, remover: LedgerRemover, names: list[str]) -> Removals:
        """All counters of the namespace."""
        return Removals(remover, {}, lambda *_: None, lambda _: iter(names))

    def record(self, counter: str = COUNTER) -> None:
        """An entry, and the total that knows of it."""
        self.send(counter)
        self.stack.total(counter, updated_at=self.stack.clock.at_ms)

    def send(self, counter: str) -> None:
        """An entry that no total knows of yet."""
        clock = self.stack.clock
        sender = Sender(self.door, LEDGER, self.stack.namespaces, clock=clock)
        assert Recorder(sender, HOME, clock).record(Event(counter, 1)).status == "recorded"


def test_a_total_of_another_region_is_never_left_behind() -> None:
    """Totals are regional, and what is merged adds nothing: those elsewhere would stay for ever."""
    emptying = Emptying()
    emptying.record()
    marked = emptying.remover().remove(COUNTER)
    emptying.stack.clock.at_ms += 2 * DAY_MS
    assert not isinstance(emptying.door.description, Exception)
    emptying.door.description["Replicas"] = [{"RegionName": "b", "ReplicaStatus": "ACTIVE"}]

    with pytest.raises(BadSetting, match="its ledger is in other regions as well: b"):
        emptying.remover().remove(COUNTER)
    emptying.record("likes:other")
    with pytest.raises(BadSetting, match="its ledger is in other regions as well: b"):
        emptying.remover().remove("likes:other")

    assert marked.stage is Stage.MARKED
    assert emptying.remover().mark("likes:other") is None


def test_what_a_late_judge_left_is_tidied_before_the_name_is_forgotten() -> None:
    """Its records come behind the removal, for as long as the stream keeps them."""
    emptying = Emptying()
    emptying.record()
    clock = emptying.stack.clock
    stages: list[Stage] = []
    removed_ms = 0
    for _ in range(3):
        removed_ms = removed_ms if len(stages) > 1 else clock.at_ms
        stages.append(emptying.remover().remove(COUNTER).stage)
        clock.at_ms += 2 * DAY_MS

    assert stages == [Stage.MARKED, Stage.REMOVED, Stage.FORGOTTEN]
    assert emptying.tidied == [removed_ms, removed_ms]


def test_one_counter_that_cannot_be_read_stops_no_other() -> None:
    """It is left alone for the reason given, and the rest of its namespace goes on."""
    emptying = Emptying()
    names = [f"likes:{n}" for n in "abc"]
    for name in names:
        emptying.record(name)
    spoilt = {**keys.removal_key("likes:b"), "at": "yesterday"}
    emptying.door.put(Put(COUNTERS, spoilt))

    removals = emptying.removals(emptying.remover(), names).remove_all("likes")
    stages = {one.counter: (one.stage, one.detail) for one in removals}

    assert stages["likes:a"][0] is stages["likes:c"][0] is Stage.MARKED
    assert stages["likes:b"][0] is Stage.LEFT
    assert "yesterday" in stages["likes:b"][1]


@dataclass(frozen=True, slots=True)
class HesitantTransactingDoor(HesitantDoor, TransactingDoor):
    """Takes transactions, and begins each query with a page without items."""


def test_a_page_without_items_is_not_the_end_of_a_ledger() -> None:
    """An entry made behind the mark lies behind it: the counter is in use, and nothing goes."""
    emptying = Emptying(Stack(door=HesitantTransactingDoor(description={})))
    emptying.record()
    emptying.remover().remove(COUNTER)
    emptying.stack.clock.at_ms += 2 * DAY_MS
    emptying.send(COUNTER)

    assert emptying.remover().remove(COUNTER).stage is Stage.IN_USE
    assert emptying.door.get(COUNTERS, keys.total_key(COUNTER)) is not None


@pytest.mark.parametrize("error", [AccessDenied("no"), BadSetting("strong")])
def test_what_concerns_every_counter_stops_all(error: CountledgerError) -> None:
    """A right that is missing is no property of one counter."""
    emptying = Emptying()
    emptying.record()

    def compact(_: str) -> Report:
        raise error

    remover = emptying.remover(compact)
    remover.remove(COUNTER)
    emptying.stack.clock.at_ms += 2 * DAY_MS

    with pytest.raises(type(error)):
        list(emptying.removals(remover, [COUNTER]).remove_all("likes"))
