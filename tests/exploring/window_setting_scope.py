"""The windows of a namespace: switched on, changed and switched off by two calls.

The state of the model is the finest windows of each setting, the oldest first, and whether the
newest one is on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.limits import MINUTE_MS
from countledger.ledger.windows import decode_settings
from tests.exploring.linear import Effect
from tests.exploring.scope import Beginnings, Capability
from tests.exploring.search import Bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from countledger.client import CountLedger
    from countledger.ledger.windows import WindowSetting
    from tests.exploring.world import Contents

# The settings ("hour", "day"), and whether the last one is on.
_Windows: TypeAlias = tuple[tuple[str, ...], bool]

_NAMESPACE: Final = "n"
_FINEST: Final = {"by hour": "hour", "by day": "day", "by day if never on": "day"}


def _model(windows: _Windows, call: str) -> Iterator[Effect]:
    settings, on = windows
    if call == "off":
        yield Effect(settings[-1] if on else None, (settings, False))
        if not on and settings:
            yield Effect(settings[-1], windows)  # switched off since the call read them
    elif call == "show":
        yield Effect(windows, windows)
    elif (on and settings[-1] == _FINEST[call]) or (call == "by day if never on" and settings):
        yield Effect(settings[-1], windows)
    else:
        yield Effect(_FINEST[call], ((*settings, _FINEST[call]), True))


def _seen(settings: Sequence[WindowSetting]) -> _Windows:
    finest = tuple(str(one.finest) for one in settings)
    return finest, bool(settings) and settings[-1].ended_ms is None


def _agrees(windows: _Windows, contents: Contents) -> bool:
    key = keys.windows_key(_NAMESPACE)
    item = contents.tables[COUNTERS].get((key["counter"], key["part"]))
    settings = decode_settings(None if item is None else dict(item))
    # Each begins where the one before has ended, or later.
    ends = [one.ended_ms for one in settings[:-1]]
    in_order = all(
        end is not None and end <= one.from_ms for end, one in zip(ends, settings[1:], strict=True)
    )
    return in_order and _seen(settings) == windows


def _enable(ledger: CountLedger, by: str, *, first: bool = False) -> str:
    return str(ledger.window_settings.enable(_NAMESPACE, by=by, first=first).finest)


def _disable(ledger: CountLedger) -> str | None:
    ended = ledger.window_settings.disable(_NAMESPACE)
    return None if ended is None else str(ended.finest)


def _created(ledger: CountLedger) -> None:
    ledger.namespaces.create(_NAMESPACE)


def _enabled(ledger: CountLedger) -> None:
    _created(ledger)
    _enable(ledger, "hour")


WINDOW_SETTINGS: Final = Capability(
    name="windows",
    calls={
        "by hour": lambda ledger: _enable(ledger, "hour"),
        "by day": lambda ledger: _enable(ledger, "day"),
        "by day if never on": lambda ledger: _enable(ledger, "day", first=True),
        "off": _disable,
        "show": lambda ledger: _seen(ledger.window_settings.of(_NAMESPACE)),
    },
    scripts=(
        ("by hour",),
        ("by day",),
        ("by day if never on",),
        ("off",),
        ("show",),
        ("off", "by hour"),
    ),
    starts={
        "never on": Beginnings(_created, ((), False)),
        "by hour": Beginnings(_enabled, (("hour",), True)),
    },
    model=_model,
    agrees=_agrees,
    prepare=lambda ledger: ledger.namespaces.get(_NAMESPACE),
    bounds=Bounds(jumps_ms=(14 * MINUTE_MS,)),
)
