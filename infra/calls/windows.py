"""The calls of windows: `countledger windows`, `/v1/counters/{counter}/windows`."""

from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import Field

from countledger import WindowSum
from countledger.infra.calls.access import ScopeVerb
from countledger.infra.calls.call import READS, Call, Calls, NeedsScope, Param
from countledger.infra.calls.shapes import (
    AmountText,
    CounterText,
    NamespaceText,
    PerText,
    ShownTime,
    TimeText,
    View,
)
from countledger.ledger.calendar import Per
from countledger.ledger.clock import show_duration, to_datetime
from countledger.ledger.errors import BadSetting
from countledger.ledger.indexes import PARTITIONS
from countledger.ledger.limits import WINDOWS_KEPT_DEFAULT_MS
from countledger.ledger.values import parse_duration_ms
from countledger.ledger.windows import FINEST, WindowSetting

WINDOWS: Final = Calls(
    "windows",
    """Sums for each minute, hour, day and month of business time, as exact as totals.

    An event belongs to the windows of its business time (--occurred-at of `emit`), also if it comes
    late; without one, to those of its recording. What a window promises at each moment:
    docs/windows.md.
    """,
    tag="history",
)

# ---- parameters ----

Namespace = Annotated[
    NamespaceText,
    Param("Whose counters have windows.", metavar="NAMESPACE"),
    NeedsScope(ScopeVerb.ADMIN, lambda namespace: [namespace]),
]
_KEPT: Final = show_duration(WINDOWS_KEPT_DEFAULT_MS).replace(" ", "")


def _finest(text: str) -> str:
    names = [name.strip() for name in text.split(",")]
    wrong = next((name for name in names if name not in list(Per)), None)
    if wrong is not None:
        raise BadSetting(f"windows by {wrong!r} do not exist: give {', '.join(FINEST)}")
    return min((Per(name) for name in names), key=list(Per).index)


# ---- what is shown ----


class WindowSumView(View):
    """The sum of one window of business time."""

    counter: str
    name: str
    start: ShownTime
    end: ShownTime
    time_zone: str
    value: AmountText
    events: int
    complete: bool
    final: bool

    @classmethod
    def of(cls, counter: str, one: WindowSum) -> "WindowSumView":
        facts = {name: getattr(one, name) for name in cls.model_fields if hasattr(one, name)}
        return cls(counter=counter, time_zone=one.zone, **facts)

    def row(self) -> dict[str, object]:
        state = "final" if self.final else "complete" if self.complete else "provisional"
        return {
            "start": self.start.isoformat(" ", "minutes"),
            "value": self.value,
            "events": self.events,
            "state": state,
        }


class WindowSettingView(View):
    """Which windows a namespace has; `until`: from then on none."""

    namespace: str
    id: str
    by: str
    time_zone: str
    tzdata: str
    keep_ms: int
    max_lateness_ms: int | None
    horizon_ms: int
    ranked: int
    since: ShownTime
    until: ShownTime | None

    @classmethod
    def of(cls, namespace: str, one: WindowSetting) -> "WindowSettingView":
        facts = {name: getattr(one, name) for name in cls.model_fields if hasattr(one, name)}
        until = None if one.ended_ms is None else to_datetime(one.ended_ms)
        return cls(
            **facts,
            namespace=namespace,
            by=str(one.finest),
            time_zone=one.zone,
            tzdata=one.rules_version,
            since=to_datetime(one.from_ms),
            until=until,
        )

    def row(self) -> dict[str, object]:
        lateness = self.max_lateness_ms
        return {
            "namespace": self.namespace,
            "by": self.by,
            "time_zone": self.time_zone,
            "keep_hours": show_duration(self.keep_ms),
            "max_lateness": None if lateness is None else show_duration(lateness),
            "ranked": self.ranked > 0,
            "from": self.since,
            "until": self.until,
            "tzdata": self.tzdata,
        }


class OffView(View):
    """The namespace has no windows, or had none any more."""

    namespace: str
    windows: str = "off"


