"""A run of the demo on a stack in memory: a good one, and one for each thing that can be wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from countledger import Event
from countledger.consumers.alerts.delivery import AlertLog
from countledger.infra import demo
from countledger.infra import demo as demo_run
from countledger.infra.demo import (
    DemoRun,
    check_days,
    open_repository,
    prepare,
    problems,
    read_events,
)
from countledger.infra.memory.stack import MemoryStack
from countledger.infra.memory.stream import StreamsClient
from tests.unit.demo.repositories import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.infra.demo import History, Report

_GUIDE: Final = Path(__file__).parents[3] / "docs" / "demo.md"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A file that passes 1,000 lines twice, and some that do not."""
    made = Repository(tmp_path / "made")
    for lines in (900, 1_100, 5, 1_200):
        made.commit(
            {b"long": b"line\n" * lines, **dict.fromkeys([b"a", b"b", b"c"], b"\n" * lines)}
        )
        made.commit({b"a": b"1\n", b"b": b"2\n", b"c": b"3\n"})
    return made


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> MemoryStack:
    """An empty stack in memory, whose stream of `counters` can be read."""
    made = MemoryStack()
    connection: Any = made.ledger.connection
    client: Any = StreamsClient(connection.memory.counters_stream)
    monkeypatch.setattr(type(connection), "streams", lambda _: client)
    return made


def report_of(stack: MemoryStack, repository: Repository, *, coalesce: bool = False) -> Report:
    """What a run reports."""
    with open_repository(repository.path) as history:
        return DemoRun([stack.ledger], history, coalesce=coalesce).report()


@pytest.mark.parametrize("coalesce", [False, True])
def test_a_run_is_good_and_every_tenth_event_is_a_retry(
    stack: MemoryStack, repository: Repository, *, coalesce: bool
) -> None:
    report = report_of(stack, repository, coalesce=coalesce)

    assert problems(report) == []
    assert report["commits"] == 8
    assert report["retries"] == report["events"] // 10 == report["duplicates"] > 0
    assert (report["entries"] or 0) < report["events"]
    assert coalesce == (report["entries"] is not None)
    assert {one["counter"] for one in report["busiest_counters"]} >= {"lines:long"}


def test_every_fact_of_a_run_is_explained(stack: MemoryStack, repository: Repository) -> None:
    (_, summary) = _GUIDE.read_text().split("## The summary")

    named = set(re.findall(r"`(\w+)`", summary))

    assert {*report_of(stack, repository), *demo._PROBLEMS} - named == set()


def test_an_event_that_is_lost_makes_the_run_wrong(
    stack: MemoryStack, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lossy(history: History) -> Iterator[list[Event]]:
        for events in read_events(history):
            yield events[:-1]

    monkeypatch.setattr(demo_run, "read_events", lossy)

    report = report_of(stack, repository)

    assert "2 numbers are not what git says" in problems(report)
    assert {one["counter"] for one in report["wrong_numbers"]} == {"lines:c", "lines:long"}


def test_an_event_that_is_counted_twice_makes_the_run_wrong(
    stack: MemoryStack, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubling(history: History) -> Iterator[list[Event]]:
        for events in read_events(history):
            yield [*events, Event(events[0].counter, events[0].delta, f"{events[0].key}-2")]

    monkeypatch.setattr(demo_run, "read_events", doubling)

    (wrong,) = report_of(stack, repository)["wrong_numbers"]

    assert wrong["counter"] == "commits:Ann Author"
    assert (wrong["value"], wrong["emitted"], wrong["truth"]) == (16, 16, 8)


def test_a_retry_that_is_counted_is_not_recognised(
    stack: MemoryStack, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keyless(history: History) -> Iterator[list[Event]]:
        for events in read_events(history):
            yield [replace(one, key=None) for one in events]

    monkeypatch.setattr(demo_run, "read_events", keyless)

    report = report_of(stack, repository)

    assert report["unrecognised_retries"] == report["retries"] > 0
    assert len(problems(report)) >= 2


def test_an_alert_that_is_missing_makes_the_run_wrong(
    stack: MemoryStack, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = AlertLog.newest

    def without_the_last(log: AlertLog, *given: Any, **named: Any) -> list[Any]:  # noqa: ANN401
        return list(newest(log, *given, **named))[1:]

    monkeypatch.setattr(AlertLog, "newest", without_the_last)

    report = report_of(stack, repository)

    assert problems(report) == ["1 alerts are missing"]


def test_a_day_that_is_not_that_of_the_log_is_wrong() -> None:
    """Days ahead are compared as one, with what has no date; the first day of all is compared."""
    ledger, now = MemoryStack().ledger, datetime.now(UTC)
    prepare(ledger, fresh=True, days=True)
    dates = (datetime(1970, 1, 1, tzinfo=UTC), datetime(2000, 2, 29, 12, tzinfo=UTC), now, None)
    events = [Event("lines:a", 2, f"k{n}", at) for n, at in enumerate(dates)]
    events.append(Event("lines:a", 5, "ahead", now + timedelta(days=30)))
    assert all(not isinstance(one, Exception) for one in ledger.record_many(events))

    def checked(*others: Event) -> Report:
        return check_days(ledger, [events, [*others]], ["lines:a"], now.timestamp())

    assert checked() == {"days_checked": 3, "wrong_days": []}
    others = [Event(name, 1, None, dates[1]) for name in ("lines:a", "lines:b")]
    assert checked(*others)["wrong_days"] == [
        {"counter": "lines:a", "day": "2000-02-29", "value": 2, "truth": 3}
    ]
