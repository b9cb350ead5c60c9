"""The home region, its lease, another home, and a region that is lost, on an engine."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from time import sleep
from uuid import uuid4

import pytest

from countledger.compaction.plan import limits_by
from countledger.compaction.regions import NotReady, Promotion, Regions, Survey
from countledger.compaction.report import Retire, RunOutcome
from countledger.compaction.salvage import LedgerCopy, Salvage, SalvageFate, SalvageReport
from countledger.ledger import keys
from countledger.ledger.attributes import Item, Key
from countledger.ledger.connection import Connection
from countledger.ledger.errors import BadSetting, LeaseEnded
from countledger.ledger.ids import Ids
from countledger.ledger.limits import (
    DAY_MS,
    HOUR_MS,
    LEASE_MS,
    MINUTE_MS,
    SIGNED_REQUEST_LIFE_MS,
)
from tests.engines.clock import HandClock
from tests.regions.world import HOME, OTHERS, World, open_world

EAST = OTHERS[0]


@pytest.fixture
def world(url: str) -> Iterator[World]:
    """Two regions."""
    with open_world(url, 2, seed=3) as world:
        yield world


def _at(world: World, region: str, clock: HandClock) -> Connection:
    """A process there."""
    return replace(world.connections[region], clock=clock, _shared={})


def _regions(world: World, region: str, clock: HandClock) -> Regions:
    return Regions(_at(world, region, clock), as_home=True)


def _hold(world: World, regions: Regions) -> str | None:
    reason = regions.hold_lease()
    world.replicator.catch_up()
    return reason and regions.hold_lease()


def _clock() -> HandClock:
    clock = HandClock()
    clock.at_ms += 2 * DAY_MS
    return clock


def test_another_home_begins_when_the_lease_before_has_ended(world: World) -> None:
    clock = _clock()
    home, east = _regions(world, HOME, clock), _regions(world, EAST, clock)
    assert _hold(world, home) is None
    promotion = Promotion(_at(world, EAST, clock))

    epoch = promotion.begin()

    assert promotion.missing(epoch) == [HOME]
    world.replicator.catch_up()
    assert promotion.missing(epoch) == []
    assert promotion.begin() == epoch
    assert "begins at" in str(east.hold_lease())
    clock.at_ms += east.terms.lease_ms
    assert f"the home region is {EAST}" in str(home.hold_lease())
    clock.at_ms += HOUR_MS
    assert _hold(world, east) is None


def test_a_promotion_that_has_not_arrived_everywhere_is_waited_for(world: World) -> None:
    clock = _clock()
    epoch = Promotion(_at(world, EAST, clock)).begin()

    with pytest.raises(NotReady, match="has not arrived everywhere"):
        Promotion(_at(world, HOME, clock)).begin()

    world.replicator.catch_up()
    assert Promotion(_at(world, HOME, clock)).epoch() == epoch


def test_a_run_that_began_before_a_region_joined_writes_nothing_once_that_is_home(
    world: World,
) -> None:
    """A run of the only copy holds no lease that a region that joins could see."""
    clock = _clock()
    home, east = _regions(world, HOME, clock), _regions(world, EAST, clock)
    home._known.survey = clock.at_ms, Survey()
    assert home.hold_lease() is None

    epoch = Promotion(_at(world, EAST, clock)).begin()
    world.replicator.catch_up()
    while _hold(world, east) is not None:
        clock.at_ms += MINUTE_MS

    assert epoch.home == EAST
    with pytest.raises(LeaseEnded):
        home.check_lease()
    assert clock.at_ms >= _clock().at_ms + LEASE_MS + SIGNED_REQUEST_LIFE_MS


def test_a_region_that_is_a_replica_still_is_not_lost(world: World) -> None:
    with pytest.raises(BadSetting, match=f"countledger region remove {HOME}"):
        Promotion(_at(world, EAST, _clock())).begin(HOME)


def test_a_replica_that_is_not_in_service_is_waited_for(world: World) -> None:
    world.replica_status[HOME] = "CREATING"

    with pytest.raises(NotReady, match=HOME):
        Promotion(_at(world, EAST, _clock())).begin()


def test_what_a_lost_home_had_not_replicated_counts_once(world: World) -> None:
    """Merged, half merged and unreplicated entries; the salvage runs twice."""
    everything = sum(world.record(HOME) for _ in range(6))
    world.replicator.catch_up()
    world.compactor(retire=Retire.DELETE).compact(world.counter)
    everything += sum(world.record(HOME) for _ in range(3))
    world.replicator.catch_up()
    world.cut(HOME)
    everything += sum(world.record(HOME) for _ in range(4))
    world.replicator.under_way.clear()
    del world.replica_status[HOME]  # removed from the table
    clock = _clock()
    clock.at_ms += HOUR_MS
    east = _regions(world, EAST, clock)
    promotion = Promotion(_at(world, EAST, clock))
    epoch = promotion.begin(HOME)
    assert epoch.lost == HOME
    assert "was lost" in str(east.hold_lease())
    with pytest.raises(NotReady, match="may arrive"):
        promotion.settle(HOME)
    clock.at_ms += HOUR_MS

    reports = [_salvage(world, clock).run(SalvageReport()) for _ in range(2)]

    assert [one.fates[SalvageFate.BROUGHT] for one in reports] == [4, 0]
    assert [one.undecided for one in reports] == [0, 0]
    assert promotion.settle("another").lost == HOME
    assert "was lost" in str(east.hold_lease())
    promotion.settle(HOME)
    clock.at_ms += HOUR_MS
    assert east.hold_lease() is None
    assert world.exact(EAST) == everything
    assert world.total(EAST) == everything


def test_a_salvage_is_refused_where_the_head_has_moved(world: World) -> None:
    """An entry that another salvage brought in may have been merged and deleted since."""
    everything = world.record(HOME)
    for _ in range(3):
        world.replicator.catch_up()
        world.compactor(retire=Retire.DELETE).compact(world.counter)
    world.replicator.catch_up()
    world.cut(EAST)
    sleep(0.01)  # they are newer than what was merged
    everything += sum(world.record(HOME) for _ in range(2))
    del world.replica_status[HOME]
    clock = _clock()
    clock.at_ms += HOUR_MS
    Promotion(_at(world, EAST, clock)).begin(HOME)
    clock.at_ms += HOUR_MS
    Promotion(_at(world, EAST, clock)).settle(HOME)

    def merged_meanwhile() -> str:
        """Between the comparison and the transaction another salvage brings them in, and a run."""
        if not tokens:
            tokens.append("first")
            late = replace(_salvage(world, clock), held=lambda: False).run(SalvageReport())
            assert late.fates[SalvageFate.BROUGHT] == 2
            compactor = replace(
                world.compactor(retire=Retire.DELETE),
                connection=_at(world, EAST, clock),
                as_home=True,
            )
            assert compactor.compact(world.counter).outcome is RunOutcome.MERGED
        return uuid4().hex

    tokens: list[str] = []
    salvage = replace(_salvage(world, clock, merged_meanwhile), held=lambda: False)
    report = salvage.run(SalvageReport())

    assert tokens
    assert report.fates[SalvageFate.BROUGHT] == 0
    assert world.exact(EAST) == everything


def test_a_salvage_that_stood_still_judges_by_the_time_after_it_read_the_head(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it began no run could have merged the entry; when it read the head, one had."""
    everything = world.record(HOME)
    clock = HandClock()
    made_ms = clock.at_ms
    world.replicator.catch_up()
    world.cut(HOME)
    del world.replica_status[HOME]
    promotion = Promotion(_at(world, EAST, clock))
    promotion.begin(HOME)
    clock.at_ms += HOUR_MS
    promotion.settle(HOME)
    salvage = replace(_salvage(world, clock), held=lambda: False)
    namespace = world.namespaces(EAST).get(keys.namespace_of(world.counter))
    limit = limits_by(world.connections[EAST])(namespace)
    clock.at_ms = made_ms + limit.age_ms - limit.clock_skew_ms - MINUTE_MS
    get = Salvage._get

    def stand_still(copy: LedgerCopy, key: Key) -> Item | None:
        if not reports:
            clock.at_ms += limit.clock_skew_ms + 2 * MINUTE_MS
            compactor = replace(
                world.compactor(retire=Retire.DELETE),
                connection=_at(world, EAST, clock),
                as_home=True,
            )
            reports.append(compactor.compact(world.counter).outcome)
        return get(copy, key)

    reports: list[RunOutcome] = []
    monkeypatch.setattr(Salvage, "_get", staticmethod(stand_still))

    report = salvage.run(SalvageReport())

    assert reports == [RunOutcome.MERGED]
    assert report.fates == {SalvageFate.UNDECIDED: 1}
    assert world.exact(EAST) == everything


def _salvage(
    world: World, clock: HandClock, unique_id: Callable[[], str] = lambda: uuid4().hex
) -> Salvage:
    def copy(region: str) -> LedgerCopy:
        connection = world.connections[region]
        return LedgerCopy(
            dynamo=connection.dynamo("standard"), table=connection.setting("ledger_table")
        )

    return Salvage(
        connection=replace(_at(world, EAST, clock), ids=Ids(unique_id=unique_id)),
        source=copy(HOME),
        target=copy(EAST),
        held=lambda: True,
    )
