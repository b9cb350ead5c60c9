"""What a user says of a schedule, and the schedule that it makes. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from countledger.compaction import expression
from countledger.compaction.schedule import Schedule
from countledger.ledger.errors import BadSetting

if TYPE_CHECKING:
    from countledger.compaction.retire import Retire


class ScheduleSpec(TypedDict, total=False):
    """What a user says of a schedule; what is left out has its default, or stays.

    Attributes:
        every_ms: how often it runs, in whole minutes; or
        cron: when it runs: six fields, in UTC.
        min_entries: from how many entries not yet compacted on a counter is worth a run.
        min_age_ms: how old an entry has to be at least; None: no older than it must be.
        retire: how merged entries are deleted.
        archive: where they are kept before that (`s3://bucket/prefix`); None: nowhere.
    """

    every_ms: int
    cron: str
    min_entries: int
    min_age_ms: int | None
    retire: Retire
    archive: str | None


def by_default(namespace: str, region: str, spec: ScheduleSpec) -> Schedule:
    """A new schedule before its spec comes true: all that the spec leaves out.

    Raises:
        BadSetting: the spec does not say when the schedule runs.
    """
    if "every_ms" not in spec and "cron" not in spec:
        raise BadSetting(
            f"the schedule of namespace {namespace!r} does not say when: give every or cron"
        )
    return Schedule(namespace=namespace, expression="rate(1 day)", region=region)


def changed(schedule: Schedule, spec: ScheduleSpec) -> Schedule:
    """The schedule with what is wished otherwise.

    Raises:
        BadSetting: a value breaks its rule, or two exclude each other.
    """
    changes: dict[str, Any] = {**spec}
    every_ms, cron = changes.pop("every_ms", None), changes.pop("cron", None)
    if every_ms is not None and cron is not None:
        raise BadSetting(
            "a schedule runs by an interval or by the calendar: not both every and cron"
        )
    if every_ms is not None:
        changes["expression"] = expression.rate(every_ms)
    if cron is not None:
        changes["expression"] = expression.cron(cron)
    return replace(schedule, **changes)
