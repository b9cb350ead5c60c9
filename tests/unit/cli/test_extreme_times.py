"""Times and durations as people type them: what is beyond the calendar has exit code 2."""

import pytest

from countledger.infra.cli.windows import _moment
from countledger.ledger.errors import BadInput
from countledger.ledger.limits import DAY_MS
from countledger.ledger.values import parse_duration_ms
from countledger.testing import MemoryStack

_EXIT_CODE_OF_BAD_INPUT = 2


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize(
    ("since", "until", "rule"),
    [
        ("0001-01-01", "9998-12-30", "outside the years 2 to 9998"),
        ("0002-01-01", "9998-12-30", "from 1970 on|no day in time zone"),
        ("0001-01-01T00:00:00+14:00", "9998-12-30", "outside the years 1 to 9999"),
        ("1969-12-31", "1970-01-02", "from 1970 on"),
        ("9998-12-01", "9999-01-01", "outside the years 2 to 9998"),
        ("9998-12-01", "9999-12-31", "outside the years 2 to 9998"),
        ("9998-12-01", "9999-12-31T23:59:59.999Z", "up to 9998-12-31"),
    ],
)
def test_windows_at_the_ends_of_the_calendar_are_refused(
    zone: str, since: str, until: str, rule: str
) -> None:
    ledger = _stack(zone).ledger

    with pytest.raises(BadInput, match=rule) as refused:
        ledger.windows(
            "views:a",
            "day",
            since=_moment(ledger, "views:a", since),
            until=_moment(ledger, "views:a", until),
        )

    assert refused.value.exit_code == _EXIT_CODE_OF_BAD_INPUT


@pytest.mark.parametrize(
    ("since", "until"), [("1970-01-02", "1970-01-03"), ("9998-12-29", "9998-12-30")]
)
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_the_first_and_the_last_days_within_the_ends_are_windows(
    zone: str, since: str, until: str
) -> None:
    ledger = _stack(zone).ledger

    (found,) = ledger.windows(
        "views:a",
        "day",
        since=_moment(ledger, "views:a", since),
        until=_moment(ledger, "views:a", until),
    )

    assert (found.name, found.value) == (since, 0)


def _stack(zone: str) -> MemoryStack:
    stack = MemoryStack()
    stack.ledger.namespaces.create("views")
    stack.ledger.window_settings.enable("views", by="minute", time_zone=zone)
    return stack


def test_a_duration_that_no_time_can_be_moved_by_is_refused() -> None:
    assert parse_duration_ms("36525d") == 36_525 * DAY_MS
    for text in ("36526d", "999999999999999d", "999999999999999h"):
        with pytest.raises(BadInput, match="is longer than"):
            parse_duration_ms(text)
