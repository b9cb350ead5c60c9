"""Two totals of one name never share the id of an alert, though the versions begin again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from boto3.dynamodb.types import TypeSerializer

from countledger.consumers.alerts.crossing import TotalChange
from countledger.consumers.alerts.delivery import AlertLog
from countledger.consumers.alerts.message import alert_in, body_of
from countledger.consumers.alerts.service import as_unchanged
from countledger.consumers.alerts.state import AlertState, WriteState, decide_scan
from countledger.consumers.total_writer import FoldedChange, update_of
from countledger.ledger import keys
from countledger.ledger.operations import Delete
from countledger.producers.sequences.sequence import plan_draw
from tests.unit.alerts.evaluating import COUNTER, START_MS, TABLE, World, record, rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Update

KEY: Final = keys.total_key(COUNTER)
# How long after the first life the second begins: too late for any doubt, and at once.
APART_S: Final = (200, 1, 0)


def added(life: int) -> Update:
    """The materializer's write: by another record, or by the same one at another time."""
    return update_of(TABLE, COUNTER, FoldedChange(7, 7, 15, 1, 1), "shard", START_MS + life)


def added_later(life: int) -> Update:
    return update_of(TABLE, COUNTER, FoldedChange(life, life, 15, 1, 1), "shard", START_MS)


def drawn(life: int) -> Update:
    return plan_draw(TABLE, COUNTER, 15, f"id-{life}", START_MS)


def image(item: Item) -> dict[str, Any]:
    return {name: TypeSerializer().serialize(value) for name, value in item.items()}


def created(world: World, write: Update, life: int, apart_s: int) -> dict[str, Any]:
    """The stream record of a write that creates the total."""
    world.dynamo.update(write)
    item = world.dynamo.get(TABLE, KEY)
    assert item is not None
    assert item["version"] == 1
    stream = record(1, None, 15, at_s=life * apart_s, sequence=life)
    return {**stream, "dynamodb": {**stream["dynamodb"], "NewImage": image(item)}}


def strict(
    life: int, version: int = 2, old: int = 0, new: int = 15, *, apart_s: int = 1
) -> dict[str, Any]:
    """The record of a strict counter; by default at a version that it had in its first life too."""
    attributes: dict[str, Any] = {"method": {"S": "atomic"}, "incarnation": {"S": f"id-{life}"}}
    return record(version, old, new, at_s=life * apart_s, sequence=life, **attributes)


def ids_of(world: World) -> list[str]:
    return list(dict.fromkeys(alert.id for _, alert in world.targets.taken))


@pytest.mark.parametrize("apart_s", APART_S)
@pytest.mark.parametrize("write", [added, added_later, drawn])
def test_a_counter_that_is_created_again_alerts_under_another_id(
    write: Callable[[int], Update], apart_s: int
) -> None:
    world = World([rule(10)])
    for life in (1, 2):
        world.deliver([created(world, write(life), life, apart_s)])
        world.dynamo.delete(Delete(TABLE, KEY))

    assert [alert.version for _, alert in world.targets.taken] == [1, 1]
    assert len(ids_of(world)) == 2


@pytest.mark.parametrize("rearm", [None, 0])
@pytest.mark.parametrize("apart_s", APART_S)
def test_so_does_a_strict_counter(apart_s: int, rearm: int | None) -> None:
    world = World([rule(10, rearm=rearm)])
    for life in (1, 2):
        world.deliver([strict(life, apart_s=apart_s)])

    assert [alert.version for _, alert in world.targets.taken] == [2, 2]
    assert len(ids_of(world)) == 2


@pytest.mark.parametrize("apart_s", APART_S)
def test_a_counter_starts_armed_whatever_disarmed_the_rule_in_its_first_life(apart_s: int) -> None:
    """It is created between re-arm level and threshold, at a version above all of the first."""
    world = World([rule(10, rearm=0)])
    world.deliver([strict(1, apart_s=apart_s)])
    world.deliver([strict(2, 102, 5, 15, apart_s=apart_s)])

    assert [alert.version for _, alert in world.targets.taken] == [2, 102]


@pytest.mark.parametrize("rearm", [None, 0])
def test_late_records_of_the_first_life_set_nothing_off_in_the_second(rearm: int | None) -> None:
    """Neither an alert that the first life did not need, nor one of the second life again."""
    world = World([rule(10, rearm=rearm)])
    first = [strict(1), strict(1, 3, 15, 5), strict(1, 4, 5, 15)]
    second = [strict(2), strict(2, 3, 15, 5), strict(2, 4, 5, 15)]
    for records in (first, second):
        world.deliver(records)
    before = len(world.targets.taken)
    world.deliver(first[2:])
    world.deliver(second)

    assert before == (2 if rearm == 0 else 4)
    assert len(world.targets.taken) == before


def test_an_update_keeps_the_incarnation_of_its_total() -> None:
    world = World([rule(10)])
    world.dynamo.update(added_later(1))
    before = world.dynamo.get(TABLE, KEY)
    world.dynamo.update(added_later(2))
    after = world.dynamo.get(TABLE, KEY)

    assert before
    assert after
    assert (after["version"], after["incarnation"]) == (2, before["incarnation"])


def test_a_total_without_an_incarnation_alerts_under_the_id_that_it_always_had() -> None:
    world = World([rule(10)])
    world.deliver([record(1, None, 15)])

    assert ids_of(world) == ["eu-central-1/rule@r1/1/10/rising/a:b"]


def test_the_id_is_the_same_wherever_the_alert_is_stored() -> None:
    """In the state that a crash leaves, in the message of a dead letter, and in the log."""
    world = World([rule(10)])
    world.targets.refuses = world.letters.refuses = 1
    first = strict(1)
    assert world.deliver([first]).retry_from is not None
    world.deliver([first])

    (expected,) = ids_of(world)
    alert = world.targets.taken[-1][1]
    assert expected == "eu-central-1/rule@r1/id-1/2/10/rising/a:b"
    assert alert_in(json.loads(body_of(alert))) == alert
    assert [one.alert.id for one in AlertLog(world.connection).newest(COUNTER)] == [expected]


def test_the_initial_scan_names_the_incarnation_too() -> None:
    world = World()
    item = world.dynamo.update(added(1))
    assert item

    read = as_unchanged(item, START_MS)

    assert read is not None
    assert read.incarnation == item["incarnation"]
    assert as_unchanged({**item, "incarnation": 7}, START_MS) is None


@pytest.mark.parametrize("found", ["id-1", "id-2"])
def test_a_scan_keeps_the_state_before_it_unless_it_is_of_an_earlier_total(found: str) -> None:
    """The changes of the scanned total are not evaluated by the state of a deleted one."""
    state = AlertState(COUNTER, "rule", "r0", 4, START_MS, armed=True, incarnation="id-1")
    total = TotalChange(0, COUNTER, 15, 15, 5, START_MS, incarnation=found)

    step = decide_scan(state, total, rule(10))

    assert isinstance(step, WriteState)
    assert step.state.before_scan == (state if found == "id-1" else None)


@pytest.mark.parametrize("found", [{"S": "a/b"}, {"S": ""}, {"S": "x" * 65}, {"N": "7"}], ids=str)
def test_what_no_id_can_contain_is_quarantined(found: dict[str, str]) -> None:
    world = World([rule(10)])

    assert world.deliver([record(1, None, 15, incarnation=found)]).quarantined == 1
    assert not world.targets.taken
