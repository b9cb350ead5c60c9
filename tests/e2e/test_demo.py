"""The main job on a small repository in which everything is odd."""

from __future__ import annotations

import signal
import subprocess
from contextlib import chdir
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from countledger import counter_name
from countledger.infra.demo import DemoRun, open_repository, problems
from countledger.infra.local.stack import LocalStack
from countledger.ledger.clock import SystemClock
from tests.e2e.command import Process, eventually
from tests.e2e.world import alter_total, client_of
from tests.unit.demo.repositories import Repository, git, make_odd_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEAST_FACTS = {
    "repository",
    "commits",
    "events",
    "retries",
    "duplicates",
    "counters_checked",
    "wrong_numbers",
    "events_sent_per_second",
    "events_materialized_per_second",
    "run_time_seconds",
    "write_units_per_event",
}
NO_AWS = Process({})


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The repository that is counted."""
    return make_odd_repository(tmp_path_factory.mktemp("demo") / "odd")


@pytest.fixture(scope="module")
def own_stack() -> Iterator[LocalStack]:
    """A stack on which nothing else counts."""
    with LocalStack(name="countledger-demo") as stack:
        yield stack


def events_of(repository: Repository) -> int:
    """How many events the history has, by git's own words: commits, and changes of size."""
    log = ("log", "--first-parent", "-m", "--no-renames", "--numstat", "-z", "--format=%x01%H")
    tokens = git(repository.path, *log).split(b"\0")
    sizes = [token.lstrip(b"\n").split(b"\t")[:2] for token in tokens if token.count(b"\t") > 1]
    plain = [int(added) - int(removed) for added, removed in sizes if added != b"-"]
    commits = sum(token.lstrip(b"\n").startswith(b"\x01") for token in tokens)
    return commits + sum(delta != 0 for delta in plain)


def test_every_total_of_an_odd_repository_is_right(odd: Repository) -> None:
    elsewhere: dict[str, str | None] = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    elsewhere |= {"AWS_PROFILE": "mine"}
    elsewhere |= {"COUNTLEDGER_LEDGER_TABLE": "mine", "COUNTLEDGER_STACK_NAME": "mine"}

    done = NO_AWS("demo", "--repo", str(odd.path), "--json", env=elsewhere)

    assert done.code == 0, done
    report = done.json
    assert set(report) >= LEAST_FACTS
    assert report["repository"] == str(odd.path)
    assert report["commits"] == int(git(odd.path, "rev-list", "--first-parent", "--count", "HEAD"))
    # Numstat prints no numbers for the two steps between text and binary, and prints one line each
    # for the submodule that comes and for the one that is replaced by two lines.
    assert report["events"] == events_of(odd) + 2 - 1
    assert report["retries"] == report["events"] // 10 == report["duplicates"]
    assert report["unrecognised_retries"] == 0
    assert [report["wrong_numbers"], report["missing_events"]] == [[], 0]
    assert report["days_checked"] > 0
    assert report["wrong_days"] == []
    assert report["write_units_per_event"] > 1
    assert 0 < report["events_materialized_per_second"] <= report["events_sent_per_second"]


def test_every_total_is_right_through_kinesis(odd: Repository) -> None:
    done = NO_AWS("demo", "--repo", str(odd.path), "--via", "kinesis", "--json")

    assert done.code == 0, done
    report = done.json
    assert (report["via"], report["duplicates"]) == ("kinesis", None)
    assert report["events"] == events_of(odd) + 2 - 1
    assert report["retries"] == report["events"] // 10 > 0
    assert [report["wrong_numbers"], report["missing_events"]] == [[], 0]


def test_every_total_is_right_when_events_are_coalesced(odd: Repository) -> None:
    inside = odd.path / "sub"
    inside.mkdir(exist_ok=True)

    done = NO_AWS("demo", "--repo", str(inside), "--coalesce")

    assert done.code == 0, done
    assert "\nentries\t" in done.out
    assert "counters is what git says" in done.out
    assert "commits:Ann Author" in done.out
    assert "\x1b" not in done.out
    assert NO_AWS("demo", "--coalesce", "--via", "kinesis").code == 2


def test_every_number_is_right_in_every_region_after_a_partition(odd: Repository) -> None:
    done = NO_AWS("demo", "--repo", str(odd.path), "--regions", "2", "--json")

    report = done.json
    assert [report["wrong_numbers"], report["missing_events"]] == [[], 0]
    assert [report["wrong_days"], report["unrecognised_retries"]] == [[], 0]
    assert report["days_checked"] > 0
    assert report["regions"] == ["us-east-1", "eu-west-1"]
    assert report["events"] == events_of(odd) + 2 - 1
    assert report["retries"] > 0
    # In the partition the regions differed, and every run of the compactor had to wait for its end.
    assert report["counters_apart"] > 0
    assert report["compactions_that_waited"] == report["compactions"] > 0
    assert report["entries_merged_later"] > 0
    assert (done.code, report["good"]) == (0, True)
    assert NO_AWS("demo", "--regions", "2", "--coalesce").code == 2


