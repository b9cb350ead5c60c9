"""What a table says of its regions, and how sort keys are looked up."""

from typing import Any

import pytest

from countledger.compaction.regions import Regions, Survey, neighbours, survey_of
from countledger.ledger import keys
from countledger.ledger.errors import WrongRegion
from countledger.ledger.ids import id_of_key, new_id
from tests.unit.ledger.memory import MemoryClient


def test_only_the_home_region_may_merge() -> None:
    with pytest.raises(WrongRegion, match=r"this is b.* home region a only"):
        Regions(MemoryClient(), "t", "b", "a", lambda _: MemoryClient())


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
