"""A schedule as a value: when and how counters of a namespace are compacted; and its triggers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypedDict

from botocore.exceptions import ClientError

from countledger.compaction.archive import ArchiveLocation
from countledger.compaction.report import Retire
from countledger.ledger import keys
from countledger.ledger.attributes import Item, check_format, optional, require
from countledger.ledger.clock import show_duration
from countledger.ledger.errors import (
    BadSetting,
    CorruptItem,
    NoSuchSchedule,
    ScheduleExists,
    Unclear,
    WrongKind,
    WrongRegion,
    shown,
)
from countledger.ledger.limits import (
    DAY_MS,
    HOUR_MS,
    MIN_ENTRIES_DEFAULT,
    MIN_ENTRIES_MAX,
    MIN_ENTRIES_MIN,
    MINUTE_MS,
)
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Absent, AnyOf, Compare, Put
from countledger.ledger.records import write_of
from countledger.ledger.service_errors import translated
from countledger.ledger.tombstones import present

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.compaction.lease import Epoch
    from countledger.compaction.plan import AgeLimit
    from countledger.ledger.connection import Connection
    from countledger.ledger.namespace import Namespace


# When schedules run: `rate(...)` and `cron(...)` expressions, and EventBridge Scheduler.
#
# Expressions are checked here, so that a mistake is reported at once and by field, and because the
# local engine takes any text and then never runs it. The checks follow the documentation of the
# service, which has the last word when the schedule is made.


RATE_MAX_MS: Final = 366 * DAY_MS
# The state of a trigger that the service does not have.
MISSING: Final = "missing"
_UNITS: Final = ((DAY_MS, "day"), (HOUR_MS, "hour"), (MINUTE_MS, "minute"))
_UNIT_MS: Final = {name: unit_ms for unit_ms, name in _UNITS}
_RATE: Final = re.compile(r"rate\((\d{1,9}) (minute|hour|day)(s?)\)", re.ASCII)
_CRON: Final = re.compile(r"cron\(([^()]*)\)")
_MONTHS: Final = (
    *("JAN", "FEB", "MAR", "APR", "MAY", "JUN"),
    *("JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# A schedule's name at the service: 64 characters, of these alone.
_FOREIGN: Final = re.compile(r"[^0-9A-Za-z_.-]")
_LEGIBLE: Final = 40
_DIGEST_BYTES: Final = 10
# After that the service drops a tick that it could not hand over to Lambda; due counters stay in
# the index. Lambda then has as long to start the run, by the dispatcher's EventInvokeConfig.
TRIGGER_RETRY: Final[dict[str, int]] = {"MaximumRetryAttempts": 3, "MaximumEventAgeInSeconds": 600}


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a cron expression.

    `names` are texts for the numbers from `low` on; `special` is a pattern of further forms that it
    takes, in which `{n}` stands for a value.
    """

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    special: str | None = None
    steps: bool = True


_FIELDS: Final = (
    _Field("minutes", 0, 59),
    _Field("hours", 0, 23),
    _Field("day of month", 1, 31, special=r"L|(?P<n>\w+)W"),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 1, 7, _DAYS, special=r"L|(?P<n>\w+)L|(?P<m>\w+)#[1-5]", steps=False),
    _Field("year", 1970, 2199),
)
_DAY_OF_MONTH: Final = 2
_DAY_OF_WEEK: Final = 4


def rate(every_ms: int) -> str:
    """The expression of a schedule that runs at this interval, in whole minutes up to a year."""
    if every_ms < MINUTE_MS or every_ms % MINUTE_MS or every_ms > RATE_MAX_MS:
        raise BadSetting(
            f"a schedule cannot run every {show_duration(every_ms)}: give whole minutes, at least "
            "1m and at most 366d"
        )
    for unit_ms, name in _UNITS:
        count, rest = divmod(every_ms, unit_ms)
        if not rest:
            return f"rate({count} {name}{'' if count == 1 else 's'})"
    raise AssertionError("a whole number of minutes has a unit")


