"""A window as its alerts name it. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from countledger.ledger.calendar import Per


@dataclass(frozen=True, slots=True)
class AlertWindow:
    """One minute, hour, day or month of a counter.

    Attributes:
        windows: the id of the counter's windows, as its total names them: a counter that is deleted
            and used again has windows of another id.
        per: of which kind it is.
        name: unique among the windows of its kind, as `2026-11-22`.
        start_ms: its first millisecond.
        end_ms: the first millisecond after it.
        zone: the name of its time zone.
        last_ms: nothing is added to it later than that; None: it has no such bound.
    """

    windows: str
    per: Per
    name: str
    start_ms: int
    end_ms: int
    zone: str
    last_ms: int | None = None


def state_name(rule: str, window: AlertWindow | None) -> str:
    """The name of the alert state of a rule for a counter, or for one of its windows."""
    return rule if window is None else f"{rule}#{window.windows}#{window.name}"


def encode_window(window: AlertWindow) -> dict[str, Any]:
    """A window as an attribute."""
    return {name: value for name, value in asdict(window).items() if value is not None} | {
        "per": str(window.per)
    }


def decode_window(stored: dict[str, Any]) -> AlertWindow:
    """The window in an attribute.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    return AlertWindow(**{**stored, "per": Per(stored["per"])})
