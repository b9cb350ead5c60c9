"""What a run tells a person of its alerts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from countledger.consumers.alerts.alert import Alert
from countledger.consumers.alerts.rule import Direction
from countledger.infra.demo.long_files import AlertCheck, Step
from countledger.infra.demo.summary import print_summary
from tests.unit.demo.test_report import GOOD

if TYPE_CHECKING:
    import pytest

ALERT = Alert(
    rule="demo-long-files",
    revision="r",
    counter="lines:a",
    direction=Direction.RISING,
    threshold=1_000,
    old=990,
    new=1_020,
    version=7,
    region="us-east-1",
    at_ms=0,
)


def test_alerts_are_shown_with_how_late_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    """From the acknowledged event to the alert, in the middle and at most."""
    alerts = AlertCheck(alerts=(ALERT,), latencies_s=(1.25, 2.0, 4.0))

    print_summary(replace(GOOD, alerts=alerts), own_engine=True)

    said = capsys.readouterr().out
    assert "1 of files that passed 1,000 lines, 2.0 s after the event (median), 4.0 s at" in said
    assert "   990 to   1020  lines:a" in said
    assert "Every alert was due, and every one that was due was told." in said


def test_an_alert_that_should_have_been_told_makes_the_run_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And the summary says how many of each."""
    alerts = AlertCheck(missing=(Step("lines:a", 2, 999, 1000),), silent=("lines:b",))

    print_summary(replace(GOOD, alerts=alerts), own_engine=True)

    said = capsys.readouterr().out
    assert "WRONG: 1 alerts are missing, 0 should not be there, 1 long files never" in said
