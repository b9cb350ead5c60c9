"""The evaluator: what waits, what is published by whom, and what is quarantined."""

from decimal import Decimal
from typing import Any

import pytest

from countledger.consumers.alerts.rule import Topic
from countledger.consumers.alerts.state import AlertState, decode_state, encode_state
from countledger.ledger import keys
from countledger.ledger.departure import Deadline
from countledger.ledger.errors import (
    CorruptItem,
)
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.operations import Put
from tests.unit.alerts.evaluating import COUNTER, START_MS, TABLE, World, history, record, rule

TOPIC = Topic("arn:aws:sns:eu-central-1:111122223333:alarms")


def _stored(world: World) -> AlertState:
    item = world.dynamo.get(TABLE, keys.alert_state_key(COUNTER, "rule"))
    assert item is not None
    return decode_state(item)


def test_unpublished_alerts_of_a_record_that_never_comes_again_are_published_by_the_next() -> None:
    """The stream forgot the record while no queue took the alert; the state did not."""
    world = World([rule(10, step=10)])
    world.targets.refuses = world.letters.refuses = 1
    assert world.deliver(history([15])).retry_from is not None

    world.deliver([record(2, 15, 25)])

    assert world.alerts == [(10, 1), (20, 2)]


def test_a_change_that_failed_holds_up_its_own_counter_and_rule_only() -> None:
    """The batch comes again from the lowest sequence number that failed."""
    world = World([rule(10), rule(20, name="second")])
    # The dead letters refuse the first alert that the target refuses, whichever it is.
    world.targets.refuses = world.letters.refuses = 1
    batch = [*history([15]), *history([15, 25], counter="c:d")]

    outcome = world.deliver(batch)

    assert len(outcome.failed) == 1
    assert outcome.retry_from in (10**20 + 1, 10**20 + 2)
    assert len({alert.id for _, alert in world.targets.taken}) == 2
    world.deliver(batch)
    assert len({alert.id for _, alert in world.targets.taken}) == 3


def test_a_target_that_does_not_answer_is_not_waited_for_again_in_this_batch() -> None:
    world = World([rule(10, step=10, target=TOPIC)])
    world.targets.refuses, world.targets.silent = 1, True

    outcome = world.deliver(history([15, 25, 35]))

    assert (outcome.dead, world.targets.calls) == (3, 1)
    assert world.deliver([record(4, 35, 45)]).dead == 0


@pytest.mark.parametrize(
    ("state", "firing"),
    [
        ({"version": 9, "revision": 1}, {}),
        ({"version": 9, "published": 1}, {}),
        ({"version": 9}, {"old": "x"}),
        ({}, {"new": "1E+99"}),
        ({}, {"region": 7}),
        ({}, {"at": "today"}),
        ({}, {"at": 10**18}),
        ({}, {"version": 7}),
        ({}, {"version": "1"}),
        ({}, {"revision": "r9"}),
    ],
    ids=str,
)
def test_p8_a_state_that_was_edited_blocks_nobody(
    state: dict[str, object], firing: dict[str, object]
) -> None:
    """Its record is quarantined with the reason; other counters and rules go on."""
    world = World([rule(10)])
    world.deliver(history([15]))
    item = world.dynamo.get(TABLE, keys.alert_state_key(COUNTER, "rule")) or {}
    edited = {**item, "published": False, **state, "firing": {**item["firing"], **firing}}
    world.dynamo.put(Put(TABLE, edited))
    batch = [record(2, 5, 15), *history([15], counter="c:d")]

    outcome = world.deliver(batch)

    assert (outcome.retry_from, outcome.quarantined, outcome.published) == (None, 1, 1)
    ((kept, reason),) = world.quarantine.records
    assert kept == batch[0]
    assert COUNTER in reason


def test_p8_a_record_that_cannot_be_understood_lets_the_others_pass() -> None:
    world = World([rule(10)])
    malformed = {**record(1, 5, 15), "eventName": "UPSERT"}

    outcome = world.deliver([malformed, *history([15], counter="c:d")])

    assert (outcome.published, outcome.quarantined) == (1, 1)
    ((kept, reason),) = world.quarantine.records
    assert kept == malformed
    assert "stream" in reason


