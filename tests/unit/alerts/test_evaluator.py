"""The evaluator, case by case: what is told, what waits, what it costs, what is quarantined."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from countledger.consumers.alerts.rule import Topic
from countledger.consumers.alerts.state_item import decode_state, encode_state
from countledger.ledger import keys
from countledger.ledger.deadline import Deadline
from countledger.ledger.errors import (
    CorruptItem,
    ServiceFailed,
    Throttled,
    Unclear,
)
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.operations import Put
from tests.unit.alerts.evaluating import COUNTER, START_MS, TABLE, World, history, record, rule
from tests.unit.ledger.memory import Fault

if TYPE_CHECKING:
    from countledger.consumers.alerts.state_item import AlertState

TOPIC = Topic("arn:aws:sns:eu-central-1:111122223333:alarms")


def _stored(world: World) -> AlertState:
    item = world.dynamo.get(TABLE, keys.alert_state_key(COUNTER, "rule"))
    assert item is not None
    return decode_state(item)


def test_a_total_that_no_rule_watches_costs_nothing() -> None:
    """No write, no read, no call."""
    world = World([rule(prefix="other:")])

    outcome = world.deliver(history([5, 15, 25]))

    assert (outcome.records, outcome.changes, outcome.published) == (3, 3, 0)
    assert world.dynamo.calls == []
    assert world.targets.calls == 0


def test_an_update_that_crosses_nothing_costs_nothing() -> None:
    """Also where a rule watches."""
    world = World([rule(100), rule(100, "falling", name="low")])

    world.deliver(history([5, 15, 25, 5]))

    assert world.dynamo.calls == []


def test_an_alert_costs_four_writes_and_no_read() -> None:
    """The state, its mark, and twice the log."""
    world = World([rule(10)])

    world.deliver(history([5, 15]))

    assert world.dynamo.calls == ["put", "put", "put", "update"]
    assert world.alerts() == [("rising", "10", "2")]


def test_a_batch_delivered_again_costs_one_refused_write_for_each_alert() -> None:
    """And tells nothing."""
    world = World([rule(10)])
    batch = history([5, 15, 25])
    world.deliver(batch)
    world.dynamo.calls.clear()

    outcome = world.deliver(batch)

    assert outcome.published == 0
    assert world.dynamo.calls == ["put"]


def test_a_rule_with_a_rearm_level_reads_its_state_once_for_a_batch() -> None:
    """However many updates may arm it."""
    world = World([rule(10, rearm=5)])

    world.deliver(history([1, 2, 3, 4, 3, 2]))

    assert world.dynamo.calls == ["get"]


def test_more_than_a_hundred_thresholds_in_one_update_are_one_alert() -> None:
    """It carries the range; the next single one alerts by itself."""
    world = World([rule(1, step=1)])

    world.deliver(history([101, 102]))

    first, second = (alert for _, alert in world.targets.taken)
    assert (first.threshold, first.through, first.count) == (1, 101, 101)
    assert (second.threshold, second.through, second.count) == (102, None, 1)


def test_a_rule_added_beyond_its_threshold_does_not_alert() -> None:
    """It is evaluated by updates made when it was in force; these cross nothing."""
    world = World([rule(10, effective_from_ms=START_MS + 3 * SECOND_MS)])

    world.deliver(history([12, 15, 16, 17]))

    assert world.alerts() == []


def test_each_update_is_evaluated_by_the_revision_of_its_own_time() -> None:
    """Also when both are delivered together, long after the change."""
    change_ms = START_MS + 3 * SECOND_MS
    before = rule(10, effective_until_ms=change_ms)
    after = rule(20, revision="r2", effective_from_ms=change_ms)
    world = World([before, after])

    world.deliver(history([15, 5, 25, 5, 25]))

    assert [alert.id for _, alert in world.targets.taken] == [
        f"eu-central-1/rule@r1/1/10/rising/{COUNTER}",
        f"eu-central-1/rule@r2/3/20/rising/{COUNTER}",
        f"eu-central-1/rule@r2/5/20/rising/{COUNTER}",
    ]


def test_a_rule_is_evaluated_beside_every_other() -> None:
    """Those of the name, of prefixes, of other targets."""
    exact = replace(rule(10, name="exact"), prefix=None, counter=COUNTER)
    world = World([rule(10), exact, rule(10, name="ns", prefix="a:", target=TOPIC)])

    world.deliver(history([12]))

    told = {alert.rule: str(target) for target, alert in world.targets.taken}
    assert told == {"rule": "bus", "exact": "bus", "ns": str(TOPIC)}


def test_a_crash_between_the_state_and_its_alerts_loses_none() -> None:
    """The state holds them; the record comes again and finds them untold."""
    world = World([rule(10)])
    world.dynamo.faults.append(Fault(Unclear("lost"), applied=True))
    batch = history([5, 15, 25])

    first = world.deliver(batch)

    assert first.retry_from == 10**20 + 2
    assert world.targets.taken == []
    assert not _stored(world).published
    assert world.deliver(batch[1:]).retry_from is None
    assert world.alerts() == [("rising", "10", "2")]
    assert _stored(world).published


def test_untold_alerts_of_a_record_that_never_comes_again_are_told_by_the_next() -> None:
    """The stream forgot the record while no queue took the alert; the state did not."""
    world = World([rule(10, step=10)])
    world.targets.refuses = world.letters.refuses = 1
    assert world.deliver(history([15])).retry_from is not None

    world.deliver([record(2, 15, 25)])

    assert world.alerts() == [("rising", "10", "1"), ("rising", "20", "2")]


def test_a_failed_move_holds_up_its_own_counter_and_rule_only() -> None:
    """The lowest sequence number that failed tells from where to go on."""
    world = World([rule(10), rule(20, name="second")])
    # First to the dead letters, which take nothing: of whichever comes first.
    world.targets.refuses = world.letters.refuses = 1
    batch = [*history([15]), *history([15, 25], counter="c:d")]

    outcome = world.deliver(batch)

    assert len(outcome.failed) == 1
    assert outcome.retry_from in (10**20 + 1, 10**20 + 2)
    assert len(set(world.targets.ids)) == 2
    world.deliver(batch)
    assert len(set(world.targets.ids)) == 3


def test_what_a_target_refuses_goes_to_the_dead_letters_and_counts_as_told() -> None:
    """With target and reason; the next alert does not wait for it."""
    world = World([rule(10, step=10, target=TOPIC)])
    world.targets.refuses = 1

    outcome = world.deliver(history([15, 25]))

    assert (outcome.published, outcome.dead, outcome.retry_from) == (2, 1, None)
    (letter,) = world.letters.kept
    assert (letter.target, letter.reason, letter.alert.threshold) == (TOPIC, "no", 10)
    assert world.alerts() == [("rising", "20", "2")]
    assert _stored(world).published


def test_a_target_that_does_not_answer_is_not_waited_for_again() -> None:
    """Not in this batch: what comes after goes to the dead letters at once; the bus goes on."""
    world = World([rule(10, step=10, target=TOPIC)])
    world.targets.refuses, world.targets.silent = 1, True

    outcome = world.deliver(history([15, 25, 35]))

    assert outcome.dead == 3
    assert world.targets.calls == 1
    assert world.deliver([record(4, 35, 45)]).dead == 0


def test_without_rules_nothing_is_evaluated() -> None:
    """What cannot be read has to come again, whole."""
    world = World([rule(10)])

    class Unreadable(World):
        def index(self) -> None:  # type: ignore[override]
            raise Throttled("no rules now")

    with pytest.raises(ServiceFailed):
        Unreadable(world.rules).deliver(history([15]))


@pytest.mark.parametrize("corrupt", [{"revision": 1}, {"published": 1}, {"firing": {"old": "x"}}])
def test_p8_a_state_that_cannot_be_read_blocks_nobody(corrupt: dict[str, object]) -> None:
    """The crossing is quarantined with the reason; other counters and rules go on."""
    world = World([rule(10)])
    world.deliver(history([15]))
    item = world.dynamo.get(TABLE, keys.alert_state_key(COUNTER, "rule")) or {}
    world.dynamo.put(Put(TABLE, {**item, "version": 9, "published": False, **corrupt}))

    outcome = world.deliver([record(2, 5, 15), *history([15], counter="c:d")])

    assert (outcome.retry_from, outcome.quarantined, outcome.published) == (None, 1, 1)
    ((kept, reason),) = world.quarantine.records
    assert kept["dynamodb"]["Keys"]["counter"]["S"] == COUNTER
    assert "alert#rule" in reason


@pytest.mark.parametrize(
    "corrupt",
    [
        {"new": "1E+99"},
        {"region": 7},
        {"at": "today"},
        {"at": 10**18},
        {"version": 7},
        {"version": "1"},
        {"revision": "r9"},
    ],
)
def test_p8_alerts_that_cannot_be_told_or_marked_block_nobody(corrupt: dict[str, object]) -> None:
    """Somebody edited the state: it is quarantined with the reason, and the others go on."""
    world = World([rule(10)])
    world.deliver(history([15]))
    item = world.dynamo.get(TABLE, keys.alert_state_key(COUNTER, "rule")) or {}
    firing = {**item["firing"], **corrupt}
    world.dynamo.put(Put(TABLE, {**item, "published": False, "firing": firing}))
    batch = [record(2, 5, 15), *history([15], counter="c:d")]

    outcome = world.deliver(batch)

    assert (outcome.retry_from, outcome.quarantined, outcome.published) == (None, 1, 1)
    ((kept, reason),) = world.quarantine.records
    assert kept == batch[0]
    assert COUNTER in reason


def test_p8_a_record_that_cannot_be_understood_lets_the_others_pass() -> None:
    """It lies in the quarantine with the reason and the stream that it came from."""
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
    assert state.firing.new == 10**38 - 1
    assert state.firing.target == TOPIC
    assert state.firing.crossings[0].count == 10**39 - 14


def test_a_state_without_its_shape_is_refused() -> None:
    """By a specific error that names the item."""
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


def test_a_deadline_tells_from_which_move_on_to_evaluate_again() -> None:
    """What began before it ends; nothing begins after it, and no alert is lost."""
    world = World([rule(10), rule(20, name="high")])
    clock = world.clock
    batch = history([5, 15, 25])
    evaluator = world.evaluator()
    deadline = Deadline(clock, clock.at_ms, clock.at_ms)

    outcome = evaluator.apply(batch, "label", deadline)

    assert outcome.retry_from == 10**20 + 2
    assert (outcome.late, outcome.published, world.alerts()) == (2, 0, [])
    assert evaluator.apply(batch, "label").published == 2


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
