"""What a table says of its regions, and how sort keys are looked up."""

from typing import Any

import pytest

from countledger.compaction.regions import Promotion, Regions, Survey, neighbours, survey_of
from countledger.compaction.report import RunOutcome
from countledger.ledger import keys
from countledger.ledger.errors import WrongRegion
from countledger.ledger.ids import id_of_key, new_id
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.ledger.operations import Put
from tests.unit.compaction.parts import LEDGER
from tests.unit.compaction.world import COUNTER, DELTAS, World
from tests.unit.connections import REGION, connection_on
from tests.unit.ledger.memory import MemoryClient


def test_only_the_home_region_may_merge() -> None:
    with pytest.raises(WrongRegion, match=r"home region a only.*this is b"):
        Regions(connection_on(MemoryClient(), region="b", home_region="a"))


def test_the_services_of_a_process_look_at_the_lease_and_the_replicas_once() -> None:
    """Whether they may merge is one answer for all of them."""
    tables = MemoryClient()
    connection = connection_on(tables, home_region=REGION)

    reasons = [Regions(connection).hold_lease() for _ in range(2)]

    assert reasons == [None, None]
    assert tables.calls == ["describe", "query"]


def test_a_home_that_waits_for_a_lost_region_still_waits_when_it_is_promoted_again() -> None:
    """Only `settle` ends it: what the lost region had not replicated may be merged by then."""
    connection = connection_on(MemoryClient(), region="b", home_region="a")
    begun = Promotion(connection).begin("a")

    again = Promotion(connection).begin()

    assert (again, again.lost) == (begun, "a")


def _replicas(**statuses: str) -> dict[str, Any]:
    return {"Replicas": [{"RegionName": n, "ReplicaStatus": one} for n, one in statuses.items()]}


_SURVEYS: dict[str, tuple[dict[str, Any], Survey]] = {
    "no replicas": ({"TableName": "t"}, Survey()),
    "replicas": (_replicas(c="ACTIVE", a="ACTIVE", b="ACTIVE"), Survey(("b", "c"))),
    **{
        f"a replica in {status}": (_replicas(b=status), Survey(("b",), (f"b ({status})",)))
        for status in ("CREATING", "DELETING", "UPDATING", "REGION_DISABLED")
    },
    "strong consistency": ({"MultiRegionConsistency": "STRONG"}, Survey(strong=True)),
}


@pytest.mark.parametrize(("described", "survey"), _SURVEYS.values(), ids=_SURVEYS)
def test_a_table_names_the_other_regions_and_what_is_not_in_service(
    described: Any,  # noqa: ANN401
    survey: Survey,
) -> None:
    assert survey_of(described, "a") == survey


def test_neighbours_share_prefix_and_kind() -> None:
    timed = sorted(keys.entry_key(new_id(at_ms), 16) for at_ms in range(1, 200))
    bare = sorted(keys.entry_key(id_of_key(f"k {n}"), 16) for n in range(100))

    groups = neighbours([*timed, *bare])

    assert sorted(key for group in groups for key in group) == sorted([*timed, *bare])
    assert len(groups) <= 32
    for group in groups:
        assert group == sorted(group)
        assert len({key[:3] for key in group}) == 1
        assert len({key[3] == "k" for key in group}) == 1


def _two_regions() -> tuple[World, MemoryClient]:
    """A counter with old entries, which the other region does not show yet; and that region."""
    world = World()
    world.description["Replicas"] = [{"RegionName": "b", "ReplicaStatus": "ACTIVE"}]
    there = world.copies["b"] = MemoryClient(description=world.dynamo.description)
    world.age()
    return world, there


def _arrive(world: World, there: MemoryClient, *, entries: bool = True) -> None:
    """What the home shows arrives; the right to merge may do so before the entries."""
    for item in world.dynamo.items(LEDGER):
        if entries or not item["entry"].startswith("e#"):
            there.put(Put(LEDGER, item))


def test_an_entry_is_merged_once_every_region_shows_it() -> None:
    """Else a region whose entry is late would show a head that has it, and count it twice."""
    world, there = _two_regions()

    world.compact()
    _arrive(world, there, entries=False)

    assert world.compact().detail == "3 entries are not in every region"
    assert (world.head.generation, len(world.entries())) == (0, len(DELTAS))
    _arrive(world, there)
    world.compact()

    assert world.exact() == sum(DELTAS)
    assert world.head.sum == sum(DELTAS)


def test_a_run_that_waits_for_a_region_ends_at_its_deadline() -> None:
    """The function's time would be over before the run is out of patience."""
    world, there = _two_regions()
    _arrive(world, there)
    compactor = world.compactor(patience_ms=HOUR_MS)
    began_ms = world.clock.at_ms

    report = compactor.compact(COUNTER, deadline_ms=began_ms + MINUTE_MS)

    assert report.outcome is RunOutcome.WAITING
    assert world.clock.at_ms - began_ms < 2 * MINUTE_MS
