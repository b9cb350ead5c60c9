"""What the summary of a run says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from countledger.infra.cli.demo import _show, lines_of

if TYPE_CHECKING:
    import pytest

GOOD: dict[str, Any] = {
    "repo": "/r",
    "head": "0123456789abcdef",
    "boundary": None,
    "regions": ["us-east-1"],
    "commits": 3,
    "events": 2_000,
    "entries": None,
    "resent": 200,
    "duplicates": 200,
    "counters": 5,
    "wrong": 0,
    "wrong_totals": [],
    "alerts": 1,
    "alert_p50_seconds": 2.0,
    "alert_max_seconds": 4.0,
    "write_units_per_event": 2.0,
    "producer_write_units_per_event": 1.1,
    "materializer_write_units_per_event": 0.9,
    "published_alerts": [{"counter": "lines:a", "version": 7, "old": 990, "new": 1_020}],
    "wrong_days": [],
}


def test_a_line_of_the_summary_joins_the_facts_that_the_run_has() -> None:
    lines = lines_of(GOOD)

    assert lines["repository"] == "/r at 0123456789ab"
    assert lines["events"] == "2,000"
    alerts = "1 of files that passed 1,000 lines, 2.0 s after the update (median), 4.0 s at most"
    assert lines["alerts"] == alerts
    cost = "2.00 per event, 1.10 producer (resends included), 0.90 materializer"
    assert lines["write units"] == cost
    assert not lines.keys() & {"regions", "partition", "compaction", "days"}


def test_facts_that_only_some_runs_have_are_shown_if_they_are_there() -> None:
    lines = lines_of(GOOD | {"boundary": "f" * 40, "entries": 12, "duplicates": None})

    assert lines["repository"].endswith(", a shallow clone, counted from ffffffffffff")
    assert lines["events"] == "2,000, coalesced into 12 entries"
    assert "duplicates" not in lines


def test_the_regions_of_a_run_are_named() -> None:
    seen = {"regions": ["us-east-1", "eu-west-1"], "cut_off": "eu-west-1", "apart": 7}

    lines = lines_of(GOOD | seen)

    assert lines["regions"] == "us-east-1, eu-west-1; eu-west-1 was cut off midway"
    assert lines["partition"] == "7 counters had different totals in the regions"


def test_the_summary_shows_each_list_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    _show(GOOD, [])

    said = capsys.readouterr().out
    assert "\npublished alerts\ncounter\tversion\told\tnew\nlines:a\t7\t990\t1020\n" in said
    assert "wrong days" not in said
    assert said.endswith("Every alert was due, and no alert is missing.\n")


def test_the_summary_names_the_first_rows_of_a_long_list(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"counter": f"lines:{n}", "value": n} for n in range(21)]

    _show(GOOD | {"wrong_totals": rows}, ["21 numbers are not what git says"])

    said = capsys.readouterr().out
    assert "lines:19\t19\nand 1 more: --json has them all\n" in said
    assert said.endswith("\nWRONG: 21 numbers are not what git says.\n")
