"""When schedules run: `rate(...)` and `cron(...)` expressions, and EventBridge Scheduler.

Expressions are checked here, so that a mistake is reported at once and by field, and because the
local engine takes any text and then never runs it. The checks follow the documentation of the
service, which has the last word when the schedule is made.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from countledger.ledger.clock import show_duration
from countledger.ledger.errors import BadSetting, Unclear
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS
from countledger.ledger.service_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_scheduler import EventBridgeSchedulerClient

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
# After that the service drops a run that could not be started; due counters stay in the index.
_RETRY: Final[dict[str, int]] = {"MaximumRetryAttempts": 3, "MaximumEventAgeInSeconds": 600}


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a cron expression.

    Attributes:
        name: for messages.
        low, high: the numbers that it takes.
        names: texts for the numbers from `low` on.
        special: further forms that it takes, as a pattern; `{n}` stands for a value.
        steps: whether it takes `/`.
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
    """The expression of a schedule that runs at this interval.

    Raises:
        BadSetting: it is not a whole number of minutes, or longer than a year.
    """
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
    """The expression of a schedule that runs by the calendar, in UTC.

    Args:
        text: six fields (minutes, hours, day of month, month, day of week, year), in `cron(...)`
            or bare.

    Raises:
        BadSetting: naming the field and the rule that it breaks.
    """
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
    for field, value in zip(_FIELDS, fields, strict=True):
        _check_field(field, value, text)
    return f"cron({' '.join(fields)})"


def check_expression(text: str) -> str:
    """The expression in its canonical spelling, if EventBridge Scheduler takes it.

    Raises:
        BadSetting: it is neither `rate(...)` nor `cron(...)`, or breaks a rule of theirs.
    """
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
    """The number of a value, or None if the field does not take it."""
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
    """What a trigger sends to the dispatcher."""
    return json.dumps({"namespace": namespace, "revision": revision})


@dataclass(frozen=True, slots=True)
class TriggerGroup:
    """The stack's schedules at EventBridge Scheduler: to see them, and to delete them.

    Attributes:
        client: of EventBridge Scheduler.
        group: the stack's group of schedules.
    """

    client: EventBridgeSchedulerClient
    group: str

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


@dataclass(frozen=True, slots=True)
class Triggers(TriggerGroup):
    """Creates triggers.

    EventBridge Scheduler has no conditional writes, so a trigger is never changed. A request to
    create or to delete one may arrive after its call has ended. It concerns one revision alone: the
    dispatcher ignores and deletes triggers of other revisions.

    Attributes:
        target_arn: the function that they invoke.
        role_arn: the role under which they do.
    """

    target_arn: str
    role_arn: str

    def put(self, namespace: str, revision: str, expression: str) -> None:
        """Create the trigger of a revision, unless it exists. One call.

        Raises:
            ServiceFailed: the service did not take it; for a bad expression with its reason.
        """
        request = {
            "Name": trigger_name(namespace, revision),
            "GroupName": self.group,
            "ScheduleExpression": expression,
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "State": "ENABLED",
            "Description": f"countledger: compact namespace {namespace!r}"[:512],
            "Target": {
                "Arn": self.target_arn,
                "RoleArn": self.role_arn,
                "Input": trigger_input(namespace, revision),
                "RetryPolicy": _RETRY,
            },
        }
        answer = self._answered("create_schedule", "ConflictException", request)
        # botocore takes every answer with status 200 for a success, also a proxy's page.
        if answer is not None and "ScheduleArn" not in answer:
            raise Unclear(f"schedule of namespace {namespace!r}: no clear answer; try again")
