"""A region whose totals are being made is not read, and alerts of nothing."""

from dataclasses import replace

import pytest

from countledger.consumers.rankings import Rankings
from countledger.consumers.region_state import CACHED_MS, Phase, RegionStateStore
from countledger.consumers.totals import SnapshotReader, TotalsReader
from countledger.ledger import keys
from countledger.ledger.errors import CorruptItem, RegionRebuilding
from countledger.ledger.operations import Delete, Put
from tests.unit.alerts.evaluating import TABLE, World, history, rule
from tests.unit.connections import UnitConnection, connection_on
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient, sent_twice

COUNTERS = "counters"


def _elsewhere(dynamo: MemoryClient, clock: ManualClock | None = None) -> UnitConnection:
    """A connection to a region that has joined."""
    return connection_on(dynamo, clock, region="us-east-1")


def _store(dynamo: MemoryClient, clock: ManualClock | None = None) -> RegionStateStore:
    return RegionStateStore(_elsewhere(dynamo, clock))


def test_a_region_that_never_joined_is_ready_and_read_once() -> None:
    dynamo = MemoryClient()
    store = _store(dynamo)

    assert not store.is_rebuilding()
    store.check()
    assert len(dynamo.calls) == 1


def test_totals_are_refused_until_the_region_is_ready() -> None:
    dynamo, clock = MemoryClient(), ManualClock()
    store = _store(dynamo, clock)
    store.write(Phase.REBUILDING, store.read())
    here = _elsewhere(dynamo, clock)
    totals, rankings = TotalsReader(here), Rankings(here, store)

    clock.at_ms += 90_000
    for read in (
        lambda: totals.read("a:b"),
        lambda: totals.read_many(["a:b"]),
        lambda: SnapshotReader(here).read(["a:b"]),
        lambda: rankings.top("a"),
    ):
        with pytest.raises(RegionRebuilding, match=r"for 90 s.*incomplete"):
            read()
    # What makes the totals reads them in any state.
    assert TotalsReader(here, of_ledgers=True).read("a:b").value == 0


def test_the_state_is_read_again_each_minute_until_it_is_ready() -> None:
    dynamo, clock = MemoryClient(), ManualClock()
    store = _store(dynamo, clock)
    store.write(Phase.REBUILDING, store.read())
    assert store.is_rebuilding()
    other = _store(dynamo, clock)
    other.write(Phase.READY, other.read())

    clock.at_ms = NOW_MS + CACHED_MS - 1
    assert store.is_rebuilding()
    clock.at_ms += 1
    reads = len(dynamo.calls)
    assert not store.is_rebuilding()
    clock.at_ms += 10 * CACHED_MS
    assert not store.is_rebuilding()
    assert len(dynamo.calls) == reads + 1


def test_a_region_that_joined_again_is_not_marked_ready_by_the_run_before() -> None:
    """Its totals were proven in the joining before: of this one nothing is proven."""
    dynamo = MemoryClient()
    store = _store(dynamo)
    store.write(Phase.REBUILDING, store.read())
    suspended = store.read()
    dynamo.delete(Delete(COUNTERS, keys.region_state_key()))  # the region leaves, with its table
    store.write(Phase.REBUILDING, store.read())

    assert not store.write(Phase.READY, suspended)

    assert store.read().phase is Phase.REBUILDING
    assert store.write(Phase.READY, store.read())
    assert store.read().phase is Phase.READY


def test_a_ready_region_is_not_marked_rebuilding_by_a_run_that_saw_no_state() -> None:
    dynamo = MemoryClient()
    store = _store(dynamo)
    suspended = store.read()
    store.write(Phase.REBUILDING, suspended)
    store.write(Phase.READY, store.read())

    assert not store.write(Phase.REBUILDING, suspended)

    assert store.read().phase is Phase.READY


def test_a_write_whose_answer_was_lost_is_known_by_its_id() -> None:
    """The SDK sends it again: its condition fails, and the state is this write's own."""
    dynamo = MemoryClient()
    store = _store(dynamo)
    dynamo.plans.append(sent_twice("put"))

    assert store.write(Phase.REBUILDING, store.read())
    assert store.write(Phase.READY, store.read())


def test_a_state_that_is_none_is_named() -> None:
    dynamo = MemoryClient()
    dynamo.put(Put(COUNTERS, {**keys.region_state_key(), "state": "odd", "since": NOW_MS}))

    with pytest.raises(CorruptItem, match="'odd', no state of a region"):
        _store(dynamo).check()


def test_nothing_is_evaluated_while_totals_are_made() -> None:
    """A total that is made passes each threshold below it; nothing happened, so nobody is told."""
    world = World([rule(10)])
    there = connection_on(world.dynamo, world.clock, region="us-east-1", counters_table=TABLE)
    state = RegionStateStore(there)
    state.write(Phase.REBUILDING, state.read())
    evaluator = replace(world.evaluator(), region=state)

    outcome = evaluator.apply(history([15]), "stream")

    assert (outcome.records, outcome.retry_from, world.alerts) == (1, None, [])
    state.write(Phase.READY, state.read())
    world.clock.at_ms += CACHED_MS
    evaluator.apply(history([15]), "stream")
    assert world.alerts == [(10, 1)]


@pytest.mark.parametrize(
    ("region", "home", "reads"),
    [("eu-west-1", "eu-west-1", 0), ("us-east-1", "eu-west-1", 1), ("us-east-1", None, 1)],
)
def test_the_home_region_is_not_asked(region: str, home: str | None, reads: int) -> None:
    """It never joined: its reads of totals cost what they did."""
    dynamo = MemoryClient()
    store = RegionStateStore(connection_on(dynamo, region=region, home_region=home))

    assert not store.is_rebuilding()
    assert len(dynamo.calls) == reads
