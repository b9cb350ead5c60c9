"""Versions that are evaluated twice: totals of an initial scan, and totals that were recreated."""

from __future__ import annotations

import pytest

from countledger.consumers.alerts.state import (
    AlertState,
    PublishFiring,
    WriteState,
    decide,
    decide_scan,
    published,
)
from countledger.consumers.alerts.state_item import (
    decode_state,
    published_write_of,
    scan_write_of,
    write_of,
)
from countledger.consumers.alerts.total_change import TotalChange
from countledger.ledger import keys
from countledger.ledger.errors import ConditionFailed, Unclear
from tests.unit.alerts.evaluating import COUNTER, START_MS, TABLE, World, history, record, rule
from tests.unit.ledger.memory import Fault


def _stored(world: World) -> AlertState:
    item = world.dynamo.get(TABLE, keys.alert_state_key(COUNTER, "rule"))
    assert item is not None
    return decode_state(item)


def test_the_record_of_a_total_that_stood_alerts_at_what_it_passed_on_its_way() -> None:
    """Whoever asked for the last threshold at once came between the update and its record."""
    wanted = rule(10, step=10)
    world = World([wanted])
    scanned = decide_scan(None, TotalChange(0, COUNTER, 35, 35, 1, START_MS), wanted)
    assert isinstance(scanned, WriteState)
    world.dynamo.put(scan_write_of(TABLE, WriteState(published(scanned.state))))

    for _ in range(2):
        world.deliver(history([35, 45]))

    assert [alert.id.split("/")[2:4] for _, alert in world.targets.taken] == [
        ["1", "10"],
        ["1", "20"],
        ["1", "30"],
        ["2", "40"],
    ]
    assert scanned.state.firing is not None
    assert scanned.state.firing.alerts[0].id == world.targets.ids[2]


def test_a_total_that_was_deleted_and_made_anew_alerts_though_its_versions_begin_again() -> None:
    """What fired was another total; records of that one that come again set nothing off."""
    world = World([rule(10, rearm=5)])
    first = [record(800, 3, 12), record(801, 12, 8)]
    world.deliver(first)
    anew = [record(1, None, 7, at_s=100, sequence=900), record(2, 7, 11, at_s=101, sequence=901)]

    for batch in (anew, anew, first):
        world.deliver(batch)

    assert [version for _, _, version in world.alerts()] == ["800", "2"]
    assert _stored(world).version == 2


@pytest.mark.parametrize("apart", [True, False], ids=["one by one", "in one batch"])
def test_a_counter_that_was_made_again_where_a_rule_is_armed_alerts(apart: bool) -> None:  # noqa: FBT001 - a parameter
    """Its making is no change, and its first change leads away from there."""
    world = World([rule(10, rearm=5)])
    world.deliver([record(800, 3, 12, method="atomic")])
    anew = [
        record(900, 4, 7, at_s=1, method="atomic"),
        record(901, 7, 11, at_s=2, method="atomic"),
    ]

    for batch in [[one] for one in anew] if apart else [anew]:
        world.deliver(batch)

    assert [version for _, _, version in world.alerts()] == ["800", "901"]


