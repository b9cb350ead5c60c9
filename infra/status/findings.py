"""Which facts of a stack require action, and which action. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from countledger.compaction.schedule import interval_ms
from countledger.consumers.region_state import Phase
from countledger.infra.deploy.account_limits import warnings
from countledger.ledger.clock import show_duration
from countledger.ledger.limits import MINUTE_MS, SECOND_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    from countledger.infra.status.gathering import RegionFact, WindowsFact

LAG_MAX_MS: Final = 5 * MINUTE_MS
# As in the alarm on them.
OVERDUE_MAX_MS: Final = 5 * MINUTE_MS
# A dispatcher's time is five minutes; what has not ended by then never will.
_TICK_MAX_MS: Final = 10 * MINUTE_MS
# A tick may be late by a retry or two of the scheduler, and one may be lost.
_MISSED_TICKS: Final = 3
_STEADY: Final = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE"})
# On their way from one state to another.
_MOVING: Final = frozenset({"Creating", "Enabling", "Updating", "Enabled"})
_PROBLEM: Final = "PROBLEM"
_RUNBOOK: Final = "docs/runbook.md"
_ADVICE: Final = {
    "Quarantine": (
        "records of a stream that could not be applied or evaluated",
        "`countledger quarantine list` shows them with their reasons",
    ),
    "IngestQuarantine": (
        "messages of the stream that can never be counted",
        "`countledger quarantine list --source kinesis` shows them with their reasons",
    ),
    "IngestExpired": (
        "messages that waited in the stream for longer than their horizon, not counted",
        (
            "`countledger quarantine expired` shows which were counted, `countledger quarantine "
            "resend --all --source kinesis` counts the others"
        ),
    ),
    "AlertDeadLetters": (
        "alerts that their bus or topic did not take",
        "correct the target, then `countledger alert resend`",
    ),
    "CompactionFailures": (
        "counters that could not be compacted in several attempts",
        "`countledger compact` on one of them shows why; then purge the queue",
    ),
}
# The sources of the quarantine that a queue has messages about.
_NOTICES_OF: Final = {"Quarantine": ("ledger", "counters"), "IngestQuarantine": ("kinesis",)}
_QUARANTINED: Final = {
    "ledger": "in no total, or not in windows",
    "counters": "seen by no alert rule",
    "kinesis": "not in the ledger",
}


@dataclass(frozen=True, slots=True)
class StatusFinding:
    """A fact that requires action; its subject has the name in the template, if it has one."""

    subject: str
    says: str
    do: str


def findings(facts: Facts) -> list[StatusFinding]:
    """Those of the stack first."""
    return list(_findings(facts))


def _findings(facts: Facts) -> Iterator[StatusFinding]:
    if facts.stack is not None:
        yield from _of_stack(facts.stack)
    yield from _of_region(facts.region, facts.at_ms)
    for mapping in facts.mappings:
        yield from _of_mapping(mapping)
    if facts.freshness is not None:
        yield from _of_freshness(facts.freshness, facts.at_ms)
    yield from _of_quarantines(facts)
    if facts.overdue_holds_ms > OVERDUE_MAX_MS:
        age = show_duration(_whole_seconds(facts.overdue_holds_ms))
        yield StatusFinding(
            "holds",
            f"the oldest expired hold could have been released {age} ago",
            f"{_RUNBOOK}#overdueholdsalarm",
        )
    for alarm in facts.alarms:
        yield from _of_alarm(alarm, facts.at_ms)
    for schedule in facts.schedules:
        yield from _of_schedule(schedule, facts.at_ms)
    for windows in facts.windows:
        yield from _of_windows(windows)
    parameters = facts.stack.parameters if facts.stack is not None else {}
    for text in warnings(facts.quotas, parameters):
        yield StatusFinding("account", text, "Service Quotas of AWS, or `countledger deploy`")
    for what, why in facts.unseen.items():
        yield StatusFinding(
            what, f"could not be read: {why}", "correct that, then run status again"
        )


def _of_region(region: RegionFact | None, now_ms: int) -> Iterator[StatusFinding]:
    if region is None or region.phase is Phase.READY:
        return
    age = show_duration(_whole_seconds(max(0, now_ms - (region.since_ms or now_ms))))
    yield StatusFinding(
        "region",
        f"its totals have been rebuilding for {age}: no total is read, no alert is evaluated",
        f"unless `countledger region add {region.name}` runs, start it again: it continues",
    )


def _of_stack(stack: StackFact) -> Iterator[StatusFinding]:
    if stack.status in _STEADY or stack.status.endswith("_IN_PROGRESS"):
        return
    says = f"it is {stack.status}" + (f": {stack.reason}" if stack.reason else "")
    if stack.status == "UPDATE_ROLLBACK_COMPLETE":
        do = "the last deployment failed and was taken back: run `countledger deploy` again"
    elif stack.status.endswith("ROLLBACK_FAILED"):
        do = "continue the rollback in CloudFormation, then run `countledger deploy` again"
    else:
        do = "look at its events in CloudFormation"
    yield StatusFinding("stack", says, do)


def _of_mapping(mapping: MappingFact) -> Iterator[StatusFinding]:
    if mapping.played:
        return
    if mapping.state == "missing":
        yield StatusFinding(
            mapping.name,
            "it was deleted: nothing reads its source",
            "have the stack create it again (docs/runbook.md#a-mapping-or-a-stream-is-gone)",
        )
    elif mapping.state not in _MOVING:
        yield StatusFinding(
            mapping.name,
            f"it is {mapping.state}: nothing reads its source, which forgets after a while",
            f"aws lambda update-event-source-mapping --uuid {mapping.id} --enabled",
        )
    elif mapping.result.startswith(_PROBLEM):
        yield StatusFinding(mapping.name, mapping.result, "read the log of its function")


def _of_freshness(freshness: FreshnessFact, now_ms: int) -> Iterator[StatusFinding]:
    since_ms = freshness.waiting_since_ms
    if since_ms is None or now_ms - since_ms <= LAG_MAX_MS:
        return
    yield StatusFinding(
        "totals",
        f"the oldest is {show_duration(_whole_seconds(now_ms - since_ms))} later than its ledger, "
        "and so are windows",
        f"{_RUNBOOK}#lagalarm; what is unread after 24 hours needs `countledger repair --all`",
    )


def _of_queue(queue: QueueFact) -> Iterator[StatusFinding]:
    if queue.name not in _ADVICE or not queue.waiting + queue.in_flight:
        return
    what, do = _ADVICE[queue.name]
    old = f", the oldest for {show_duration(queue.oldest_ms)}" if queue.oldest_ms else ""
    yield StatusFinding(queue.name, f"it holds {queue.waiting + queue.in_flight}{old}: {what}", do)


def _of_quarantines(facts: Facts) -> Iterator[StatusFinding]:
    sources = {one.source for one in facts.quarantined}
    for queue in facts.queues:
        # Its messages only point at what the quarantine itself shows.
        if sources.isdisjoint(_NOTICES_OF.get(queue.name, ())):
            yield from _of_queue(queue)
    for waiting in facts.quarantined:
        yield from _of_quarantine(waiting)
    if facts.foreign.count:
        yield StatusFinding(
            "ledger",
            f"items of its table that countledger did not write: {facts.foreign.count}, such as "
            f"{facts.foreign.first!r}",
            "`countledger verify --all` names them; find out what writes them, and delete them",
        )


def _of_quarantine(fact: QuarantinedFact) -> Iterator[StatusFinding]:
    count = f"{fact.waiting} or more" if fact.waiting >= fact.waiting_max else f"{fact.waiting}"
    oldest = show_duration(_whole_seconds(fact.oldest_ms))
    yield StatusFinding(
        f"quarantine of {fact.source}",
        f"waiting: {count} ({_QUARANTINED[fact.source]}), the oldest for {oldest}",
        f"`countledger quarantine list --source {fact.source}` shows why; then resend or discard",
    )


def _of_alarm(alarm: AlarmFact, now_ms: int) -> Iterator[StatusFinding]:
    if alarm.state == "ALARM":
        lasting = show_duration(max(0, _whole_seconds(now_ms - alarm.since_ms)))
        yield StatusFinding(
            alarm.name,
            f"for {lasting}: {alarm.description}",
            f"{_RUNBOOK}#{alarm.name.lower()}",
        )


def _of_schedule(fact: ScheduleFact, now_ms: int) -> Iterator[StatusFinding]:
    name = fact.schedule.namespace
    subject = f"schedule {name}"
    if fact.state != "enabled":
        yield StatusFinding(
            subject,
            f"its trigger is {fact.state}: nothing of the namespace is compacted",
            f"`countledger schedule set {name}` with any option writes it again",
        )
    last = fact.last
    if last is None:
        return
    every_ms = interval_ms(fact.schedule.expression)
    ago_ms = now_ms - last.ticked_at_ms
    if every_ms is not None and ago_ms > _MISSED_TICKS * every_ms + _TICK_MAX_MS:
        yield StatusFinding(
            subject,
            f"its last tick was {show_duration(_whole_seconds(ago_ms))} ago",
            f"{_RUNBOOK}#dispatchererroralarm",
        )
    elif last.due is None and ago_ms > _TICK_MAX_MS:
        yield StatusFinding(
            subject, "its last tick did not end", f"{_RUNBOOK}#dispatchererroralarm"
        )
    if last.work.trouble:
        yield StatusFinding(
            subject,
            f"a counter could not be compacted: {last.work.trouble}",
            "`countledger compact` on it shows why; its numbers are right",
        )


def _of_windows(fact: WindowsFact) -> Iterator[StatusFinding]:
    if fact.newer is not None:
        yield StatusFinding(
            f"windows {fact.namespace}",
            f"time zone {fact.time_zone} has other rules in tzdata {fact.newer}; they follow those "
            f"of {fact.tzdata}",
            f"`countledger windows enable {fact.namespace}` with the values of `countledger "
            "windows list`: the new rules hold from then on",
        )


def _whole_seconds(duration_ms: int) -> int:
    return duration_ms // SECOND_MS * SECOND_MS