def cron(text: str) -> str:
    """The expression of a schedule that runs by the calendar, in UTC, from its six fields."""
    match = _CRON.fullmatch(text.strip())
    fields = (match[1] if match else text).split()
    if len(fields) != len(_FIELDS):
        raise BadSetting(
            f"cron expression {text!r} has {len(fields)} fields and not 6: minutes, hours, day of "
            "month, month, day of week, year, as in '0 3 * * ? *'"
        )
    if (fields[_DAY_OF_MONTH] == "?") == (fields[_DAY_OF_WEEK] == "?"):
        raise BadSetting(
            f"cron expression {text!r}: exactly one of day of month and day of week must be '?', "
            "as in '0 3 * * ? *' or '0 3 ? * MON *'"
        )
    for name, value in zip(_FIELDS, fields, strict=True):
        _check_field(name, value, text)
    return f"cron({' '.join(fields)})"


def check_expression(text: str) -> str:
    """The expression in its canonical spelling, if EventBridge Scheduler takes it."""
    if text.startswith("cron("):
        return cron(text)
    every_ms = interval_ms(text)
    if every_ms is None:
        raise BadSetting(
            f"schedule expression {text!r} is neither rate(15 minutes) nor cron(0 3 * * ? *)"
        )
    return rate(every_ms)


def interval_ms(expression: str) -> int | None:
    """How often a `rate(...)` runs; None for a `cron(...)`."""
    match = _RATE.fullmatch(expression)
    return int(match[1]) * _UNIT_MS[match[2]] if match else None


def _check_field(field: _Field, value: str, text: str) -> None:
    if value == "?" and field.special is not None:
        return
    parts = value.split(",")
    for part in parts:
        if not _is_part(field, part):
            names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
            raise BadSetting(
                f"cron expression {text!r}: {part!r} is no {field.name}; it takes {field.low} to "
                f"{field.high}{names}, lists, rising ranges{', steps' if field.steps else ''} and *"
            )
    if len(parts) > 1 and "#" in value:
        raise BadSetting(f"cron expression {text!r}: a day of week with '#' must be the only one")


def _is_part(field: _Field, part: str) -> bool:
    """Whether one element of a field's list is well formed: `5`, `1-5`, `*/5`, `3W`."""
    if field.special is not None and (match := re.fullmatch(field.special, part, re.ASCII)):
        return all(n is None or _number(field, n) is not None for n in match.groups())
    span, slash, step = part.partition("/")
    if slash and not (field.steps and step.isdecimal() and 1 <= int(step) <= field.high):
        return False
    if span == "*":
        return True
    first, dash, last = span.partition("-")
    low = _number(field, first)
    high = _number(field, last) if dash else low
    return low is not None and high is not None and low <= high


def _number(field: _Field, text: str) -> int | None:
    if text.upper() in field.names:
        return field.low + field.names.index(text.upper())
    if not (text.isascii() and text.isdecimal()):
        return None
    number = int(text)
    return number if field.low <= number <= field.high else None


def trigger_name(namespace: str, revision: str) -> str:
    """The name of the trigger of one revision of a schedule: legible and unique."""
    # No namespace contains a '#'.
    of = f"{namespace}#{revision}".encode()
    digest = blake2b(of, digest_size=_DIGEST_BYTES).hexdigest()
    return f"{_FOREIGN.sub('_', namespace)[:_LEGIBLE]}-{digest}"


def trigger_input(namespace: str, revision: str) -> str:
    return json.dumps({"namespace": namespace, "revision": revision})