def test_the_totals_can_be_read_afterwards_and_a_second_run_is_all_duplicates(
    odd: Repository, own_stack: LocalStack
) -> None:
    command = Process(own_stack.environment())
    arguments = ("demo", "--repo", str(odd.path), "--stack-name", own_stack.name, "--json")

    first, second = command(*arguments), command(*arguments)

    assert [first.code, second.code] == [0, 0]
    assert second.json["duplicates"] == first.json["events"] + first.json["retries"]
    files = git(odd.path, "ls-tree", "-r", "-z", "HEAD").split(b"\0")[:-1]
    lines = {}
    for facts, _, path in (file.partition(b"\t") for file in files):
        body = git(odd.path, "cat-file", "blob", facts.split()[2].decode())
        lines[counter_name("lines", path)] = 0 if b"\0" in body else len(body.splitlines())
    totals = client_of(own_stack).totals(lines)
    assert lines == {counter: total.value for counter, total in totals.items()}
    assert sum(lines.values()) > 20


def test_a_total_that_is_not_what_git_says_is_named_and_fails(
    odd: Repository, own_stack: LocalStack
) -> None:
    command = Process(own_stack.environment())
    arguments = ("demo", "--repo", str(odd.path), "--endpoint-url", own_stack.url)
    assert command(*arguments).code == 0
    alter_total(own_stack, "lines:main", 1)
    alter_total(own_stack, "lines:both", 5)

    done = command(*arguments, "--json")
    told = command(*arguments)
    alter_total(own_stack, "lines:main", -1)
    alter_total(own_stack, "lines:both", -5)

    assert [done.code, told.code] == [1, 1]
    total = {"number": "total in us-east-1"}
    assert done.json["wrong_numbers"] == [
        {**total, "counter": "lines:both", "value": "5", "emitted": "0", "truth": "0"},
        {**total, "counter": "lines:main", "value": "2", "emitted": "1", "truth": "1"},
    ]
    assert "lines:main\ttotal in us-east-1\t2\t1\t1" in told.out
    assert "WRONG: 2 numbers are not what git says." in told.out


def test_what_cannot_be_counted_is_refused_before_an_engine_is_started(tmp_path: Path) -> None:
    empty = Repository(tmp_path / "empty")
    repository = Repository(tmp_path / "repository")
    repository.commit()
    with chdir(tmp_path):
        here = NO_AWS("demo")
    refused = {
        "not a git repository": NO_AWS("demo", "--repo", str(tmp_path), "--json"),
        "not a git repository (": here,
        "a commit at HEAD": NO_AWS("demo", "--repo", str(empty.path)),
        "install git": NO_AWS("demo", "--repo", str(repository.path), env={"PATH": str(tmp_path)}),
    }

    for reason, done in refused.items():
        assert done.code == 2
        assert done.out == ""
        assert done.err.count("\n") == 1
        assert reason in done.err


def test_a_terminated_demo_leaves_nothing_behind(odd: Repository, tmp_path: Path) -> None:
    with subprocess.Popen(
        NO_AWS.line("demo", "--repo", str(odd.path)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=NO_AWS.variables({"TMPDIR": str(tmp_path)}),
    ) as running:
        eventually(lambda: any(tmp_path.glob("countledger-engine-*")))
        running.send_signal(signal.SIGTERM)
        out, said = running.communicate(timeout=60)

    assert running.returncode == 143, said
    assert out == b""
    assert b"Traceback" not in said
    assert not list(tmp_path.glob("countledger-*"))


def test_a_materializer_that_stands_still_is_reported_and_not_awaited_for_ever(
    own_stack: LocalStack, tmp_path: Path
) -> None:
    made = Repository(tmp_path / "new")
    made.commit({b"never seen": b"1\n2\n"}, author=b"Nobody Yet")
    hasty = client_of(own_stack)
    hasty.connection = replace(hasty.connection, clock=HastyClock())
    own_stack.pump.stop()
    try:
        with open_repository(made.path) as history:
            report = DemoRun([hasty], history).report()
    finally:
        own_stack.pump.start()

    assert "2 events did not reach their totals" in problems(report)
    assert report["missing_events"] == report["events"] == 2
    assert {wrong["counter"] for wrong in report["wrong_numbers"]} == {
        "commits:Nobody Yet",
        "lines:never seen",
    }


def test_a_file_that_passes_a_thousand_lines_alerts(own_stack: LocalStack, tmp_path: Path) -> None:
    made = Repository(tmp_path / "long")
    for lines in (900, 1_100, 5, 1_200):
        made.commit({b"long": b"line\n" * lines})

    with open_repository(made.path) as history:
        report = DemoRun([client_of(own_stack)], history).report()

    assert [report["missing_alerts"], report["unexpected_alerts"]] == [[], []]
    assert {alert["counter"] for alert in report["alerts"]} == {"lines:long"}
    assert report["longest_lag_of_alerts_seconds"] is not None


class HastyClock(SystemClock):
    """A clock for which waiting is over at once: its time runs ahead instead."""

    def __init__(self) -> None:
        self._ahead_ms = 0.0

    def now_ms(self) -> int:
        """The time, and all that was waited."""
        return super().now_ms() + int(self._ahead_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        """Return now."""
        self._ahead_ms += duration_ms
