"""What is sent twice, when a run is good, what its summary says, and what is counted by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import countledger
from countledger import Event
from countledger.consumers.alerts.alert import Alert
from countledger.consumers.alerts.rule import Direction
from countledger.infra.cli.demo import _own_repository, summary
from countledger.infra.demo.checks import problems
from countledger.infra.demo.history import GitUnusable
from countledger.infra.demo.run import Lag, with_resends

if TYPE_CHECKING:
    from pathlib import Path


GOOD: dict[str, Any] = {
    "repo": "/r",
    "head": "0" * 40,
    "shallow": False,
    "commits": 3,
    "events": 20,
    "entries": None,
    "resent": 2,
    "duplicates": 2,
    "counters": 5,
    "wrong": 0,
    "wrong_totals": [],
    "missing": 0,
    "emit_events_per_second": 10.0,
    "end_to_end_events_per_second": 5.0,
    "seconds": 5.0,
    "lag_p50_seconds": 0.1,
    "lag_max_seconds": 0.5,
    "producer_write_units_per_event": 1.1,
    "materializer_write_units_per_event": 0.9,
    "days": 4,
    "wrong_days": [],
    "largest": {"lines:a": 7},
    "alerts": 1,
    "alerts_missing": 0,
    "alerts_unexpected": 0,
    "alerts_silent": [],
    "alert_p50_seconds": 2.0,
    "alert_max_seconds": 4.0,
}
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


def test_a_run_is_good_only_if_nothing_at_all_is_wrong() -> None:
    assert not problems(GOOD)
    assert not problems(GOOD | {"duplicates": 3})
    # Through Kinesis the totals decide.
    assert not problems(GOOD | {"duplicates": None})
    for wrong in (
        {"duplicates": 1},
        {"missing": 1},
        {"wrong": 1},
        {"wrong_days": ["lines:a on 2026-11-22: 3, git says 4"]},
        {"alerts_missing": 1},
        {"alerts_unexpected": 1},
        {"alerts_silent": ["lines:a"]},
    ):
        assert len(problems(GOOD | wrong)) == 1


def test_the_summary_of_a_good_run() -> None:
    facts, details, verdict = summary(GOOD, [ALERT], own_engine=True)

    cost = "2.00 per event: 1.10 producer (resends included), 0.90 materializer"
    assert facts["write units"] == cost
    alerts = "1 of files that passed 1,000 lines, 2.0 s after the event (median), 4.0 s at most"
    assert facts["alerts"] == alerts
    assert "   990 to   1020  lines:a" in details
    assert "Every alert was due, and no alert is missing." in verdict


def test_an_alert_that_is_missing_makes_the_run_wrong() -> None:
    report = GOOD | {"alerts_missing": 1, "alerts_silent": ["lines:b"]}

    verdict = summary(report, [], own_engine=True)[2]

    assert verdict == "WRONG: 1 alerts are missing; 1 long files never alerted."


def test_lag_is_the_age_of_the_oldest_event_that_is_missing() -> None:
    lag = Lag()
    lag.sample(0, 0, 1.0)
    lag.sample(5, 5, 10.0)
    lag.sample(9, 5, 12.0)
    lag.sample(9, 8, 13.5)  # the ninth has waited since 12.0
    lag.sample(9, 9, 14.0)

    assert lag.samples_s == [0, 0, 0, 1.5, 0]


def test_by_default_the_own_checkout_is_counted_and_never_one_around_an_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lib" / "countledger"
    package.mkdir(parents=True)
    monkeypatch.setattr(countledger, "__file__", str(package / "__init__.py"))
    (tmp_path / ".git").mkdir()

    with pytest.raises(GitUnusable, match="--repo PATH"):
        _own_repository()

    (tmp_path / "lib" / ".git").mkdir()
    (tmp_path / "lib" / "pyproject.toml").touch()

    assert tmp_path / "lib" == _own_repository()


_STEPS = st.integers(0, 80).map(lambda count: [Event("c:x", 1, str(n)) for n in range(count)])


@given(_STEPS, st.integers(1, 12), st.integers(1, 4))
def test_every_event_is_sent_once_in_order_and_every_so_many_th_again_later(
    steps: list[Event], every: int, times: int
) -> None:
    of = every * times

    sendings = list(with_resends(steps, every=every, of=of))

    assert steps == [event for event, again in sendings if not again]
    assert steps[every - 1 :: every] == [event for event, again in sendings if again]
    for place, (event, again) in enumerate(sendings):
        assert again == ((event, False) in sendings[:place])
