"""What needs a person is found, with what to do; nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from countledger import Schedule
from countledger.compaction.report import LastRun, WorkDone
from countledger.consumers.audit import ForeignItems
from countledger.consumers.region_state import Phase
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
from countledger.infra.status.findings import LAG_MAX_MS, OVERDUE_MAX_MS, findings
from countledger.infra.status.gathering import RegionFact, WindowsFact
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


def test_a_region_that_is_rebuilding_is_found_with_what_continues_it() -> None:
    joined = RegionFact("eu-west-1", "us-east-1", Phase.REBUILDING, NOW_MS - HOUR_MS)

    ((subject, text),) = _found(region=joined)

    assert subject == "region"
    assert "for 1 h" in text
    assert "`countledger region add eu-west-1`" in text
    assert not _found(region=replace(joined, phase=Phase.READY))


def test_holds_that_outlive_their_time_are_found() -> None:
    ((subject, text),) = _found(overdue_holds_ms=OVERDUE_MAX_MS + 1)

    assert subject == "holds"
    assert "released 5 min ago | docs/runbook.md#overdueholdsalarm" in text
    assert not _found(overdue_holds_ms=OVERDUE_MAX_MS)


def test_windows_whose_zone_has_newer_rules_are_found() -> None:
    """The stored rules stay what they are until somebody repeats the command."""
    old = WindowsFact("views", "hour", "Europe/Berlin", "2026a", None, NOW_MS, None)

    ((subject, text),) = _found(windows=(replace(old, newer="2027b"),))

    assert subject == "windows views"
    assert "Europe/Berlin has other rules in tzdata 2027b" in text
    assert "`countledger windows enable views`" in text
    assert not _found(windows=(old,))


def _found(**changes: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - any fact
    """Subject and text of what is found where the healthy stack has these facts instead."""
    found = findings(replace(HEALTHY, **changes))
    return [(one.subject, f"{one.says} | {one.do}") for one in found]


def _stack(status: str, reason: str = "") -> dict[str, Any]:
    return {"stack": StackFact("shop", status, reason, NOW_MS, "")}


def _mapping(state: str, result: str = "OK", *, played: bool = False) -> dict[str, Any]:
    return {"mappings": (replace(MAPPING, state=state, result=result, played=played),)}


def _queue(name: str, waiting: int = 2, in_flight: int = 0) -> dict[str, Any]:
    return {"queues": (QueueFact(name, waiting, in_flight, 3 * HOUR_MS),)}


def _alarm(state: str) -> dict[str, Any]:
    since_ms = NOW_MS - 2 * HOUR_MS
    return {"alarms": (AlarmFact("LagAlarm", state, since_ms, "r", "Totals are behind."),)}


def _fresh(changed_ago_ms: int | None, waiting_ago_ms: int | None) -> dict[str, Any]:
    changed, waiting = (
        ago_ms if ago_ms is None else NOW_MS - ago_ms for ago_ms in (changed_ago_ms, waiting_ago_ms)
    )
    return {"freshness": FreshnessFact(changed, waiting, 0)}


def _schedule(expression: str = "rate(1 hour)", **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    schedule = Schedule(namespace="likes", expression=expression, region="r")
    return {"schedules": (replace(HOURLY, schedule=schedule, **changes),)}


def _ticked(hours_ago: int) -> LastRun:
    return replace(RUN, ticked_at_ms=NOW_MS - hours_ago * HOUR_MS)


_OPEN = replace(RUN, due=None)
_HEALTHY: dict[str, dict[str, Any]] = {
    "work that waits for workers": {},
    "a stack at rest": _stack("CREATE_COMPLETE"),
    "a stack that is being updated": _stack("UPDATE_IN_PROGRESS"),
    "a stack that is being cleaned up": _stack("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"),
    **{f"a mapping that is {one}": _mapping(one) for one in ("Creating", "Enabling", "Updating")},
    "a mapping whose work a pump does": _mapping("Disabled", played=True),
    "a missing mapping whose work a pump does": _mapping("missing", "", played=True),
    "a quiet stream": _fresh(9 * DAY_MS, None),
    "a lag as long as the alarm waits": _fresh(9 * DAY_MS, LAG_MAX_MS),
    "an alarm that is OK": _alarm("OK"),
    "an alarm without data, as without traffic": _alarm("INSUFFICIENT_DATA"),
    "three hours without an hourly tick": _schedule(last=_ticked(3)),
    "six days without a tick every two days": _schedule("rate(2 days)", last=_ticked(140)),
    "a calendar, of which nothing is presumed": _schedule("cron(0 3 * * ? *)", last=_ticked(999)),
    "a tick that can still end": _schedule(last=_OPEN),
    "a schedule that never ticked": _schedule(last=None),
}


@pytest.mark.parametrize("changes", _HEALTHY.values(), ids=_HEALTHY)
def test_what_needs_nobody_is_not_found(changes: dict[str, Any]) -> None:
    assert _found(**changes) == []


_QUARANTINED = QuarantinedFact("ledger", 2, 100, 20 * DAY_MS)
_FAILED = replace(RUN, work=WorkDone(counters=9, failed=1, trouble="likes:a: too big"))
_MAPPING, _SCHEDULE = "MaterializerMapping", "schedule likes"
_LATE = replace(_OPEN, ticked_at_ms=NOW_MS - 11 * MINUTE_MS)
_BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    # the facts, the subject, what the text names
    "a quarantine": (
        {"quarantined": (_QUARANTINED,)},
        "quarantine of ledger",
        "waiting: 2 (in no total, or not in windows), the oldest for 20 d|quarantine list --source",
    ),
    "a full quarantine": (
        {"quarantined": (replace(_QUARANTINED, waiting=100),)},
        "quarantine of ledger",
        "100 or more",
    ),
    "foreign items": (
        {"foreign": ForeignItems(3, "a user#1")},
        "ledger",
        "3, such as 'a user#1'|countledger verify --all",
    ),
    "an update undone": (_stack("UPDATE_ROLLBACK_COMPLETE"), "stack", "countledger deploy"),
    "a rollback that failed": (_stack("UPDATE_ROLLBACK_FAILED"), "stack", "continue the rollback"),
    "a creation that failed": (_stack("CREATE_FAILED", "no"), "stack", "CREATE_FAILED: no|events"),
    "a creation that was undone": (_stack("ROLLBACK_COMPLETE"), "stack", "events"),
    "a mapping that is off": (_mapping("Disabled"), _MAPPING, "--uuid uuid-1 --enabled"),
    "a mapping that goes off": (_mapping("Disabling"), _MAPPING, "Disabling"),
    "a mapping that is gone": (_mapping("missing", ""), _MAPPING, "deleted"),
    "a mapping that fails": (_mapping("Enabled", "PROBLEM: failed"), _MAPPING, "PROBLEM: failed"),
    "late totals": (_fresh(None, LAG_MAX_MS + MINUTE_MS), "totals", "6 min later than its ledger"),
    **{
        f"messages in {name}": (_queue(name), name, f"holds 2, the oldest for 3 h|{do}")
        for name, do in (
            ("Quarantine", "countledger quarantine list"),
            ("IngestQuarantine", "--source kinesis"),
            ("IngestExpired", "countledger quarantine expired"),
            ("AlertDeadLetters", "countledger alert resend"),
            ("CompactionFailures", "countledger compact"),
        )
    },
    "a message that somebody reads": (_queue("Quarantine", 1, 1), "Quarantine", "holds 2"),
    "an alarm": (_alarm("ALARM"), "LagAlarm", "for 2 h: Totals are behind.|runbook.md#lagalarm"),
    "a trigger that is off": (_schedule(state="disabled"), _SCHEDULE, "schedule set likes"),
    "a trigger that is gone": (_schedule(state="missing"), _SCHEDULE, "schedule set likes"),
    "four hours without an hourly tick": (_schedule(last=_ticked(4)), _SCHEDULE, ""),
    "150 hours at a tick in 2 days": (_schedule("rate(2 days)", last=_ticked(150)), _SCHEDULE, ""),
    "a tick that cannot end any more": (_schedule(last=_LATE), _SCHEDULE, "did not end"),
    "a counter that is not compacted": (_schedule(last=_FAILED), _SCHEDULE, "likes:a: too big"),
    "what could not be read": ({"unseen": {"alarms": "AccessDenied"}}, "alarms", "AccessDenied"),
}


@pytest.mark.parametrize(("changes", "subject", "text"), _BAD.values(), ids=_BAD)
def test_what_needs_a_person_is_found_with_what_to_do(
    changes: dict[str, Any], subject: str, text: str
) -> None:
    ((found, says),) = _found(**changes)

    assert found == subject
    assert all(part in says for part in text.split("|"))


def test_a_quarantined_record_and_its_message_are_one_finding() -> None:
    both = _queue("Quarantine", waiting=1) | {"quarantined": (replace(_QUARANTINED, waiting=1),)}
    assert [subject for subject, _ in _found(**both)] == ["quarantine of ledger"]
    of_another = _queue("IngestQuarantine", waiting=1) | {"quarantined": (_QUARANTINED,)}
    assert [subject for subject, _ in _found(**of_another)] == [
        "IngestQuarantine",
        "quarantine of ledger",
    ]
