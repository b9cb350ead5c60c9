"""Why rules with windows have not alerted, as the command line explains it."""

import pytest

from countledger import Rule
from countledger.infra.cli import alerts
from countledger.infra.cli.alerts import explain_silence
from countledger.testing import MemoryStack


@pytest.fixture
def stack() -> MemoryStack:
    """Five counters, one of them low; windows of days from an hour before."""
    made = MemoryStack()
    made.ledger.namespaces.create("views")
    made.ledger.window_settings.enable("views", by="hour")
    made.advance(hours=1)
    for name in "abcd":
        made.ledger.record(f"views:{name}", 150)
    made.ledger.record("views:low", 3)
    made.ledger.record("viewsless:a", 150)
    return made


def _said(stack: MemoryStack, rule: Rule, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    explain_silence(stack.ledger, rule)
    return capsys.readouterr().err.splitlines()


def test_the_windows_of_a_prefix_that_had_passed_the_threshold_are_named(
    stack: MemoryStack, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the prefix reaches into a namespace without windows."""
    rule = stack.ledger.alerts.create(
        "busy", prefix="views", threshold=100, direction="rising", window="day"
    )

    *named, more = _said(stack, rule, capsys)

    assert [one.partition(" is at 150 in day ")[0] for one in named] == [
        f"views:{name}" for name in "abc"
    ]
    assert all("rule busy has not alerted: it was past 100 before" in one for one in named)
    assert more == "the same is so of 1 more counters of rule busy"


def test_a_window_that_has_alerted_is_not_named(
    stack: MemoryStack, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = stack.ledger.alerts.create(
        "busy", prefix="views:", threshold=200, direction="rising", window="day"
    )
    stack.advance(seconds=10)
    stack.ledger.record("views:a", 100)
    assert len(stack.alerts) == 1

    assert _said(stack, rule, capsys) == []


def test_what_was_not_looked_at_is_said(
    stack: MemoryStack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts, "_WITH_WINDOWS_MAX", 2)
    rule = stack.ledger.alerts.create(
        "busy", prefix="views:", threshold=100, direction="rising", window="day"
    )

    assert _said(stack, rule, capsys)[-1] == "looked at 2 counters of rule busy; there are more"