class Triggers:
    """The stack's schedules at EventBridge Scheduler, in the home region (else WrongRegion).

    The service has no conditional writes, so a trigger is never changed. A request to create or to
    delete one may arrive after its call has ended. It concerns one revision alone: the dispatcher
    ignores and deletes triggers of other revisions.
    """

    def __init__(self, connection: Connection) -> None:
        self.client = connection.scheduler()
        self.group = connection.setting("schedule_group")
        self._setting = connection.setting

    def put(self, namespace: str, revision: str, expression: str) -> None:
        """Create the trigger of a revision, unless it exists: one call, or ServiceFailed."""
        request = {
            "Name": trigger_name(namespace, revision),
            "GroupName": self.group,
            "ScheduleExpression": expression,
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "State": "ENABLED",
            "Description": f"countledger: compact namespace {namespace!r}"[:512],
            "Target": {
                "Arn": self._setting("dispatcher_arn"),
                "RoleArn": self._setting("scheduler_role_arn"),
                "Input": trigger_input(namespace, revision),
                "RetryPolicy": TRIGGER_RETRY,
            },
        }
        answer = self._answered("create_schedule", "ConflictException", request)
        # botocore takes every answer with status 200 for a success, also a proxy's page.
        if answer is not None and "ScheduleArn" not in answer:
            raise Unclear(f"schedule of namespace {namespace!r}: no clear answer; try again")

    def delete(self, namespace: str, revision: str) -> None:
        """Delete the trigger of a revision, if it exists. One call."""
        request = {"Name": trigger_name(namespace, revision), "GroupName": self.group}
        self._answered("delete_schedule", "ResourceNotFoundException", request)

    def state(self, namespace: str, revision: str) -> str:
        """`enabled` or `disabled`, or `MISSING` if the service has none. One call."""
        request = {"Name": trigger_name(namespace, revision), "GroupName": self.group}
        answer = self._answered("get_schedule", "ResourceNotFoundException", request)
        return str(answer["State"]).lower() if answer else MISSING

    def _answered(self, operation: str, refusal: str, request: dict[str, Any]) -> Any:  # noqa: ANN401
        """The answer, or None if the service refused for this reason."""
        with translated(f"{operation} of {request['Name']}"):
            try:
                return getattr(self.client, operation)(**request)
            except ClientError as error:
                if error.response["Error"]["Code"] != refusal:
                    raise
                return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When and how the counters of a namespace are compacted.

    Attributes:
        namespace: whose counters.
        expression: when: `rate(...)` or `cron(...)`, in UTC.
        region: where it runs, the home region.
        min_entries: from how many uncompacted entries on a counter is worth a run.
        min_age_ms: the minimum age of an entry; None: the limit of the namespace.
        retire: how merged entries are deleted.
        archive: where they are kept before that (`s3://bucket/prefix`); None: nowhere.
        revision: the id of the write that stored it; None: it was not read. Not compared.

    Raises:
        BadSetting: naming the value and the rule that it breaks.
    """

    namespace: str
    expression: str
    region: str
    min_entries: int = MIN_ENTRIES_DEFAULT
    min_age_ms: int | None = None
    retire: Retire = Retire.TRANSACTION
    archive: str | None = None
    revision: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        keys.check_namespace(self.namespace)
        # Canonical, so that two expressions of one meaning are equal.
        object.__setattr__(self, "expression", check_expression(self.expression))
        if not MIN_ENTRIES_MIN <= self.min_entries <= MIN_ENTRIES_MAX:
            raise BadSetting(
                f"a minimum of {shown(self.min_entries)} entries is not between {MIN_ENTRIES_MIN} "
                f"and {MIN_ENTRIES_MAX}"
            )
        if self.min_age_ms is not None and self.min_age_ms <= 0:
            raise BadSetting(f"a minimum age of {show_duration(self.min_age_ms)} is not above zero")
        if self.retire not in list(Retire):
            raise BadSetting(f"retire {self.retire!r} is not one of {', '.join(Retire)}")
        if self.archive is not None:
            ArchiveLocation.parse(self.archive)

    def describe(self) -> str:
        """The schedule in a few words, for a message."""
        age = "" if self.min_age_ms is None else f", min-age {show_duration(self.min_age_ms)}"
        archive = "" if self.archive is None else f", archive {self.archive}"
        return (
            f"{self.expression}, min-entries {self.min_entries}{age}, retire {self.retire}{archive}"
        )


class ScheduleSpec(TypedDict, total=False):
    """What a user sets of a schedule; a missing value has its default, or stays.

    Attributes:
        every_ms: how often it runs, in whole minutes; or
        cron: when it runs: six fields, in UTC.
        min_entries: from how many uncompacted entries on a counter is worth a run.
        min_age_ms: the minimum age of an entry; None: the limit of the namespace.
        retire: how merged entries are deleted.
        archive: where they are kept before that (`s3://bucket/prefix`); None: nowhere.
    """

    every_ms: int
    cron: str
    min_entries: int
    min_age_ms: int | None
    retire: Retire
    archive: str | None


def new_schedule(namespace: str, region: str, spec: ScheduleSpec) -> Schedule:
    """A new schedule; `spec` must say when it runs, by `every_ms` or by `cron`."""
    if "every_ms" not in spec and "cron" not in spec:
        raise BadSetting(
            f"the schedule of namespace {namespace!r} needs an interval: every or cron"
        )
    default = Schedule(namespace=namespace, expression="rate(1 day)", region=region)
    return changed_schedule(default, spec)


def changed_schedule(schedule: Schedule, spec: ScheduleSpec) -> Schedule:
    changes: dict[str, Any] = {**spec}
    every_ms, calendar = changes.pop("every_ms", None), changes.pop("cron", None)
    if every_ms is not None and calendar is not None:
        raise BadSetting(
            "a schedule runs by an interval or by the calendar: not both every and cron"
        )
    if every_ms is not None:
        changes["expression"] = rate(every_ms)
    if calendar is not None:
        changes["expression"] = cron(calendar)
    return replace(schedule, **changes)


def encode_schedule(schedule: Schedule, age_ms: int, unswept_since_ms: int | None = None) -> Item:
    """The schedule's item in `counters`.

    The materializer, which knows no horizon, sets the due times by `age_ms`: how old an entry must
    be in total. Counters may be missing in the due index since `unswept_since_ms`; None: none is.
    """
    return {
        **keys.schedule_key(schedule.namespace),
        "expression": schedule.expression,
        "region": schedule.region,
        "min_entries": schedule.min_entries,
        "min_age_ms": schedule.min_age_ms,
        "age_ms": age_ms,
        "retire": str(schedule.retire),
        "archive": schedule.archive,
        "unswept_since": unswept_since_ms,
    }


def unswept_since_ms(item: Item) -> int | None:
    """Since when counters of a schedule may be missing in the due index; None: none is."""
    return optional(item, "unswept_since", int)


def decode_schedule(item: Item) -> Schedule:
    check_format(item)
    namespace = require(item, "counter", str).removeprefix(keys.NAMESPACE_PREFIX)
    try:
        return Schedule(
            namespace=namespace,
            expression=require(item, "expression", str),
            region=require(item, "region", str),
            min_entries=require(item, "min_entries", int),
            min_age_ms=optional(item, "min_age_ms", int),
            retire=Retire(require(item, "retire", str)),
            archive=optional(item, "archive", str),
            revision=write_of(item),
        )
    except ValueError as error:
        raise CorruptItem(f"schedule of namespace {namespace!r}: {error}", item) from error


def schedule_in(item: Item | None) -> Schedule | None:
    """The schedule that was read; None: there was no item, or the tombstone of a deleted one."""
    found = present(item)
    return None if found is None else decode_schedule(found)


def stored_schedule(connection: Connection, namespace: str) -> Schedule | None:
    """The schedule of a namespace, or None. One read unit."""
    key = keys.schedule_key(namespace)
    return schedule_in(connection.retrying.get(connection.counters, key, consistent=True))


def revision_of(item: Item | None) -> str | None:
    """The revision of the stored schedule, or of the deleted one in whose place a tombstone is."""
    return None if item is None else write_of(item)


def taken_over(table: str, namespace: str, epoch: Epoch) -> Put:
    """Shows by which promotion a schedule came, also once it was deleted; each takes it once."""
    item = {**keys.taken_over_key(namespace), "epoch": epoch.number}
    return Put(table, item, AnyOf(Absent("epoch"), Compare("epoch", "<", epoch.number)))


def refuse_region_of(schedule: Schedule, home_region: str) -> None:
    """A table restored in another region contains schedules of the region before: WrongRegion."""
    if schedule.region != home_region:
        raise WrongRegion(
            f"the schedule of namespace {schedule.namespace!r} is for region {schedule.region}, "
            f"and this stack's home is {home_region}: delete it, and create it again"
        )


def age_ms_in(
    namespace: Namespace, schedule: Schedule, limit: Callable[[Namespace], AgeLimit]
) -> int:
    """How old an entry of a namespace must be under a schedule; WrongKind: it has no ledger."""
    if namespace.kind is not Kind.LEDGER:
        raise WrongKind(
            f"namespace {namespace.name!r} is of kind {namespace.kind}; only counters of kind "
            f"{Kind.LEDGER} have entries to compact"
        )
    return limit(namespace).with_min_age(schedule.min_age_ms).age_ms


def no_schedule(namespace: str) -> NoSuchSchedule:
    return NoSuchSchedule(
        f"namespace {namespace!r} has no schedule: `countledger schedule create {namespace}` makes "
        "one"
    )


def exists_already(schedule: Schedule) -> ScheduleExists:
    return ScheduleExists(
        f"namespace {schedule.namespace!r} has a schedule ({schedule.describe()}): "
        f"`countledger schedule set {schedule.namespace}` changes it"
    )