def test_a_state_is_read_as_it_was_written() -> None:
    """Numbers of every length, ranges, and the target."""
    world = World([rule(Decimal("0.5"), step=Decimal("0.1"), target=TOPIC)])
    world.deliver(history([10**38 - 1]))

    state = _stored(world)

    assert decode_state(encode_state(state)) == state
    assert state.firing is not None
    assert (state.firing.new, state.firing.target) == (10**38 - 1, TOPIC)
    assert state.firing.crossings[0].count == 10**39 - 14
    with pytest.raises(CorruptItem, match="alert#rule"):
        decode_state({**keys.alert_state_key(COUNTER, "rule"), "revision": "r1"})


def test_an_armed_state_goes_when_no_record_can_need_it_and_a_fired_one_stays() -> None:
    """Without a state a rule is armed."""
    world = World([rule(10, rearm=5)])
    world.deliver(history([15]))
    fired = encode_state(_stored(world))
    world.deliver([record(2, 15, 5)])
    armed = encode_state(_stored(world))

    assert fired["expires_at"] is None
    assert armed["expires_at"] > START_MS // SECOND_MS


def test_what_a_deadline_cuts_off_is_evaluated_by_the_next_delivery() -> None:
    """What began before the deadline ends; nothing begins after it."""
    world = World([rule(10), rule(20, name="high")])
    batch, evaluator = history([5, 15, 25]), world.evaluator()

    outcome = evaluator.apply(
        batch, "label", Deadline(world.clock, world.clock.at_ms, world.clock.at_ms)
    )

    assert (outcome.retry_from, outcome.late, outcome.published) == (10**20 + 2, 2, 0)
    assert world.alerts == []
    assert evaluator.apply(batch, "label").published == 2


def test_only_a_total_that_begins_is_compared_with_a_state_that_was_left() -> None:
    """One read for its first change; none for a change between the levels; no write if armed."""
    world = World([rule(5, "falling", rearm=20)])
    world.deliver(history([8, 3, 25]))
    world.dynamo.calls.clear()

    world.deliver([record(1, None, 9, at_s=100)])
    world.deliver([record(2, 9, 8, at_s=200)])

    assert world.dynamo.calls == ["get"]


def _held(version: int, total: int, held: tuple[int, int], old: int = 10) -> dict[str, Any]:
    """A hold is placed or ends: what is held changes, and the total perhaps."""
    made = record(version, old, total, method="marker")
    for name, amount in zip(("OldImage", "NewImage"), held, strict=True):
        if amount:
            made["dynamodb"][name]["held"] = {"N": str(amount)}
    return made


def test_a_rule_on_what_is_available_sees_holds_and_one_on_the_value_does_not() -> None:
    """10, of which 7 are held; one of them is taken, the rest is free again; a change."""
    records = [
        _held(101, 10, (0, 7)),
        _held(102, 9, (7, 0)),
        _held(103, 4, (0, 0), old=9),
    ]
    available = World([rule(5, "falling", of="available")])
    value = World([rule(5, "falling")])
    available.deliver(records)
    value.deliver(records)

    assert [version for _, version in available.alerts] == [101, 103]
    assert [version for _, version in value.alerts] == [103]
    both = World([rule(5, "rising", of="available")])
    both.deliver(records)
    assert [version for _, version in both.alerts] == [102]


def test_a_strict_counter_made_again_between_the_levels_stays_disarmed() -> None:
    """Its versions go on: after an alert its value has to come back to the re-arm level first."""
    world = World([rule(10, rearm=5)])
    world.deliver([record(800, 3, 12, method="atomic")])

    # Made again with 7, which is no change: the stream shows the next change.
    world.deliver([record(901, 7, 11, at_s=100, method="atomic")])
    world.deliver([record(902, 11, 4, at_s=101, method="atomic")])
    world.deliver([record(903, 4, 11, at_s=102, method="atomic")])

    assert [version for _, version in world.alerts] == [800, 903]
