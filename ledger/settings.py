"""Settings of a process, from the environment: `COUNTLEDGER_*`; and where its calls go.

A plain dataclass: every process reads settings before its first call, and a validation library
would double what it imports for that.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from countledger.ledger.errors import BadSetting, StackNotFound
from countledger.ledger.limits import (
    ATTEMPTS_OF_A_CALL_MAX,
    CALL_TIMEOUT_DEFAULT_MS,
    CALL_TIMEOUT_MAX_MS,
    CLOCK_SKEW_DEFAULT_MS,
    CONNECT_TIMEOUT_DEFAULT_MS,
    DAY_MS,
    HOUR_MS,
    READ_TIMEOUT_DEFAULT_MS,
    REPLICATION_BOUND_DEFAULT_MS,
    TIMEOUT_MAX_MS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX: Final = "COUNTLEDGER_"
STACK_NAME_DEFAULT: Final = "countledger"
_STACK_NAME_MAX_CHARACTERS: Final = 128
TRANSPORTS: Final = ("boto3", "fast")
# Whole numbers: the least, the most, and what they count.
_BOUNDS: Final = {
    "clock_skew_ms": (0, HOUR_MS, "milliseconds"),
    "replication_bound_ms": (0, DAY_MS, "milliseconds"),
    "connect_timeout_ms": (1, TIMEOUT_MAX_MS, "milliseconds"),
    "read_timeout_ms": (1, TIMEOUT_MAX_MS, "milliseconds"),
    "call_timeout_ms": (1, CALL_TIMEOUT_MAX_MS, "milliseconds"),
    "max_attempts": (1, ATTEMPTS_OF_A_CALL_MAX, "attempts"),
}
# What a process decides for itself, whichever stack it uses.
_OF_THE_PROCESS: Final = (
    "transport",
    "connect_timeout_ms",
    "read_timeout_ms",
    "call_timeout_ms",
    "max_attempts",
)
# The setting that each output of the stack fills.
OUTPUTS: Final = {
    "ledger_table": "LedgerTableName",
    "counters_table": "CountersTableName",
    "strict_table": "StrictTableName",
    "ledger_stream_arn": "LedgerStreamArn",
    "counters_stream_arn": "CountersStreamArn",
    "quarantine_queue_url": "QuarantineQueueUrl",
    "compaction_queue_url": "CompactionQueueUrl",
    "dispatcher_arn": "DispatcherFunctionArn",
    "schedule_group": "ScheduleGroupName",
    "scheduler_role_arn": "SchedulerRoleArn",
    "home_region": "HomeRegion",
    "alert_bus": "AlertBusName",
    "alert_topic_arns": "AlertTopicArns",
    "alert_dead_letter_queue_url": "AlertDeadLetterQueueUrl",
    "ingest_stream_arn": "IngestStreamArn",
    "ingest_quarantine_queue_url": "IngestQuarantineQueueUrl",
    "ingest_expired_queue_url": "IngestExpiredQueueUrl",
}
# Outputs that a stack has only if it was deployed so.
_NO_INGEST: Final = (
    "no stream of Kinesis: deploy it with the parameter IngestStream=on-demand or provisioned"
)
ON_REQUEST: Final = {
    "IngestStreamArn": _NO_INGEST,
    "IngestQuarantineQueueUrl": _NO_INGEST,
    "IngestExpiredQueueUrl": _NO_INGEST,
    "StrictTableName": (
        "no table for strict counters over regions here: deploy it with the parameter StrictRegions"
    ),
}
# Outputs of the home region's stack alone.
OF_THE_HOME: Final = (
    "CompactionQueueUrl",
    "DispatcherFunctionArn",
    "ScheduleGroupName",
    "SchedulerRoleArn",
)
_SERVICE_IDS: Final = {"dynamodbstreams": "DYNAMODB_STREAMS"}
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
# A shell outlives the stack that `up` pointed it at.
LOCAL_STACK_ENDED: Final = (
    'what AWS_ENDPOINT_URL names on this machine has ended: `eval "$(countledger up)"` starts '
    "another, `unset AWS_ENDPOINT_URL` leads to AWS again"
)


def _variable(name: str, default: str | int | None = None) -> Any:  # noqa: ANN401 - a field of any type
    """A field that is read from its environment variable unless it is given."""
    return field(
        default_factory=lambda: os.environ.get(PREFIX + name.upper(), default),
        metadata={"default": default},
    )


class SettingChange(StrEnum):
    """What applying a settings file did to one of the rules or schedules in it."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Where the stack is, what the process may assume of its clock, and how long it waits.

    Every field that is not given is read from the environment variable of its name, in capitals,
    after `COUNTLEDGER_`. Names of tables that are not set are found through the stack's outputs.

    A request waits `connect_timeout_ms` for a connection and `read_timeout_ms` for each part of its
    answer. A call (`record`, `total`, a strict change) is tried again for as long as
    `call_timeout_ms`, and `max_attempts` times at the most; the request that is under way then
    still has its own time-outs. Buffered producers have limits of their own (`Buffering`).

    Raises:
        BadSetting: naming the variable and the rule that its value breaks.
    """

    stack_name: str = _variable("stack_name", STACK_NAME_DEFAULT)
    ledger_table: str | None = _variable("ledger_table")
    counters_table: str | None = _variable("counters_table")
    strict_table: str | None = _variable("strict_table")
    ledger_stream_arn: str | None = _variable("ledger_stream_arn")
    counters_stream_arn: str | None = _variable("counters_stream_arn")
    quarantine_queue_url: str | None = _variable("quarantine_queue_url")
    compaction_queue_url: str | None = _variable("compaction_queue_url")
    dispatcher_arn: str | None = _variable("dispatcher_arn")
    schedule_group: str | None = _variable("schedule_group")
    scheduler_role_arn: str | None = _variable("scheduler_role_arn")
    home_region: str | None = _variable("home_region")
    alert_bus: str | None = _variable("alert_bus")
    alert_topic_arns: str | None = _variable("alert_topic_arns")
    alert_dead_letter_queue_url: str | None = _variable("alert_dead_letter_queue_url")
    ingest_stream_arn: str | None = _variable("ingest_stream_arn")
    ingest_quarantine_queue_url: str | None = _variable("ingest_quarantine_queue_url")
    ingest_expired_queue_url: str | None = _variable("ingest_expired_queue_url")
    clock_skew_ms: int = _variable("clock_skew_ms", CLOCK_SKEW_DEFAULT_MS)
    replication_bound_ms: int = _variable("replication_bound_ms", REPLICATION_BOUND_DEFAULT_MS)
    transport: str | None = _variable("transport")
    connect_timeout_ms: int = _variable("connect_timeout_ms", CONNECT_TIMEOUT_DEFAULT_MS)
    read_timeout_ms: int = _variable("read_timeout_ms", READ_TIMEOUT_DEFAULT_MS)
    call_timeout_ms: int = _variable("call_timeout_ms", CALL_TIMEOUT_DEFAULT_MS)
    max_attempts: int = _variable("max_attempts", ATTEMPTS_OF_A_CALL_MAX)

    def __post_init__(self) -> None:
        if not 0 < len(self.stack_name) <= _STACK_NAME_MAX_CHARACTERS:
            rule = f"the name of a stack has 1 to {_STACK_NAME_MAX_CHARACTERS} characters"
            raise _bad("stack_name", self.stack_name, rule)
        if self.transport not in {None, "", *TRANSPORTS}:
            raise _bad("transport", self.transport, f"give one of {', '.join(TRANSPORTS)}")
        for name in _BOUNDS:
            object.__setattr__(self, name, _number(name, getattr(self, name)))

    @contextmanager
    def naming_the_variable(self, name: str) -> Iterator[None]:
        """Where variables name the tables and the stack does not exist, name what is not set.

        Args:
            name: of the setting that the block takes from the stack's outputs.

        Raises:
            StackNotFound: as the block; where a variable names a table, with another text.
        """
        try:
            yield
        except StackNotFound as error:
            if not (self.ledger_table or self.counters_table):
                raise
            raise StackNotFound(
                f"{PREFIX}{name.upper()} is not set, and no stack {self.stack_name!r} has it as an "
                "output: set it, or name your stack with --stack-name or COUNTLEDGER_STACK_NAME"
            ) from error

    @classmethod
    def of_stack(cls, stack_name: str, *, keep: Settings | None = None) -> Settings:
        """The settings of a stack, whatever the environment says: its outputs name the rest.

        The transport and the time-outs are the process's own, not the stack's.

        Args:
            stack_name: its name.
            keep: where they, and the bounds of clocks and of replication, are taken from; None: the
                environment, and the defaults of the bounds.
        """
        of_the_stack = (one for one in fields(cls) if one.name not in _OF_THE_PROCESS)
        values = {one.name: one.metadata["default"] for one in of_the_stack}
        if keep is not None:
            values |= {name: getattr(keep, name) for name in (*_OF_THE_PROCESS, *_BOUNDS)}
        return cls(**values | {"stack_name": stack_name})

    @classmethod
    def from_environment(cls, **given: str | int | None) -> Settings:
        """The settings of this process; what is given (and not None) wins over the environment.

        Raises:
            BadSetting: naming the variable and the rule that its value breaks.
        """
        values: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
        return cls(**values)


def _number(name: str, value: str | int) -> int:
    least, most, unit = _BOUNDS[name]
    rule = f"give a whole number of {unit} from {least} to {most}"
    try:
        number = int(value)
    except ValueError as error:
        raise _bad(name, value, rule) from error
    if not least <= number <= most:
        raise _bad(name, value, rule)
    return number


def _bad(name: str, value: object, rule: str) -> BadSetting:
    return BadSetting(f"{PREFIX}{name.upper()} is {value!r}: {rule}")


def is_loopback(endpoint_url: str | None, service: str) -> bool:
    """Whether a service's calls stay on this machine, by what is given or by AWS_ENDPOINT_URL*."""
    own = f"AWS_ENDPOINT_URL_{_SERVICE_IDS.get(service, service.upper())}"
    url = endpoint_url or os.environ.get(own) or os.environ.get("AWS_ENDPOINT_URL", "")
    return urlsplit(url).hostname in _LOOPBACK
