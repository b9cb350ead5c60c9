"""What a region says and does about a total whose ledger a deletion has emptied."""

import pytest

from countledger.consumers.verify import Judgement, clear_total
from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.exact import Head, encode_head
from countledger.ledger.operations import Delete, Put
from tests.unit.consumers.world import COUNTER, COUNTERS, LEDGER, World, deletion_mark
from tests.unit.ledger.memory import afterwards, meanwhile


def _emptied(world: World, mark_id: str = "mark") -> None:
    """A deletion of that id has emptied the ledger, which had an entry of 5."""
    world.handle(world.emit(5), 5)
    for item in world.dynamo.items(LEDGER):
        key = {name: str(item[name]) for name in ("counter", "entry")}
        if item["entry"].startswith(keys.ENTRY_PREFIX):
            world.dynamo.delete(Delete(LEDGER, key))
    head = Head(generation=1, run=mark_id, incarnation=mark_id, to_at_ms=1)
    world.dynamo.put(Put(LEDGER, encode_head(COUNTER, head)))
    world.dynamo.put(deletion_mark(COUNTER, "mark"))


def _total(world: World) -> Item | None:
    return world.dynamo.get(COUNTERS, keys.total_key(COUNTER))


@pytest.mark.parametrize(
    ("mark_id", "found"), [("mark", Judgement.DELETING), ("another", Judgement.DRIFT)]
)
def test_a_total_that_outlives_its_ledger_is_no_drift(
    world: World, mark_id: str, found: Judgement
) -> None:
    """As long as the deletion that emptied the ledger has not come to this region."""
    _emptied(world, mark_id)

    assert world.verdict().verdict is found


def test_the_total_of_an_emptied_counter_goes(world: World) -> None:
    """A call that finds none writes nothing."""
    _emptied(world)
    deleted = world.dynamo.calls.count("delete")

    assert clear_total(world.verifier(), COUNTER) is None
    assert _total(world) is None
    assert clear_total(world.verifier(), COUNTER) is None
    assert world.dynamo.calls.count("delete") == deleted + 1


def test_a_total_that_agrees_that_nothing_is_left_goes_as_well(world: World) -> None:
    """Such as one that a repair set to zero."""
    _emptied(world)
    total = _total(world)
    assert total is not None
    world.dynamo.put(Put(COUNTERS, {**total, "total": 0, "events": 0, "entries": 0}))
    assert world.verdict().verdict is Judgement.EXACT

    assert clear_total(world.verifier(), COUNTER) is None
    assert _total(world) is None


def test_what_was_recorded_since_stays_in_a_total_of_its_own(world: World) -> None:
    """The total becomes another one, in one write: it never lacks what was recorded since."""
    _emptied(world)
    world.handle(world.emit(7), 7)
    before = _total(world)
    assert before is not None
    old = {"incarnation": "old", "compacted": 1, "windows#s": "old", "windowed#s": 5}
    world.dynamo.put(Put(COUNTERS, before | old))
    seen: list[Item | None] = []
    world.dynamo.plans.append(afterwards(lambda: seen.append(_total(world)), times=9))

    assert clear_total(world.verifier(), COUNTER) is None

    total = _total(world)
    assert total is not None
    assert all(one is not None and one["total"] in {7, 12} for one in seen)
    assert (total["total"], total["entries"], total["version"]) == (7, 1, 3)
    assert total["incarnation"] != "old"
    assert not (old.keys() - {"incarnation"}) & total.keys()
    assert clear_total(world.verifier(), COUNTER) is None
    assert _total(world) == total


def test_a_total_that_changes_before_it_goes_is_left_alone(world: World) -> None:
    _emptied(world)
    world.dynamo.plans.append(meanwhile(lambda: world.handle(world.emit(7), 7), "delete"))

    reason = clear_total(world.verifier(), COUNTER)

    assert reason is not None
    assert "changed" in reason
    total = _total(world)
    assert total is not None
    assert total["total"] == 12
