"""Several regions: every exact sum and every total right, whatever travels how and when."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from countledger.compaction.regions import Regions
from countledger.compaction.report import RunOutcome
from countledger.compaction.retire import Retire
from countledger.ledger.errors import WrongRegion
from countledger.producers.event import Event
from tests.regions.world import HOME, OTHERS, World, open_world

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def world(url: str) -> Iterator[World]:
    """Two regions."""
    with open_world(url, 2, seed=1) as world:
        yield world


def _finish(world: World, retire: Retire = Retire.TRANSACTION) -> None:
    """Heal what is cut and compact to the end: all is in the head, and every number right."""
    world.heal()
    everything = (1 << world.made) - 1
    for _ in range(10):
        world.replicator.catch_up()
        report = world.compactor(retire=retire).compact(world.counter)
        if report.outcome is RunOutcome.NOTHING:
            break
    assert report.outcome is RunOutcome.NOTHING
    world.replicator.catch_up()
    for region in world.regions:
        assert world.exact(region) == everything
        assert world.total(region) == everything
        assert world.entries_left(region) == 0


class Auditor:
    """Knows which entries each region has had, and reads now and then."""

    def __init__(self, world: World) -> None:
        self.world = world

    def arrived(self, region: str) -> int:
        """The entries that ever were visible there, as bits."""
        found = 0
        self.world.replicator.note(region)
        for record in self.world.records[region]:
            image = record["dynamodb"].get("NewImage", {})
            if image.get("counter", {}).get("S") == self.world.counter and "delta" in image:
                found |= int(image["delta"]["N"])
        return found

    def read(self, region: str) -> None:
        """Every entry visible when the read began is in the sum, and none twice."""
        before = self.arrived(region)
        found = self.world.exact(region)
        after = self.arrived(region)
        # Were one counted twice, a carry would set a bit that no entry has, or take one away.
        assert found & ~after == 0, f"{region}: {found:b} holds more than {after:b}"
        assert before & ~found == 0, f"{region}: {found:b} lacks some of {before:b}"


@dataclass
class Life:
    """What happens to a stack: one act after the other, each drawn by lot."""

    world: World
    auditor: Auditor
    retire: Retire

    def act(self) -> None:
        """One of them."""
        random = self.world.random
        acts = (self.write, self.write, self.compact, self.read, self.cut_or_heal)
        random.choice(acts)()

    def write(self) -> None:
        """Some entries, anywhere."""
        for _ in range(min(self.world.random.randrange(1, 6), 40 - self.world.made)):
            self.world.record(self._region())

    def compact(self) -> None:
        """A run of the compactor, with whatever happens between its calls."""
        with self._interleaved():
            self.world.compactor(retire=self.retire).compact(self.world.counter)

    def read(self) -> None:
        """An exact read, with arrivals between its calls."""
        with self._interleaved():
            self.auditor.read(self._region())

    def cut_or_heal(self) -> None:
        """Networks fail and are mended."""
        if self.world.random.random() < 0.5:
            self.world.cut(self._region())
        else:
            self.world.heal()

    def _region(self) -> str:
        return self.world.random.choice(self.world.regions)

    @contextmanager
    def _interleaved(self) -> Iterator[None]:
        self.world.interleaved = self._meanwhile
        try:
            yield
        finally:
            self.world.interleaved = None

    def _meanwhile(self) -> None:
        if self.world.random.random() < 0.4:
            self.world.replicator.step()
        if self.world.random.random() < 0.1:
            self.auditor.read(self._region())


@pytest.mark.parametrize("retire", list(Retire))
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_numbers_are_right_throughout(url: str, count: int, seed: int, retire: Retire) -> None:
    """Writers, a compactor, readers and replication in any order, partitions included."""
    with open_world(url, count, seed) as world:
        life = Life(world, Auditor(world), retire)

        for _ in range(14):
            life.act()
            for region in world.regions:
                life.auditor.read(region)
                assert world.total(region) == life.auditor.arrived(region)

        _finish(world, retire)


def test_a_region_that_is_cut_off_is_waited_for(world: World) -> None:
    """Nothing is deleted that it has not had, and its numbers stay its own; then all goes on."""
    (other,) = OTHERS[:1]
    seen = [world.record(HOME) for _ in range(3)]
    world.replicator.catch_up()
    world.cut(other)
    unseen = [world.record(HOME) for _ in range(3)]

    report = world.compactor(retire=Retire.TRANSACTION).compact(world.counter)

    assert report.outcome is RunOutcome.WAITING
    assert world.exact(HOME) == world.total(HOME) == sum(seen + unseen)
    assert world.exact(other) == world.total(other) == sum(seen)
    assert world.entries_left(other) == 3
    _finish(world)


def test_a_run_that_merges_nothing_says_that_entries_are_waited_for(world: World) -> None:
    """Nothing to do, and nothing that may be done yet, are not the same."""
    world.cut(OTHERS[0])
    for _ in range(3):
        world.record(HOME)

    report = world.compactor(retire=Retire.TRANSACTION).compact(world.counter)

    assert (report.outcome, report.merged) == (RunOutcome.WAITING, 0)
    _finish(world)


@pytest.mark.parametrize("at", [3, 6, 9, 12, 15, 18, 21, 24])
def test_a_region_cut_off_in_the_middle_keeps_its_numbers(world: World, at: int) -> None:
    """The way is cut behind a published head, or behind some deletions: readers skip the rest."""
    (other,) = OTHERS[:1]
    everything = sum(world.record(HOME) for _ in range(12))
    world.replicator.catch_up()
    steps = 0

    def cut_late() -> None:
        nonlocal steps
        steps += 1
        world.replicator.step()
        if steps == at:
            world.cut(other)

    world.interleaved = cut_late
    report = world.compactor(retire=Retire.DELETE).compact(world.counter)
    world.interleaved = None

    assert report.outcome is RunOutcome.WAITING
    assert [world.exact(HOME), world.exact(other)] == [everything, everything]
    assert [world.total(HOME), world.total(other)] == [everything, everything]
    _finish(world)


def test_the_last_writer_under_one_key_wins_everywhere(world: World) -> None:
    """Two regions use a bare key within the lag: one delta counts, in every sum and total."""
    (other,) = OTHERS[:1]
    for region, delta in ((HOME, 100), (other, 7)):
        world.recorder(region).record(Event(world.counter, delta, "same key"))
    assert [world.exact(HOME), world.exact(other)] == [100, 7]
    world.cut(other)
    world.compactor(retire=Retire.TRANSACTION).compact(world.counter)
    assert [world.exact(HOME), world.exact(other)] == [100, 7]
    world.heal()
    world.replicator.catch_up()

    assert [world.exact(HOME), world.exact(other)] == [7, 7]
    assert [world.total(HOME), world.total(other)] == [7, 7]
    report = world.compactor(retire=Retire.TRANSACTION).compact(world.counter)
    world.replicator.catch_up()

    assert report.merged == 1
    assert [world.exact(HOME), world.exact(other)] == [7, 7]
    assert [world.total(HOME), world.total(other)] == [7, 7]


def test_quick_changes_may_be_merged(world: World) -> None:
    """A region that never sees the generations in between has the same numbers."""
    (other,) = OTHERS[:1]
    everything = sum(world.record(HOME) for _ in range(9))
    world.replicator.catch_up()
    compactor = world.compactor(retire=Retire.TRANSACTION, covers_max=3)
    while compactor.regions.hold_lease():
        world.replicator.catch_up()
    world.cut(other)
    assert compactor.compact(world.counter).outcome is RunOutcome.WAITING
    world.heal()
    waiting = world.replicator.under_way[HOME, other]
    heads = [one for one in waiting if one.key[1] == "s#head"]
    assert heads

    _finish(world)

    assert world.exact(other) == everything


def test_only_the_home_region_compacts(world: World) -> None:
    """Elsewhere it is refused, and told where to go."""
    with pytest.raises(WrongRegion, match=f"home region {HOME}"):
        Regions.of(world.connections[OTHERS[0]])


@pytest.mark.parametrize("status", ["CREATING", "DELETING", "INACCESSIBLE_ENCRYPTION_CREDENTIALS"])
def test_a_replica_that_is_not_in_service_is_waited_for(world: World, status: str) -> None:
    """It may be given entries that were merged, or miss a head: nothing is merged meanwhile."""
    world.record(HOME)
    world.replicator.catch_up()
    world.replica_status[OTHERS[0]] = status

    report = world.compactor(retire=Retire.TRANSACTION).compact(world.counter)

    assert report.outcome is RunOutcome.WAITING
    assert OTHERS[0] in report.detail
    assert world.entries_left(HOME) == 1
    world.replica_status[OTHERS[0]] = "ACTIVE"
    _finish(world)
