"""What the summary of a run says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countledger.infra.cli.demo import _show

if TYPE_CHECKING:
    import pytest

GOOD: dict[str, Any] = {
    "repository": "/r",
    "head": "0123456789abcdef",
    "counted_from": None,
    "regions": ["us-east-1", "eu-west-1"],
    "commits": 3,
    "events": 2_000,
    "entries": None,
    "counters_checked": 1_005,
    "wrong_numbers": [],
    "wrong_days": [],
    "events_sent_per_second": 1_234.567,
    "alerts": [{"counter": "lines:a", "version": 7, "old": 990, "new": 1_020}],
    "median_lag_of_alerts_seconds": 2.04,
    "write_units_per_event": 2.0,
}


def test_the_summary_has_each_fact_that_the_run_has_in_their_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By the name in JSON, so that there is one name for each."""
    _show(GOOD, [])

    (table, _, _) = capsys.readouterr().out.partition("\n\n")
    assert [tuple(row.split("\t")) for row in table.split("\n")] == [
        ("fact", "value"),
        ("repository", "/r"),
        ("head", "0123456789abcdef"),
        ("regions", "us-east-1, eu-west-1"),
        ("commits", "3"),
        ("events", "2,000"),
        ("counters checked", "1,005"),
        ("wrong numbers", "0"),
        ("wrong days", "0"),
        ("events sent per second", "1,234.57"),
        ("alerts", "1"),
        ("median lag of alerts", "2.0 s"),
        ("write units per event", "2.00"),
    ]


def test_the_summary_shows_each_list_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    _show(GOOD, [])

    said = capsys.readouterr().out
    assert "\nevents\t2,000\ncounters checked\t1,005\n" in said
    assert "\nalerts\ncounter\tversion\told\tnew\nlines:a\t7\t990\t1020\n" in said
    assert "\nwrong days\n" not in said
    assert said.endswith("Every alert was due, and no alert is missing.\n")


def test_the_summary_names_the_first_rows_of_a_long_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"counter": f"lines:{n}", "value": n} for n in range(21)]

    _show(GOOD | {"wrong_numbers": rows}, ["21 numbers are not what git says"])

    said = capsys.readouterr().out
    assert "\nwrong numbers\t21\n" in said
    assert "lines:19\t19\nand 1 more: --json has them all\n" in said
    assert said.endswith("\nWRONG: 21 numbers are not what git says.\n")
