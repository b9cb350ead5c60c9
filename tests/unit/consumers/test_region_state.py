"""A region whose totals are being made is not read, and alerts of nothing."""

from dataclasses import replace

import pytest

from countledger.consumers.rankings import Rankings
from countledger.consumers.region_state import CACHED_MS, Phase, RegionStateStore
from countledger.consumers.snapshot import SnapshotReader
from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.connection import Connection
from countledger.ledger.errors import CorruptItem, RegionRebuilding
from countledger.ledger.namespace import Namespaces
from countledger.ledger.operations import Put
from countledger.ledger.settings import Settings
from tests.unit.alerts.evaluating import TABLE, World, history, rule
from tests.unit.ledger.clocks import NOW_MS, ManualClock
from tests.unit.ledger.memory import MemoryClient

COUNTERS = "counters"


def _store(dynamo: MemoryClient, clock: ManualClock | None = None) -> RegionStateStore:
    return RegionStateStore(dynamo, COUNTERS, clock or ManualClock())


def test_a_region_that_never_joined_is_ready_and_read_once() -> None:
    dynamo = MemoryClient()
    store = _store(dynamo)

    assert not store.is_rebuilding()
    store.check()
    assert len(dynamo.calls) == 1


def test_totals_are_refused_until_the_region_is_ready() -> None:
    dynamo, clock = MemoryClient(), ManualClock()
    store = _store(dynamo, clock)
    store.write(Phase.REBUILDING)
    totals = TotalsReader(dynamo, COUNTERS, store)
    rankings = Rankings(dynamo, COUNTERS, Namespaces(dynamo, "ledger", "r", "r"), region=store)

    clock.at_ms += 90_000
    for read in (
        lambda: totals.read("a:b"),
        lambda: totals.read_many(["a:b"]),
        lambda: SnapshotReader(dynamo, COUNTERS, region=store).read(["a:b"]),
        lambda: rankings.top("a"),
    ):
        with pytest.raises(RegionRebuilding, match=r"for 90 s.*incomplete"):
            read()
    # What makes the totals reads them in any state.
    assert TotalsReader(dynamo, COUNTERS).read("a:b").value == 0


def test_the_state_is_read_again_each_minute_until_it_is_ready() -> None:
    dynamo, clock = MemoryClient(), ManualClock()
    store = _store(dynamo, clock)
    store.write(Phase.REBUILDING)
    assert store.is_rebuilding()
    _store(dynamo, clock).write(Phase.READY)

    clock.at_ms = NOW_MS + CACHED_MS - 1
    assert store.is_rebuilding()
    clock.at_ms += 1
    reads = len(dynamo.calls)
    assert not store.is_rebuilding()
    clock.at_ms += 10 * CACHED_MS
    assert not store.is_rebuilding()
    assert len(dynamo.calls) == reads + 1


def test_a_state_that_is_none_is_named() -> None:
    dynamo = MemoryClient()
    dynamo.put(Put(COUNTERS, {**keys.region_state_key(), "state": "odd", "since": NOW_MS}))

    with pytest.raises(CorruptItem, match="'odd', no state of a region"):
        _store(dynamo).check()


def test_nothing_is_evaluated_while_totals_are_made() -> None:
    """A total that is made passes each threshold below it; nothing happened, so nobody is told."""
    world = World([rule(10)])
    state = RegionStateStore(world.dynamo, TABLE, world.clock)
    state.write(Phase.REBUILDING)
    evaluator = replace(world.evaluator(), region=state)

    outcome = evaluator.apply(history([15]), "stream")

    assert (outcome.records, outcome.retry_from, world.alerts) == (1, None, [])
    state.write(Phase.READY)
    world.clock.at_ms += CACHED_MS
    evaluator.apply(history([15]), "stream")
    assert world.alerts == [(10, 1)]


def test_the_home_region_is_not_asked() -> None:
    """It never joined: its reads of totals cost what they did."""
    home = Settings(counters_table=COUNTERS, home_region="eu-west-1")
    unknown = Settings(counters_table=COUNTERS, home_region=None)

    assert RegionStateStore.of(Connection.open(home, region="eu-west-1")) is None
    for settings in (home, unknown):
        store = RegionStateStore.of(Connection.open(settings, region="us-east-1"))
        assert store is not None
        assert store.table == COUNTERS
