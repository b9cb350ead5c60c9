"""Durations as typed."""

from __future__ import annotations

import pytest

from countledger.infra.cli.options import parse_duration_ms
from countledger.ledger.errors import BadSetting


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("24h", 86_400_000), ("90m", 5_400_000), ("7d", 604_800_000), ("30 s", 30_000), ("5ms", 5)],
)
def test_a_duration_is_a_whole_number_with_a_unit(text: str, duration_ms: int) -> None:
    """Days, hours, minutes, seconds and milliseconds."""
    assert duration_ms == parse_duration_ms(text)


@pytest.mark.parametrize("text", ["24", "h", "1.5h", "-1h", "2 hours", "", "1h30m", f"{10**16}h"])
def test_any_other_duration_is_refused(text: str) -> None:
    """The message shows what a duration looks like."""
    with pytest.raises(BadSetting, match="90m, 24h or 7d"):
        parse_duration_ms(text)
