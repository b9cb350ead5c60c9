"""Durations as people type them."""

from __future__ import annotations

import re
from typing import Final

from countledger.ledger.errors import BadSetting
from countledger.ledger.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

_UNITS_MS: Final = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_DURATION: Final = re.compile(r"(\d{1,15})\s*(ms|s|m|h|d)", re.ASCII)


def parse_duration_ms(text: str) -> int:
    """A duration such as `24h`, `90m`, `7d`, `30s` or `1500ms`, in milliseconds.

    Raises:
        BadSetting: it is no whole number with a unit.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise BadSetting(
            f"duration {text!r} is not a whole number with a unit: give 90m, 24h or 7d"
        )
    return int(match[1]) * _UNITS_MS[match[2]]
