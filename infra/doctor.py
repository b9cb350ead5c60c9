"""What an app needs to work here: versions, credentials, clock, stack, tables, permissions.

Each check is made of facts that one call returns. Nothing is written: the permission to record is
proved by a put whose condition cannot hold, which costs one write unit.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from countledger.ledger import keys
from countledger.ledger.clock import Clock, SystemClock, show_duration
from countledger.ledger.errors import (
    AccessDenied,
    ConditionFailed,
    CountledgerError,
    Unclear,
    Unreachable,
)
from countledger.ledger.ids import new_id
from countledger.ledger.limits import SECOND_MS
from countledger.ledger.operations import Compare, Put, Query
from countledger.ledger.service_errors import translated
from countledger.ledger.settings import LOCAL_STACK_ENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.ledger.connection import Connection

COUNTER_DEFAULT: Final = "default:doctor"
_PACKAGES: Final = ("countledger", "boto3", "botocore")
# Each extra, and the packages of which it consists.
_EXTRAS: Final = {
    "async": ("greenlet",),
    "fast": ("orjson",),
    "otel": ("opentelemetry-api",),
    "kinesis": ("aws-kinesis-agg", "protobuf"),
    "cli": ("typer", "rich", "pyyaml"),
    "deploy": ("uv",),
    "local": ("ministack", "hypercorn", "psutil"),
}
_TABLES: Final = ("ledger_table", "counters_table")
_OUTPUTS_DENIED: Final = (
    "attach the policy of the stack for what this app does (EmitPolicyArn, ReadPolicyArn, ...; see "
    "docs/permissions.md), each allows this call; or name the tables, and no call is needed: "
    "COUNTLEDGER_LEDGER_TABLE and COUNTLEDGER_COUNTERS_TABLE"
)


class CheckResult(StrEnum):
    OK = "ok"
    DENIED = "denied"
    UNKNOWN = "unknown"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One check: its result, and what to do about it where `says` does not say so.

    Denied: these credentials may not do it, which may be as intended; unknown: it could not be seen
    from here.
    """

    name: str
    result: CheckResult
    says: str
    do: str = ""


