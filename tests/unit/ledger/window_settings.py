"""A setting of windows for tests, of which each changes what it is about."""

from dataclasses import replace
from typing import Any

from countledger.ledger.calendar import Per, rules_of
from countledger.ledger.limits import DAY_MS, MINUTE_MS
from countledger.ledger.windows import WindowSetting


def window_setting(zone: str = "UTC", **changes: Any) -> WindowSetting:  # noqa: ANN401 - any field
    """Minutes and longer, kept for a week, for as long as there is time."""
    made = WindowSetting(
        id="one",
        finest=Per.MINUTE,
        zone=zone,
        rules=rules_of(zone),
        rules_version="test",
        keep_ms=7 * DAY_MS,
        max_lateness_ms=None,
        horizon_ms=DAY_MS,
        skew_ms=MINUTE_MS,
        replication_ms=15 * MINUTE_MS,
        from_ms=0,
    )
    return replace(made, **changes)
