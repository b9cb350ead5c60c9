"""Windows and their settings as rows for people and documents for programs."""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from countledger.infra.cli.output import facts
from countledger.ledger.clock import show_duration, to_datetime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from countledger import WindowSum
    from countledger.infra.cli.output import Row
    from countledger.ledger.windows import WindowSetting

_BAR_CELLS: Final = 30


_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def window_rows(found: Sequence[WindowSum]) -> list[Row]:
    most = max((abs(Decimal(one.value)) for one in found), default=Decimal(0))
    charted = sys.stdout.isatty()
    return [
        {
            "start": one.start.isoformat(" ", "minutes"),
            "value": one.value,
            "events": one.events,
            "state": "final" if one.final else "complete" if one.complete else "provisional",
        }
        | ({"chart": bar(float(abs(Decimal(one.value)) / most))} if charted and most else {})
        for one in found
    ]


def bar(share: float) -> str:
    """A bar of up to 30 cells, in steps of an eighth of a cell."""
    whole, eighths = divmod(round(share * _BAR_CELLS * 8), 8)
    return "█" * whole + (_EIGHTHS[eighths] if eighths else "")


def setting_row(namespace: str, one: WindowSetting) -> Row:
    lateness = one.max_lateness_ms
    return {
        "namespace": namespace,
        "by": str(one.finest),
        "time_zone": one.zone,
        "keep_hours": show_duration(one.keep_ms),
        "max_lateness": None if lateness is None else show_duration(lateness),
        "ranked": one.ranked > 0,
        "from": to_datetime(one.from_ms),
        "until": None if one.ended_ms is None else to_datetime(one.ended_ms),
        "tzdata": one.rules_version,
    }


def setting_document(namespace: str, one: WindowSetting) -> Row:
    times = {name: setting_row(namespace, one)[name] for name in ("from", "until")}
    shown = {"by": str(one.finest), "time_zone": one.zone, "tzdata": one.rules_version}
    more = facts(one, "keep_ms max_lateness_ms horizon_ms ranked")
    return {"namespace": namespace, "id": one.id, **shown, **more, **times}