@dataclass(frozen=True, slots=True)
class Doctor:
    """Checks from here to the stack; `counter`: a name that these credentials may record to."""

    connection: Connection
    counter: str
    clock: Clock

    def checks(self) -> Iterator[DoctorCheck]:
        """All checks in order; those that need a failed one are left out.

        One write unit, one and a half read units, and calls of STS and CloudFormation, which cost
        nothing.
        """
        yield versions()
        identity = self._identity()
        yield from identity
        if identity[0].result is CheckResult.PROBLEM:
            return
        stack = self._stack()
        yield stack
        if stack.result is not CheckResult.OK:
            return
        yield self._permission("record", "EmitPolicyArn", self._record)
        yield self._permission("read totals", "ReadPolicyArn", self._read_total)
        yield self._permission("read entries", "ReadPolicyArn", self._read_entries)

    def _identity(self) -> list[DoctorCheck]:
        """Credentials, and this machine's clock beside that of the service that checked them.

        The clock also where the service refused them: a wrong clock may be why.
        """
        before_ms = self.clock.now_ms()
        try:
            region = self.connection.region
            client = self.connection.administration("sts")
            before_ms = self.clock.now_ms()
            with translated("GetCallerIdentity"):
                answer: Any = client.get_caller_identity()
        except (Unclear, Unreachable) as error:
            says = str(error).partition(";")[0]
            if self.connection.stays_here:
                return [DoctorCheck("endpoint", CheckResult.PROBLEM, says, LOCAL_STACK_ENDED)]
            why = "an app needs no way to STS; without it, credentials and clock stay unchecked"
            return [DoctorCheck("credentials", CheckResult.UNKNOWN, says, why)]
        except CountledgerError as error:
            found = _failed("credentials", error)
            answer = getattr(error.__cause__, "response", {})
        else:
            found = DoctorCheck(
                "credentials",
                CheckResult.OK,
                f"{answer['Arn']} in account {answer['Account']}, region {region}",
            )
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date is None:
            return [found]
        date_ms = int(parsedate_to_datetime(date).timestamp()) * SECOND_MS
        offset = clock_offset(before_ms, self.clock.now_ms(), date_ms)
        return [found, judge_clock(offset, self.connection.settings.clock_skew_ms)]

    def _stack(self) -> DoctorCheck:
        settings = self.connection.settings
        try:
            names = [self.connection.setting(name) for name in _TABLES]
        except AccessDenied as error:
            says = str(error).partition(";")[0]
            return DoctorCheck("stack", CheckResult.PROBLEM, says, _OUTPUTS_DENIED)
        except CountledgerError as error:
            return _failed("stack", error)
        by_variables = all(getattr(settings, name) for name in _TABLES)
        whose = "named by variables" if by_variables else f"of stack {settings.stack_name!r}"
        # Only an app that reads the outputs anyway may see them.
        http_url = "" if by_variables else self.connection.outputs.get("HttpApiUrl", "")
        also = f"; HTTP API {http_url}" if http_url else ""
        return DoctorCheck("stack", CheckResult.OK, f"tables {' and '.join(names)}, {whose}{also}")

    def _permission(self, name: str, policy: str, call: Callable[[], object]) -> DoctorCheck:
        began_s = time.perf_counter()
        try:
            call()
        except AccessDenied as error:
            return DoctorCheck(
                name,
                CheckResult.DENIED,
                str(error).partition(";")[0],
                f"if this app is to {name}, attach the policy {policy}, or name a counter that it "
                "may use (--counter); see docs/permissions.md",
            )
        except CountledgerError as error:
            return _failed(name, error)
        return DoctorCheck(
            name, CheckResult.OK, f"in {(time.perf_counter() - began_s) * 1_000:,.0f} ms"
        )

    def _record(self) -> None:
        key = keys.entry_key(new_id(self.clock.now_ms()), 1)
        item = {"counter": self.counter, "entry": key}
        # No entry has this key, so no delta is equal to anything: the put is refused.
        never = Put(self.connection.setting("ledger_table"), item, Compare("delta", "=", 0))
        try:
            self.connection.dynamo("none").put(never)
        except ConditionFailed:
            return

    def _read_total(self) -> object:
        table = self.connection.setting("counters_table")
        return self.connection.dynamo("none").get(table, keys.total_key(self.counter))

    def _read_entries(self) -> object:
        table = self.connection.setting("ledger_table")
        one = Query(table, Compare("counter", "=", self.counter), consistent=True, page_size=1)
        return self.connection.dynamo("none").page(one)


def doctor_of(
    connection: Connection, counter: str = COUNTER_DEFAULT, clock: Clock | None = None
) -> Doctor:
    counter = keys.check_counter(counter)
    return Doctor(connection, counter, clock or SystemClock())


def versions() -> DoctorCheck:
    """The versions of what runs, and which extras are installed."""
    installed = [f"{name} {version(name)}" for name in _PACKAGES]
    extras = [name for name, packages in _EXTRAS.items() if all(map(_is_installed, packages))]
    python = ".".join(map(str, sys.version_info[:3]))
    return DoctorCheck(
        "versions",
        CheckResult.OK,
        f"Python {python}, {', '.join(installed)}; extras: {', '.join(extras) or 'none'}",
    )


def clock_offset(before_ms: int, after_ms: int, date_ms: int) -> tuple[int, int]:
    """How far this clock may be ahead of the service's, from and to, in milliseconds.

    The service wrote its date, in whole seconds, at some moment between the two times.
    """
    return before_ms - (date_ms + SECOND_MS), after_ms - date_ms


def judge_clock(offset_ms: tuple[int, int], limit_ms: int) -> DoctorCheck:
    """Whether this clock, ahead by so much from and to, is surely beyond the limit."""
    least_ms, most_ms = offset_ms
    limit = show_duration(limit_ms)
    if least_ms <= limit_ms and most_ms >= -limit_ms:
        return DoctorCheck(
            "clock", CheckResult.OK, f"within the {limit} by which clocks may differ"
        )
    ahead = least_ms > limit_ms
    differs = show_duration(least_ms if ahead else -most_ms)
    return DoctorCheck(
        "clock",
        CheckResult.PROBLEM,
        f"{differs} {'ahead of' if ahead else 'behind'} the service's, or more; clocks may differ "
        f"by {limit}",
        "set the clock of this machine (NTP, chrony): entries would be refused or merged too early",
    )


def _failed(name: str, error: CountledgerError) -> DoctorCheck:
    """A check that ended with an error, whose text says what to do."""
    return DoctorCheck(name, CheckResult.PROBLEM, str(error))


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
