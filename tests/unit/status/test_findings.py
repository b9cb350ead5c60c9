"""What needs a person is found, with what to do; what does not is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from countledger import Schedule
from countledger.compaction.report import LastRun, WorkDone
from countledger.infra.status.facts import (
    AlarmFact,
    Facts,
    FreshnessFact,
    MappingFact,
    QuarantinedFact,
    QueueFact,
    ScheduleFact,
    StackFact,
)
from countledger.infra.status.findings import LAG_MAX_MS, findings
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS

NOW_MS = 1_900_000_000_000
RUN = LastRun(
    namespace="likes", ticked_at_ms=NOW_MS, due=0, sent=0, worked_at_ms=None, work=WorkDone()
)
HOURLY = ScheduleFact(
    Schedule(namespace="likes", expression="rate(1 hour)", region="r"), "enabled", 3, 1000, RUN
)
MAPPING = MappingFact("MaterializerMapping", "uuid-1", "Enabled", "OK")
HEALTHY = Facts(
    at_ms=NOW_MS,
    stack=StackFact("shop", "UPDATE_COMPLETE", "", NOW_MS, "code.zip"),
    mappings=(MAPPING,),
    queues=(QueueFact("Quarantine", 0, 0), QueueFact("CompactionQueue", 900, 20, HOUR_MS)),
    alarms=(AlarmFact("LagAlarm", "OK", NOW_MS, "", "Totals are behind."),),
    freshness=FreshnessFact(NOW_MS, None, 1),
    schedules=(HOURLY,),
)


def told(**changes: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - any fact
    """Subject and words of what is found where the healthy stack has these facts instead."""
    found = findings(replace(HEALTHY, **changes))
    return [(one.subject, f"{one.says} | {one.do}") for one in found]


def test_a_healthy_stack_needs_nobody() -> None:
    """Work that waits for workers is no fault."""
    assert told() == []


def test_what_is_quarantined_is_found_as_long_as_it_waits() -> None:
    """Its message is forgotten after fourteen days, and its alarm ends with it."""
    fact = QuarantinedFact("ledger", 2, 100, 20 * DAY_MS)
    ((subject, words),) = told(quarantined=(fact,))
    ((_, many),) = told(quarantined=(replace(fact, waiting=100),))

    assert subject == "quarantine of ledger"
    assert words.startswith("action required: 2, the oldest for 20 d")
    assert "countledger quarantine list --source ledger" in words
    assert "100 or more" in many


@pytest.mark.parametrize(
    "status",
    ["CREATE_COMPLETE", "UPDATE_IN_PROGRESS", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"],
)
def test_a_stack_at_rest_or_being_changed_is_left_alone(status: str) -> None:
    """Somebody is at it already."""
    assert told(stack=StackFact("shop", status, "", NOW_MS, "")) == []


@pytest.mark.parametrize(
    ("status", "do"),
    [
        ("UPDATE_ROLLBACK_COMPLETE", "countledger deploy"),
        ("UPDATE_ROLLBACK_FAILED", "continue the rollback"),
        ("CREATE_FAILED", "events"),
        ("ROLLBACK_COMPLETE", "events"),
    ],
)
def test_a_stack_that_failed_is_found(status: str, do: str) -> None:
    """With CloudFormation's reason."""
    ((subject, text),) = told(stack=StackFact("shop", status, "no space", NOW_MS, ""))

    assert subject == "stack"
    assert f"{status}: no space" in text
    assert do in text


@pytest.mark.parametrize(
    ("state", "result", "says"),
    [
        ("Disabled", "OK", "--uuid uuid-1 --enabled"),
        ("Disabling", "OK", "Disabling"),
        ("missing", "", "deleted"),
        ("Enabled", "PROBLEM: Function call failed", "PROBLEM: Function call failed"),
    ],
)
def test_a_mapping_that_reads_nothing_is_found(state: str, result: str, says: str) -> None:
    """Unless a pump of this machine does its work."""
    one = replace(MAPPING, state=state, result=result)

    ((subject, text),) = told(mappings=(one,))

    assert subject == "MaterializerMapping"
    assert says in text
    assert told(mappings=(replace(one, played=True),)) == []


@pytest.mark.parametrize("state", ["Creating", "Enabling", "Updating"])
def test_a_mapping_on_its_way_is_left_alone(state: str) -> None:
    """It is enabled in a minute."""
    assert told(mappings=(replace(MAPPING, state=state),)) == []


