"""`countledger cost` with a number of events: a plan, without a call to AWS."""

import json

import pytest

from countledger.infra.cli.app import run


def _plan(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    assert run(["cost", *options, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_rate_is_planned_as_its_day_is(capsys: pytest.CaptureFixture[str]) -> None:
    a_second = _plan(capsys, "--events-per-second", "10", "--counters", "64")

    assert a_second == _plan(capsys, "--events-per-day", "864000", "--counters", "64")
    assert (a_second["batching_window"], a_second["prices_of"]) == ("1", "us-east-1")
    assert a_second["retire"] is None


def test_two_numbers_of_events_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cost", "--events-per-second", "10", "--events-per-day", "1"]) == 2
    assert "give one of them" in capsys.readouterr().err


def test_a_person_reads_of_which_region_the_prices_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["cost", "--events-per-second", "10", "--batching-window", "60"]) == 0

    told = capsys.readouterr()
    assert "those of us-east-1" in told.err
    assert "another region differ" in told.err
    assert "BatchingWindowSeconds" not in told.err
