"""How far a salvage has come: stored after each page, by the id of the write before."""

from collections import Counter
from dataclasses import replace
from itertools import count

import pytest

from countledger.compaction.salvage import SalvageFate, SalvagePlace, SalvagePlaces, SalvageReport
from countledger.ledger.errors import ServiceFailed
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import MemoryClient

WORK = ("epoch", "eu us", "lost us restored")
FOUND = SalvageReport(counters=2, heads=1, fates=Counter({SalvageFate.BROUGHT: 3}))
PLACE = SalvagePlace(work=WORK, number=1, after={"counter": "a:b", "entry": "e#1"}, report=FOUND)


def _places(client: MemoryClient, prefix: str = "w") -> SalvagePlaces:
    numbers = count()
    connection = connection_on(client, unique_id=lambda: f"{prefix}{next(numbers)}")
    return SalvagePlaces(connection, "lost")


def test_another_run_of_the_same_work_continues_where_the_last_page_ended() -> None:
    client = MemoryClient()
    first = _places(client)
    assert first.begin(WORK) == SalvagePlace(work=WORK, id="w0")
    first.write(PLACE)

    second = _places(client, "x")

    assert second.begin(WORK) == replace(PLACE, id="x0")
    second.end()
    assert _places(client).begin(WORK).number == 0


def test_another_work_and_a_restart_begin_at_the_start() -> None:
    client = MemoryClient()
    first = _places(client)
    first.begin(WORK)
    first.write(PLACE)

    assert _places(client, "x").begin(("later", *WORK[1:])).after is None
    assert _places(client, "y").begin(WORK).number == 0
    stored = _places(client, "z")
    stored.begin(WORK)
    stored.write(PLACE)
    assert _places(client, "a").begin(WORK, again=True).after is None


def test_the_second_salvage_stops_the_first() -> None:
    client = MemoryClient()
    first, second = _places(client), _places(client, "x")
    first.begin(WORK)
    second.begin(WORK)

    with pytest.raises(ServiceFailed, match="taken over"):
        first.write(PLACE)
    with pytest.raises(ServiceFailed, match="has begun"):
        first.end()
    assert second.write(PLACE).id == "x1"