def test_totals_are_late_from_five_minutes_on() -> None:
    """Exactly as long as the alarm waits; an old last change alone is a quiet stream."""
    old_ms = NOW_MS - 9 * DAY_MS
    assert told(freshness=FreshnessFact(old_ms, None, 0)) == []
    assert told(freshness=FreshnessFact(old_ms, NOW_MS - LAG_MAX_MS, 0)) == []

    ((_, text),) = told(freshness=FreshnessFact(None, NOW_MS - LAG_MAX_MS - MINUTE_MS, 0))

    assert "6 min later than its ledger" in text
    assert "docs/runbook.md#lagalarm" in text


@pytest.mark.parametrize(
    ("name", "do"),
    [
        ("Quarantine", "countledger quarantine list"),
        ("IngestQuarantine", "--source kinesis"),
        ("IngestExpired", "countledger ingest resend"),
        ("AlertDeadLetters", "countledger alert resend"),
        ("CompactionFailures", "countledger compact"),
    ],
)
@pytest.mark.parametrize(("waiting", "in_flight"), [(2, 0), (1, 1)])
def test_what_lies_in_a_queue_for_people_is_found(
    name: str, do: str, waiting: int, in_flight: int
) -> None:
    """Also while somebody looks at it."""
    ((subject, text),) = told(queues=(QueueFact(name, waiting, in_flight, 3 * HOUR_MS),))

    assert subject == name
    assert "holds 2, the oldest for 3 h" in text
    assert do in text


@pytest.mark.parametrize("state", ["OK", "INSUFFICIENT_DATA"])
def test_an_alarm_that_does_not_ring_is_left_alone(state: str) -> None:
    """No data is what a stack without traffic has."""
    assert told(alarms=(AlarmFact("LagAlarm", state, NOW_MS, "", "d"),)) == []


def test_an_alarm_that_rings_leads_to_its_page() -> None:
    """With its description, and since when."""
    alarm = AlarmFact("LagAlarm", "ALARM", NOW_MS - 2 * HOUR_MS, "r", "Totals are behind.")

    assert told(alarms=(alarm,)) == [
        ("LagAlarm", "for 2 h: Totals are behind. | docs/runbook.md#lagalarm")
    ]


@pytest.mark.parametrize("state", ["disabled", "missing"])
def test_a_schedule_that_does_not_run_is_found(state: str) -> None:
    """Its item says when, and nothing does it."""
    ((subject, text),) = told(schedules=(replace(HOURLY, state=state),))

    assert subject == "schedule likes"
    assert "countledger schedule set likes" in text


@pytest.mark.parametrize(
    ("expression", "hours_ago", "found"),
    [
        ("rate(1 hour)", 3, False),
        ("rate(1 hour)", 4, True),
        ("rate(2 days)", 140, False),
        ("rate(2 days)", 150, True),
        ("cron(0 3 * * ? *)", 1000, False),
    ],
)
def test_ticks_that_stay_away_are_found(expression: str, hours_ago: int, found: bool) -> None:  # noqa: FBT001 - a case
    """After three of them; of a calendar nothing is presumed."""
    schedule = Schedule(namespace="likes", expression=expression, region="r")
    last = replace(RUN, ticked_at_ms=NOW_MS - hours_ago * HOUR_MS)

    assert bool(told(schedules=(replace(HOURLY, schedule=schedule, last=last),))) == found


def test_a_tick_that_did_not_end_is_found_when_it_cannot_end_any_more() -> None:
    """And a schedule that never ticked is young."""
    open_run = replace(RUN, due=None)
    late = replace(open_run, ticked_at_ms=NOW_MS - 11 * MINUTE_MS)

    assert told(schedules=(replace(HOURLY, last=open_run),)) == []
    assert told(schedules=(replace(HOURLY, last=None),)) == []
    ((_, text),) = told(schedules=(replace(HOURLY, last=late),))
    assert "did not end" in text


def test_a_counter_that_could_not_be_compacted_is_named() -> None:
    """With its reason."""
    work = WorkDone(counters=9, failed=1, trouble="likes:a: failed: too big")

    ((_, text),) = told(schedules=(replace(HOURLY, last=replace(RUN, work=work)),))

    assert "likes:a: failed: too big" in text


def test_what_could_not_be_looked_at_is_no_health() -> None:
    """A script must not take blindness for health."""
    assert told(unseen={"alarms": "AccessDenied"})[0][0] == "alarms"