@pytest.mark.parametrize("apart", [True, False], ids=["one by one", "in one batch"])
def test_a_total_made_anew_on_its_armed_side_alerts_though_the_one_before_left_its_rule_disarmed(
    apart: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Its first version is none above the last; the next would be taken for one of that total."""
    world = World([rule(10, rearm=5)])
    world.deliver([record(1, 0, 12)])
    anew = [record(1, 0, 7, at_s=100), record(2, 7, 11, at_s=200)]

    for batch in [[one] for one in anew] if apart else [anew]:
        world.deliver(batch)

    assert [version for _, _, version in world.alerts()] == ["1", "2"]


@pytest.mark.parametrize(
    ("direction", "levels", "first", "second"),
    [("falling", (5, 20), [8, 3], [8, 7, 4]), ("rising", (10, -5), [7, 12], [7, 8, 11])],
)
@pytest.mark.parametrize("apart", [True, False], ids=["one by one", "in one batch"])
def test_a_total_made_again_between_the_levels_alerts_as_any_other(
    direction: str,
    levels: tuple[int, int],
    first: list[int],
    second: list[int],
    apart: bool,  # noqa: FBT001 - a parameter
) -> None:
    """A new total begins armed, also where its versions pass that of the old total's state."""
    threshold, rearm = levels
    world = World([rule(threshold, direction, rearm=rearm)])
    world.deliver(history(first))
    again = history(second, at_s=lambda version: 100 * version)

    for batch in [[one] for one in again] if apart else [again]:
        world.deliver(batch)

    assert [version for _, _, version in world.alerts()] == ["2", "3"]


def test_a_state_with_alerts_to_send_is_not_written_over() -> None:
    """Not even by an evaluator that saw the same version and revision with all alerts sent."""
    wanted = rule(10, step=10)
    dynamo = World([wanted]).dynamo
    scanned = decide_scan(None, TotalChange(0, COUNTER, 35, 35, 1, START_MS), wanted)
    assert isinstance(scanned, WriteState)
    dynamo.put(scan_write_of(TABLE, scanned))
    seen = published(scanned.state)
    crossed = decide(seen, TotalChange(0, COUNTER, 35, 45, 2, START_MS), wanted)
    assert isinstance(crossed, WriteState)
    assert crossed.over == seen

    with pytest.raises(ConditionFailed):
        dynamo.put(write_of(TABLE, crossed))
    assert scanned.state.firing is not None
    dynamo.update(published_write_of(TABLE, PublishFiring(scanned.state.firing, from_scan=True)))
    dynamo.put(write_of(TABLE, crossed))


def test_only_a_total_that_begins_is_compared_with_a_state_that_was_left() -> None:
    """One read for its first change; none for a change between the levels; no write if armed."""
    world = World([rule(5, "falling", rearm=20)])
    world.deliver(history([8, 3, 25]))
    world.dynamo.calls.clear()

    world.deliver([record(1, None, 9, at_s=100)])
    world.deliver([record(2, 9, 8, at_s=200)])

    assert world.dynamo.calls == ["get"]


def test_a_strict_counter_made_again_between_the_levels_stays_disarmed() -> None:
    """Its versions go on: after an alert its value has to come back to the re-arm level first."""
    world = World([rule(10, rearm=5)])
    world.deliver([record(800, 3, 12, method="atomic")])

    # Made again with 7, which is no change: the stream shows the next change.
    world.deliver([record(901, 7, 11, at_s=100, method="atomic")])
    world.deliver([record(902, 11, 4, at_s=101, method="atomic")])
    world.deliver([record(903, 4, 11, at_s=102, method="atomic")])

    assert [version for _, _, version in world.alerts()] == ["800", "903"]


def test_a_late_mark_of_a_total_that_stood_does_not_settle_what_its_record_set_off() -> None:
    """Both have the same version and revision; what was told is not the same."""
    wanted = rule(10, step=10)
    world = World([wanted])
    scanned = decide_scan(None, TotalChange(0, COUNTER, 35, 35, 1, START_MS), wanted)
    assert isinstance(scanned, WriteState)
    firing = scanned.state.firing
    assert firing is not None
    world.dynamo.put(scan_write_of(TABLE, WriteState(published(scanned.state))))
    # The evaluator dies behind its write of what the record sets off.
    world.dynamo.faults.append(None)
    world.dynamo.faults.append(Fault(Unclear("lost"), applied=True))
    world.deliver(history([35]))

    with pytest.raises(ConditionFailed):
        world.dynamo.update(published_write_of(TABLE, PublishFiring(firing, from_scan=True)))
    world.deliver(history([35]))

    assert [one.threshold for _, one in world.targets.taken] == [10, 20, 30]
