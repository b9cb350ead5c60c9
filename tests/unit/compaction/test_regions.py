"""What a table says of its regions, and how sort keys are looked up."""

import pytest

from countledger.compaction.regions import Regions, Survey, neighbours, survey_of
from countledger.ledger import keys
from countledger.ledger.errors import WrongRegion
from countledger.ledger.ids import id_of_key, new_id
from tests.unit.ledger.memory import MemoryClient


def test_only_the_home_region_may_merge() -> None:
    """Elsewhere it is refused before any call."""
    with pytest.raises(WrongRegion, match=r"this is b.* home region a only"):
        Regions(MemoryClient(), "t", "b", "a", lambda _: MemoryClient())


def test_a_table_without_replicas_has_no_other_region() -> None:
    """One region, eventually consistent with nobody."""
    assert survey_of({"TableName": "t"}, "a") == Survey()


def test_a_table_names_its_replicas() -> None:
    """The home region may stand among them or not."""
    replicas = [{"RegionName": name, "ReplicaStatus": "ACTIVE"} for name in ("c", "a", "b")]

    assert survey_of({"Replicas": replicas}, "a") == Survey(("b", "c"))


@pytest.mark.parametrize("status", ["CREATING", "DELETING", "UPDATING", "REGION_DISABLED"])
def test_a_replica_that_is_not_in_service_is_named(status: str) -> None:
    """While one is made or deleted nothing is merged."""
    replicas = [{"RegionName": "b", "ReplicaStatus": status}]

    assert survey_of({"Replicas": replicas}, "a").unready == (f"b ({status})",)


def test_a_strongly_consistent_table_is_recognised() -> None:
    """It takes no transactions."""
    assert survey_of({"MultiRegionConsistency": "STRONG"}, "a").strong


def test_neighbours_share_prefix_and_kind() -> None:
    """Between two of a group nothing but their like can lie."""
    timed = sorted(keys.entry_key(new_id(at_ms), 16) for at_ms in range(1, 200))
    bare = sorted(keys.entry_key(id_of_key(f"k {n}"), 16) for n in range(100))

    groups = neighbours([*timed, *bare])

    assert sorted(key for group in groups for key in group) == sorted([*timed, *bare])
    assert len(groups) <= 32
    for group in groups:
        assert group == sorted(group)
        assert len({key[:3] for key in group}) == 1
        assert len({key[3] == "k" for key in group}) == 1
