"""Times and durations as people type them, at the ends of the calendar: refused, exit code 2."""

import pytest

from countledger.infra.cli.arguments import parse_duration_ms
from countledger.infra.cli.windows import _moment
from countledger.ledger.errors import BadInput
from countledger.ledger.limits import DAY_MS
from countledger.testing import MemoryStack

_EXIT_CODE_OF_BAD_INPUT = 2


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize("per", ["minute", "hour", "day", "month"])
@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01",
        "0002-01-01",
        "9998-12-31",
        "9999-01-01",
        "9999-12-31",
        "9999-12-31T23:59:59.999Z",
        "0001-01-01T00:00:00+14:00",
    ],
)
def test_windows_since_the_end_of_the_calendar_are_refused(zone: str, per: str, text: str) -> None:
    stack = MemoryStack()
    stack.ledger.namespaces.create("views")
    stack.ledger.window_settings.enable("views", by="minute", time_zone=zone)

    with pytest.raises(BadInput) as refused:
        stack.ledger.windows("views:a", per, since=_moment(stack.ledger, "views:a", text))

    assert refused.value.exit_code == _EXIT_CODE_OF_BAD_INPUT


def test_a_duration_that_no_time_can_be_moved_by_is_refused() -> None:
    assert parse_duration_ms("36525d") == 36_525 * DAY_MS
    for text in ("36526d", "999999999999999d", "999999999999999h"):
        with pytest.raises(BadInput, match="is longer than"):
            parse_duration_ms(text)