# ---- the calls ----


@WINDOWS.op(
    "enable",
    costs="A read unit and a write unit; a few more if it is new.",
)
def enable(
    call: Call,
    namespace: Namespace,
    *,
    by: Annotated[
        str,
        Param("minute, hour or day, or several; coarser ones and months come along.", text=_finest),
    ],
    time_zone: Annotated[
        str, Param("Whose hours, days and months: an IANA name, as Europe/Berlin.")
    ] = "UTC",
    keep_ms: Annotated[
        int,
        Param(
            "For how long minutes and hours are kept. Days are kept for ever. "
            f"[dim]By default {_KEPT}[/dim]",
            option="--keep-hours",
            text=parse_duration_ms,
        ),
    ] = WINDOWS_KEPT_DEFAULT_MS,
    max_lateness_ms: Annotated[
        int | None,
        Param(
            "What happened longer ago when it is recorded counts when it is recorded, so that "
            "windows become final. [dim]Else none ever is[/dim]",
            option="--max-lateness",
            text=parse_duration_ms,
        ),
    ] = None,
    rank: Annotated[bool, Param("Keep the counters of each day in order: top --day.")] = False,
    partitions: Annotated[
        int, Param("With --rank: each takes about 500 changed days a second.")
    ] = PARTITIONS,
) -> WindowSettingView:
    """Switch the windows of a namespace on, or change them, for what is recorded from then on.

    A change is effective about a minute later. Each event then costs more: `countledger cost`. The
    same command again changes nothing. With another time zone windows begin again: those of the
    earlier one stay stored, and are not read any more.

    Examples:
      countledger windows enable views --by day
      countledger windows enable views --by hour,day --time-zone Europe/Berlin --keep-hours 90d
      countledger windows enable usage --by hour --max-lateness 3d
      countledger windows enable views --by day --rank
    """
    if rank and partitions < 1:  # of the library 0 is no ranking
        raise BadSetting(f"a ranking of days has 1 partition or more, not {partitions}")
    made = call.ledger.window_settings.enable(
        namespace,
        by=by,
        time_zone=time_zone,
        keep_ms=keep_ms,
        max_lateness_ms=max_lateness_ms,
        ranked=partitions if rank else 0,
    )
    return WindowSettingView.of(namespace, made)


@WINDOWS.op("disable", costs="As `enable`.")
def disable(call: Call, namespace: Namespace) -> WindowSettingView | OffView:
    """Switch the windows of a namespace off, for what is recorded a minute later or after that.

    What they have counted stays, and can be read. The same command again changes nothing.

    Examples:
      countledger windows disable views
    """
    ended = call.ledger.window_settings.disable(namespace)
    if ended is None:
        return OffView(namespace=namespace)
    return WindowSettingView.of(namespace, ended)


@WINDOWS.op(
    "list",
    costs="Half a read unit for each namespace of the stack, and each 4 KB of settings.",
    everywhere=ScopeVerb.READ,
)
def list_windows(call: Call) -> Iterator[WindowSettingView]:
    """List the namespaces that have windows, or had them.

    Settings that cannot be read are named, and the exit code is 1.
    """
    found = call.ledger.window_settings.list(on_corrupt=call.on_corrupt)
    return (WindowSettingView.of(namespace, one) for namespace, one in found)


@WINDOWS.op(
    "show",
    "GET /v1/counters/{counter}/windows",
    costs="Half a read unit for each 4 KB read.",
    command=False,
    whole=True,
)
def windows(
    call: Call,
    counter: Annotated[CounterText, READS],
    *,
    per: PerText,
    since: Annotated[TimeText, Field(description="a time in the first window")],
    until: Annotated[
        TimeText | None,
        Field(description="the first time after the last window; by default now"),
    ] = None,
) -> Iterator[WindowSumView]:
    """Show a counter's sums for each window, those without events included."""
    found = call.ledger.windows(counter, per, since=since, until=until)
    return (WindowSumView.of(counter, one) for one in found)
