"""Rules with a window: each window alerts once, by the sum that one setting counted in it."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from countledger.consumers.alerts.delivery import (
    DeadLetter,
    decode_dead_letter,
    encode_dead_letter,
)
from countledger.consumers.alerts.message import alert_in, body_of
from countledger.consumers.alerts.rule import Bus, check_watched, refuse_now, rule_of
from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.amount import Amount, to_text
from countledger.ledger.calendar import Per
from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import BadRule, BadSetting, NoWindows, Throttled, WrongKind
from countledger.ledger.limits import ALERT_STATE_LIFE_MS, DAY_MS, HOUR_MS, SECOND_MS
from countledger.ledger.operations import Put
from countledger.ledger.total import new_windows_id
from countledger.ledger.windows import WindowSetting, encode_settings
from tests.unit.alerts.evaluating import COUNTER, REGION, START_MS, TABLE, World, rule
from tests.unit.connections import connection_on
from tests.unit.ledger.window_settings import window_setting

ZONE = "Asia/Kolkata"
WINDOWS = new_windows_id("set", "shard", 1)
OTHER_WINDOWS = new_windows_id("set", "shard", 2)
DAY = "2026-11-22"
EXPIRES_S = START_MS // SECOND_MS + 100 * 86_400


def setting(**changes: Any) -> WindowSetting:  # noqa: ANN401 - handed on
    return window_setting(ZONE, id="set", **changes)


def world(*rules: Any, **changes: Any) -> World:  # noqa: ANN401 - rules, and of the setting
    found = World(rules=list(rules))
    item = encode_settings(keys.namespace_of(COUNTER), [setting(**changes)])
    found.dynamo.put(Put(TABLE, item))
    return found


def windowed(window: str = "day", threshold: Amount = 10, **more: Any) -> Any:  # noqa: ANN401
    return rule(threshold, window=window, **more)


def record(
    version: int,
    old: Mapping[str, Amount] | None,
    new: Mapping[str, Amount],
    *,
    item: str = f"month#{DAY[:7]}",
    windows: str = WINDOWS,
    at_s: int = 0,
    counter: str = COUNTER,
) -> dict[str, Any]:
    """The stream record of an update of an item of windows: sums by cell."""

    def image(cells: Mapping[str, Amount], of_version: int) -> dict[str, Any]:
        numbers = {f"s{cell}": value for cell, value in cells.items()}
        numbers |= {f"n{cell}": 1 for cell in cells} | {"version": of_version}
        whole = {"sum": sum(cells.values()), "events": len(cells)}
        expires = {} if item.startswith("month") else {"expires_at": EXPIRES_S}
        numbers |= whole | expires
        return {name: {"N": to_text(value)} for name, value in numbers.items()}

    stream: dict[str, Any] = {
        "SequenceNumber": str(10**20 + version),
        "ApproximateCreationDateTime": START_MS / 1_000 + at_s,
        "Keys": {"counter": {"S": counter}, "part": {"S": keys.window_part(windows, item)}},
        "NewImage": image(new, version),
    }
    if old is not None:
        stream["OldImage"] = image(old, version - 1)
    return {"eventName": "INSERT" if old is None else "MODIFY", "dynamodb": stream}


def raised(found: World) -> list[tuple[str, Amount]]:
    """Window and sum of each alert, in order, doubles left out."""
    alerts = {alert.id: alert for _, alert in found.targets.taken}
    return [(one.window.name, one.new) for one in alerts.values() if one.window is not None]


def states(found: World) -> list[dict[str, Any]]:
    return [one for one in found.dynamo.items(TABLE) if one["part"].startswith(keys.ALERT_PREFIX)]


def test_a_window_alerts_when_its_sum_crosses_the_threshold() -> None:
    here = world(windowed())

    here.deliver([record(1, None, {"22": 9, "21": 5}), record(2, {"22": 9}, {"22": 12})])

    ((_, alert),) = here.targets.taken
    window = alert.window
    assert window is not None
    assert (window.per, window.name, window.zone) == (Per.DAY, DAY, ZONE)
    assert to_datetime(window.start_ms).isoformat() == "2026-11-21T18:30:00+00:00"
    assert window.end_ms - window.start_ms == DAY_MS
    assert (alert.old, alert.new, alert.version, alert.threshold) == (9, 12, 2, 10)


def test_what_is_no_cell_of_an_item_of_windows_alerts_for_none() -> None:
    here = world(windowed())

    outcome = here.deliver([record(2, {"22": 1, "5": 1}, {"22": 1, "5": 99})])

    assert (raised(here), outcome.quarantined) == ([], 0)


def test_two_windows_of_one_item_cross_at_once_and_have_a_state_each() -> None:
    here = world(windowed())

    here.deliver([record(2, {"21": 5, "22": 5}, {"21": 12, "22": 13})])

    assert sorted(new for _, new in raised(here)) == [12, 13]
    assert len({one["part"] for one in states(here)}) == 2


def test_a_window_alerts_once_whatever_its_sum_does_afterwards() -> None:
    here = world(windowed())

    here.deliver([record(1, None, {"22": 12})])
    here.deliver([record(2, {"22": 12}, {"22": 3}, at_s=90)])
    here.deliver([record(3, {"22": 3}, {"22": 30}, at_s=200)])
    # A rebuilt item begins with version 1 again.
    here.deliver([record(1, None, {"22": 30}, at_s=400)])

    assert raised(here) == [(DAY, 12)]


def test_each_window_has_a_state_of_its_own() -> None:
    here = world(windowed())

    here.deliver([record(1, None, {"21": 11, "22": 12})])
    here.deliver([record(2, {"21": 11, "22": 12}, {"21": 11, "22": 12, "05": 13})])
    here.deliver([record(1, None, {"22": 14}, windows=OTHER_WINDOWS, at_s=1)])

    found = [("2026-11-21", 11), (DAY, 12), ("2026-11-05", 13), (DAY, 14)]
    assert raised(here) == found
    assert len({alert.id for _, alert in here.targets.taken}) == len(found)
    logged = [one["part"] for one in here.dynamo.items(TABLE) if one["counter"] == keys.ALERT_LOG]
    assert len(logged) == len(found)


@pytest.mark.parametrize(
    ("window", "item", "cell", "name"),
    [
        ("minute", "hour#2026-11-22T13:30", "31", "2026-11-22T13:31Z"),
        ("hour", f"day#{DAY}", "02", "2026-11-22T02+05:30"),
        ("day", "month#2026-11", "22", DAY),
        ("month", "month#2026-11", "22", "2026-11"),
    ],
)
def test_a_rule_watches_windows_of_its_kind_alone(
    window: str, item: str, cell: str, name: str
) -> None:
    here = world(*(windowed(per, name=per) for per in Per), rule(name="total"))

    here.deliver([record(1, None, {cell: 11}, item=item)])

    kinds = {alert.rule for _, alert in here.targets.taken}
    assert kinds == ({"day", "month"} if item.startswith("month") else {window})
    assert name in {found for found, _ in raised(here)}


@pytest.mark.parametrize("together", [False, True], ids=["batch by batch", "in one batch"])
def test_a_changed_rule_alerts_again_and_what_comes_late_by_the_old_one_does_not(
    *, together: bool
) -> None:
    changed_ms = START_MS + 100 * SECOND_MS
    old = windowed(threshold=10, effective_until_ms=changed_ms)
    new = windowed(threshold=20, revision="r2", effective_from_ms=changed_ms)
    here = world(old, new)
    first = record(1, None, {"22": 12})
    second = record(2, {"22": 12}, {"22": 25}, at_s=150)

    batches = [[first, second]] if together else [[first], [second]]
    for batch in (*batches, [first, second], [first]):
        here.deliver(batch)

    assert raised(here) == [(DAY, 12), (DAY, 25)]
    assert len(here.targets.taken) == 2


def test_a_state_is_kept_as_long_as_its_window_can_change() -> None:
    lateness_ms = 3 * DAY_MS
    for_ever, bounded = world(windowed()), world(windowed(), max_lateness_ms=lateness_ms)
    hours = world(windowed("hour"))

    for_ever.deliver([record(1, None, {"22": 12})])
    bounded.deliver([record(1, None, {"22": 12})])
    hours.deliver([record(1, None, {"02": 12}, item=f"day#{DAY}")])

    assert [one.get("expires_at") for one in states(for_ever)] == [None]
    window = bounded.targets.taken[0][1].window
    assert window is not None
    last_ms = window.end_ms + lateness_ms + setting().late_write_ms
    life_s = ALERT_STATE_LIFE_MS // SECOND_MS
    assert states(bounded)[0]["expires_at"] == (max(last_ms, START_MS)) // SECOND_MS + life_s
    assert states(hours)[0]["expires_at"] == EXPIRES_S + life_s


def test_an_update_that_crosses_nothing_reads_no_settings_and_costs_nothing() -> None:
    here = world(windowed())
    before = (here.dynamo.meter.read_units, here.dynamo.meter.write_units)

    outcome = here.deliver([record(1, None, {"22": 9}), record(2, {"22": 9}, {"22": 8})])

    assert outcome.changes == 0
    assert (here.dynamo.meter.read_units, here.dynamo.meter.write_units) == before


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (record(1, None, {"22": 12}, item="year#2026"), "no item of windows"),
        (record(1, None, {"31": 12}), "no window of"),
        (record(1, None, {"22": 12}, windows="gone.1"), "no setting"),
        (record(1, None, {"22": 12}, item="month#2026-13"), "no item of windows"),
        (record(1, None, {"22": 12}, at_s=-200_000), "older than a stream"),
    ],
)
def test_a_record_that_cannot_be_evaluated_is_quarantined(
    broken: dict[str, Any], reason: str
) -> None:
    here = world(windowed())

    outcome = here.deliver([broken, record(2, None, {"05": 11})])

    assert outcome.quarantined == 1
    assert reason in here.quarantine.records[0][1]
    assert raised(here) == [("2026-11-05", 11)]


def test_settings_that_cannot_be_read_now_leave_the_batch_for_another_delivery() -> None:
    here = world(windowed())

    def fail(_counter: str) -> Any:  # noqa: ANN401 - never returns
        raise Throttled("no")

    evaluator = replace(here.evaluator(), windows=fail)
    with pytest.raises(Throttled):
        evaluator.apply([record(1, None, {"22": 12})], "stream")

    assert not here.targets.taken


def test_the_message_names_the_window_and_is_read_as_it_was_sent() -> None:
    here = world(windowed("hour"))
    here.deliver([record(1, None, {"02": 12}, item=f"day#{DAY}")])
    target, alert = here.targets.taken[0]

    message = json.loads(body_of(alert))

    assert message["window"] == {
        "windows": WINDOWS,
        "per": "hour",
        "name": "2026-11-22T02+05:30",
        "start": "2026-11-21T20:30:00Z",
        "end": "2026-11-21T21:30:00Z",
        "time_zone": ZONE,
    }
    assert f"/{WINDOWS}/2026-11-22T02+05:30/" in message["id"]
    assert body_of(alert_in(message)) == body_of(alert)
    letter = decode_dead_letter(encode_dead_letter(DeadLetter(alert, target, "no", START_MS)))
    assert letter.alert.id == alert.id


def test_a_rule_with_a_window_rises_by_default() -> None:
    one = rule_of("spike", REGION, {"prefix": "errors:", "threshold": 100, "window": "hour"})

    assert (str(one.direction), one.window, one.target) == ("rising", Per.HOUR, Bus())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"window": "week"}, "minute, hour, day, month"),
        ({"window": "day", "step": 5}, "alerts once"),
        ({"window": "day", "rearm": 5}, "alerts once"),
        ({"window": "day", "of": "available"}, "no windows"),
    ],
)
def test_options_that_contradict_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(BadRule, match=text):
        rule(10, **options)


def test_an_initial_scan_reads_no_windows() -> None:
    refuse_now(rule())
    with pytest.raises(BadRule, match="watches windows"):
        refuse_now(windowed())


def _totals(here: World) -> TotalsReader:
    return TotalsReader(connection_on(here.dynamo, here.clock, counters_table=TABLE))


def test_a_rule_is_refused_for_counters_without_its_windows() -> None:
    here = world(finest=Per.DAY)
    totals = _totals(here)

    check_watched(windowed("day"), totals)
    check_watched(windowed("month", prefix=COUNTER), totals)
    check_watched(windowed("minute", prefix="a"), totals)
    with pytest.raises(BadSetting, match="windows enable a --by hour"):
        check_watched(windowed("hour", prefix="a:"), totals)
    with pytest.raises(NoWindows, match="windows enable b --by day"):
        check_watched(windowed("month", prefix="b:"), totals)


def test_a_rule_is_refused_where_windows_were_switched_off() -> None:
    totals = _totals(world(ended_ms=START_MS + HOUR_MS))

    with pytest.raises(NoWindows, match="windows enable a --by day"):
        check_watched(windowed("day", prefix="a:"), totals)


def test_a_rule_is_refused_for_a_strict_counter() -> None:
    here = world()
    strict = {"total": 1, "version": 1, "method": "atomic"}
    here.dynamo.put(Put(TABLE, {**keys.total_key("a:strict"), **strict}))

    with pytest.raises(WrongKind, match="ledger counter as well"):
        check_watched(
            replace(windowed("day"), prefix=None, counter="a:strict"),
            _totals(here),
        )


def test_an_hour_rule_skips_the_days_of_a_setting_without_hours() -> None:
    """Where only days are counted and ranked, the item of a day has one cell: no hour's sum.

    Also of a setting that came after one with hours, whose late events alert still.
    """
    with_hours = setting(finest=Per.HOUR, ended_ms=START_MS)
    days = window_setting(ZONE, id="days", finest=Per.DAY, ranked=4, from_ms=START_MS)
    here = World(rules=[windowed("hour")])
    here.dynamo.put(Put(TABLE, encode_settings(keys.namespace_of(COUNTER), [with_hours, days])))
    of_days = new_windows_id("days", "shard", 1)
    item = f"day#{DAY}"

    outcome = here.deliver(
        [
            record(1, None, {"00": 12}, item=item, windows=of_days),
            record(1, None, {"07": 13}, item=item),
        ]
    )

    assert raised(here) == [("2026-11-22T07+05:30", 13)]
    assert outcome.quarantined == 0
