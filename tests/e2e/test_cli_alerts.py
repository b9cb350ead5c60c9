"""`countledger alert` and `watch` on the deployed stack, as a user runs them."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from countledger import CountLedger
from tests.e2e.command import PATIENCE_S, Command, Finished, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from countledger.infra.local.stack import LocalStack


@pytest.fixture
def name() -> str:
    """Of a rule, and of a namespace, of this test alone."""
    return f"a{uuid.uuid4().hex[:8]}"


def _topic(stack: LocalStack, name: str) -> str:
    return str(stack.client("sns").create_topic(Name=name)["TopicArn"])


def _rule(name: str, *more: str) -> list[str]:
    watched = ["--prefix", f"{name}:", "--threshold", "100", "--direction", "rising"]
    return ["alert", "create", name, *watched, *more]


def test_a_rule_lives_from_create_to_delete(command: Command, stack: LocalStack, name: str) -> None:
    """Made, shown, changed, listed, deleted; each says when it takes effect."""
    topic = _topic(stack, name)

    made = command(*_rule(name), "--json")
    again = command(*_rule(name))
    changed = command("alert", "set", name, "--rearm", "50", "--to", "topic", topic, "--json")
    shown = command("alert", "show", name, "--json")
    listed = command("alert", "list")
    deleted = [command("alert", "delete", name, "--json").json["deleted"] for _ in range(2)]

    assert [made.code, again.code, changed.code, shown.code, listed.code] == [0, 2, 0, 0, 0]
    assert made.json | {"revision": "", "effective_from": ""} == {
        "rule": name,
        "counter": None,
        "prefix": f"{name}:",
        "threshold": 100,
        "direction": "rising",
        "rearm": None,
        "step": None,
        "to": "bus",
        "evaluate_in": "us-east-1",
        "revision": "",
        "effective_from": "",
    }
    assert f"alert set {name}" in again.err
    assert (changed.json["rearm"], changed.json["to"]) == (50, topic)
    assert shown.json == changed.json
    assert changed.json["revision"] != made.json["revision"]
    assert f"{name}:*" in listed.out
    assert deleted == [True, False]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("arn:aws:sns:us-east-1:000000000000:nobody-made-it", "no alert would arrive"),
        (
            "arn:aws:sns:eu-west-1:000000000000:alarms",
            "evaluated in us-east-1: give a topic in us-east-1",
        ),
        ("arn:aws-cn:sns:us-east-1:000000000000:alarms", "nothing crosses partitions"),
    ],
)
def test_a_target_that_no_alert_would_reach_is_refused(
    command: Command, name: str, target: str, reason: str
) -> None:
    """When the rule is made: exit 2, one line, no rule."""
    refused = command(*_rule(name), "--to", target)

    assert (refused.code, refused.out) == (2, "")
    assert refused.err.count("\n") == 1
    assert reason in refused.err
    assert command("alert", "show", name).code == 2


def test_a_bus_that_is_not_there_is_refused(command: Command, name: str) -> None:
    """Exit 2, one line, no rule."""
    refused = command(*_rule(name), env={"COUNTLEDGER_ALERT_BUS": "nobody-made-it"})

    assert (refused.code, refused.out) == (2, "")
    assert "no alert would arrive: event bus 'nobody-made-it'" in refused.err
    assert command("alert", "show", name).code == 2


def test_a_strict_counter_with_bins_is_refused_with_the_reason(command: Command, name: str) -> None:
    """Exit 2."""
    spread = ["--method", "atomic", "--lower", "0", "--opening", "10", "--bins", "4"]
    assert command("strict", "create", f"{name}:seats", *spread).code == 0

    refused = command(
        *("alert", "create", name, "--counter", f"{name}:seats"),
        *("--threshold", "5", "--direction", "falling"),
    )

    assert refused.code == 2
    assert "4 bins: its value is spread over many items" in refused.err


def test_another_region_is_refused_where_no_stack_is(command: Command, name: str) -> None:
    """A rule is kept where it is evaluated, and changed there."""
    assert command(*_rule(name)).code == 0
    away = ("--evaluate-in", "eu-west-1")

    for refused in (
        command(*_rule(name), *away),
        command("alert", "set", name, "--threshold", "7", *away),
    ):
        assert refused.code == 2
        assert "eu-west-1" in refused.err
    here = command("alert", "set", name, "--threshold", "7", "--evaluate-in", "us-east-1", "--json")
    assert here.json["threshold"] == 7


def test_a_settings_file_is_applied(command: Command, name: str, tmp_path: Path) -> None:
    """All of it or nothing; again it changes nothing."""
    file, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    one = f'[[alerts]]\nname = "{name}"\nprefix = "{name}:"\nstep = 10\ndirection = "both"\n'
    away = '[[alerts]]\nname = "x"\nall = true\nstep = 1\ndirection = "both"\nto = "bus"\n'
    file.write_text(one)
    bad.write_text(one + away.replace('"bus"', '"arn:aws:sns:us-east-1:000000000000:none"'))

    refused = command("alert", "apply", str(bad))
    assert command("alert", "show", name).code == 2
    done = [command("alert", "apply", str(file), "--json").json[0]["change"] for _ in range(2)]

    assert refused.code == 2
    assert done == ["created", "unchanged"]


def test_alerts_are_tried_told_at_once_and_listed(
    command: Command, stack: LocalStack, name: str
) -> None:
    """A total beyond the threshold alerts with --now; without it is silent."""
    command("emit", f"{name}:old", "150")
    stack.pump.drain()
    silent = f"{name}-silent"
    assert command(*_rule(name)[:2], silent, *_rule(name)[3:]).code == 0

    made = command(*_rule(name), "--now", "--json")
    again = command("alert", "set", name, "--now", "--json")
    tried = command("alert", "test", name, f"{name}:old", "--json")
    other = command("alert", "test", name, "elsewhere")
    found = command("alert", "log", f"{name}:old", "--json")
    everywhere = command("alert", "log", "--json")

    assert [made.json["published_now"], again.json["published_now"]] == [1, 0]
    assert (tried.code, tried.json["test"]) == (0, True)
    assert other.code == 2
    (logged,) = found.json
    assert (logged["rule"], logged["threshold"], logged["new"]) == (name, "100", "150")
    assert logged["dead_letter"] is None
    assert logged in everywhere.json


def test_what_a_target_does_not_take_is_kept_and_sent_again(
    command: Command, stack: LocalStack, name: str
) -> None:
    """The topic is gone when the alert is due; it comes back, and so does the alert."""
    topic = _topic(stack, name)
    command("emit", f"{name}:old", "150")
    stack.pump.drain()
    assert command(*_rule(name), "--to", topic).code == 0
    stack.client("sns").delete_topic(TopicArn=topic)

    client = CountLedger(session=stack.session(), endpoint_url=stack.url)
    told = client.alerts.initial_scan(client.alerts.get(name))
    (logged,) = command("alert", "log", f"{name}:old", "--json").json
    refused = command("alert", "resend", "--json")
    _topic(stack, name)
    sent = command("alert", "resend", "--json")
    empty = command("alert", "resend", "--json")

    assert told == 1
    assert "does not exist" in logged["dead_letter"]
    assert (refused.code, _sent(refused, logged["id"])) == (1, [False])
    assert _sent(sent, logged["id"]) == [True]
    assert _sent(empty, logged["id"]) == []


def _sent(finished: Finished, alert: str) -> list[bool]:
    """What became of one alert; the queue may hold those of other tests."""
    return [one["sent"] for one in finished.json if one["message"]["id"] == alert]


def test_watch_prints_changes_and_alerts_as_lines_for_programs(
    stack: LocalStack, command: Command, name: str
) -> None:
    """One JSON object each, as they come; it ends by itself when told to."""
    made = command(*_rule(name), "--json").json
    process = Command(stack.environment())
    watching = ("watch", f"{name}:1", "--every", "200ms", "--for", "30s", "--json")
    with subprocess.Popen(
        process.line(*watching), env=process.variables(), stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        first = json.loads(running.stdout.readline())
        _await(made["effective_from"])
        command("emit", f"{name}:1", "150")
        seen = [json.loads(running.stdout.readline()) for _ in range(2)]
        running.terminate()

    assert (first["kind"], first["total"], first["change"]) == ("total", 0, None)
    assert (seen[0]["total"], seen[0]["change"]) == (150, 150)
    assert (seen[1]["kind"], seen[1]["counter"], seen[1]["new"]) == ("alert", f"{name}:1", "150")


def test_watch_shows_a_table_on_a_terminal_and_ends_by_an_interrupt(
    stack: LocalStack, command: Command, name: str
) -> None:
    """Exit 0 and no traceback: that is how a user ends it."""
    command("emit", f"{name}:1", "7")
    stack.pump.drain()
    process = Command(stack.environment())
    ours, theirs = pty.openpty()
    arguments = ("watch", "--prefix", f"{name}:", "--every", "200ms")
    with subprocess.Popen(
        process.line(*arguments),
        env=process.variables({"COLUMNS": "120", "TERM": "xterm"}),
        stdout=theirs,
        stderr=subprocess.PIPE,
    ) as running:
        os.close(theirs)
        shown = _read_until(ours, f"{name}:1")
        command("emit", f"{name}:1", "5")
        shown += _read_until(ours, "+5")
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE_S)

    assert running.returncode == 0, said
    assert said == b""
    assert "each second" in shown


def _read_until(terminal: int, wanted: str) -> str:
    """What a terminal shows, until that stands in it."""
    shown = ""
    deadline = time.monotonic() + PATIENCE_S
    while wanted not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 65_536).decode(errors="replace")
    return shown


def _await(moment: Any) -> None:  # noqa: ANN401 - ISO 8601
    """Until a rule is in force."""
    eventually(lambda: time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) > str(moment)[:19])
