"""The command line and its surroundings: options, environment, refusals, pipes, signals, `up`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from typing import TYPE_CHECKING

import pytest

from countledger.infra.cli.app import run
from tests.e2e.command import Command, Process

if TYPE_CHECKING:
    from pathlib import Path

    from countledger.infra.local.stack import LocalStack


KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@pytest.fixture
def process(stack: LocalStack) -> Process:
    """The command line as a user's shell runs it."""
    return Process(stack.environment())


@pytest.fixture
def counter() -> str:
    """A counter of this test alone."""
    return f"cli:{uuid.uuid4()}"


def test_shared_options_stand_before_or_after_the_command(
    command: Command, stack: LocalStack, counter: str
) -> None:
    """What the environment does not say, the options do; the nearer one wins."""
    endpoint = ("--endpoint-url", stack.url, "--region", "us-east-1", "--stack-name", stack.name)
    bare = {"AWS_ENDPOINT_URL": None, "AWS_REGION": None, "AWS_DEFAULT_REGION": None}

    after = command("total", counter, *endpoint, "--json", env=bare)
    before = command(*endpoint, "--json", "total", counter, env=bare)
    both = command("--stack-name", "no-such", "total", counter, *endpoint, "--output", "json")
    nested = command("namespace", *endpoint, "--output", "json", "list", env=bare)

    assert [after.code, before.code, both.code, nested.code] == [0, 0, 0, 0]
    assert after.json["totals"] == before.json["totals"] == both.json["totals"]


def test_what_is_wrong_with_the_set_up_is_one_line(command: Command, counter: str) -> None:
    """No stack, no table, no credentials, nobody there, no such profile: exit 2."""
    here = ("total", counter)
    no_table = {"COUNTLEDGER_LEDGER_TABLE": "none"}
    refused = {
        "no stack 'other'": command(*here, env={"COUNTLEDGER_STACK_NAME": "other"}),
        "COUNTLEDGER_*_TABLE": command("emit", counter, "1", env=no_table),
        "credentials": command(*here, env=dict.fromkeys(KEYS)),
        "127.0.0.1:1": command(*here, env={"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}),
        "Invalid endpoint": command(*here, env={"AWS_ENDPOINT_URL": "nonsense"}),
        "no-such-profile": command(*here, "--profile", "no-such-profile"),
    }

    for reason, finished in refused.items():
        assert finished.code == 2, finished
        assert finished.out == ""
        assert finished.err.count("\n") == 1
        assert reason in finished.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["{counter}", "0"],
        ["{counter}", "NaN"],
        ["{counter}", "1" * 39],
        ["{counter}#", "1"],
        ["{counter}", "1", "--key", ""],
        ["{counter}", "1", "--at", "2026-01-01T00:00:00Z"],
        ["{counter}", "1", "--key", "k", "--at", "2001-01-01T00:00:00Z"],
        ["{counter}", "1", "--key", "k", "--at", "2101-01-01T00:00:00Z"],
        ["{counter}", "1", "--key", "k", "--at", "2026-01-01"],
        ["{counter}", "1", "--note", "n=" + "x" * 1024],
        ["{counter}" + "x" * 500, "1"],
    ],
)
def test_bad_input_writes_nothing(
    stack: LocalStack,
    counter: str,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Refused with one line and exit 2, and the ledger has no entry of it."""
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)

    code = run(["emit", *(text.format(counter=counter) for text in arguments)])

    printed = capsys.readouterr()
    assert code == 2
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert entries_like(stack, counter) == 0


def test_a_reader_that_leaves_is_no_failure(command: Command, counter: str) -> None:
    """As with `| head -1`: no traceback, and none of our own exit codes."""
    lines = json.dumps({"counter": counter, "delta": 1}) + "\n"
    command("emit", "--file", "-", stdin=lines * 1000)
    with subprocess.Popen(
        command.line("entries", counter, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=command.variables(),
    ) as reading:
        assert reading.stdout
        assert reading.stderr
        assert reading.stdout.readline() == b"[\n"
        reading.stdout.close()
        said = reading.stderr.read()

    assert reading.returncode == 141
    assert said == b""


def test_an_interrupt_ends_the_command_without_a_traceback(command: Command) -> None:
    """Ctrl-C is 130, as of any command."""
    with subprocess.Popen(
        command.line("emit", "--file", "-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=command.variables(),
    ) as waiting:
        assert waiting.stdin
        assert waiting.stderr
        waiting.stdin.write(b"not an event\n")
        waiting.stdin.flush()
        assert waiting.stderr.readline().startswith(b"line 1:")
        waiting.send_signal(signal.SIGINT)
        said = waiting.stderr.read()

    assert waiting.returncode == 130
    assert b"Traceback" not in said


def test_up_serves_a_shell_until_down(process: Process) -> None:
    """Only exports on stdout; status tells; down leaves nothing that answers."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    away = {"COUNTLEDGER_STACK_NAME": None, "AWS_PROFILE": "mine", "COUNTLEDGER_HOME_REGION": "x"}
    try:
        up = process("up", "--stack-name", name, env=away)
        assert up.code == 0
        script = f"{up.out}\nexec {' '.join(process.line('emit', 'likes:1', '-5', '--json'))}"
        emitted = subprocess.run(
            ["/bin/sh", "-c", script],
            capture_output=True,
            env=process.variables(dict.fromkeys(process.environment) | away),
            check=True,
        )
        running = process("status", "--stack-name", name, "--json")
        up_again = process("up", "--stack-name", name, "--json")
        seen = on_a_terminal(process, "up", "--stack-name", name)
    finally:
        down = process("down", "--stack-name", name, "--json")
    gone = process("status", "--stack-name", name, "--json")
    down_again = process("down", "--stack-name", name, "--json")

    assert {line.split()[0] for line in up.out.splitlines()} == {"unset", "export"}
    assert "data is kept in memory and lost" in up.err
    assert "does not know of it yet" in seen
    assert "does not know of it yet" not in up.err
    assert json.loads(emitted.stdout)["delta"] == -5
    assert [running.code, running.json["running"]] == [0, True]
    assert up_again.json["was_running"]
    assert up_again.json["url"] == running.json["url"]
    assert down.json == {"stack_name": name, "stopped": True}
    assert [gone.code, gone.json["running"]] == [1, False]
    assert down_again.json == {"stack_name": name, "stopped": False}


def on_a_terminal(command: Command, *arguments: str) -> str:
    """What a command says on stderr where a person reads its output."""
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            command.line(*arguments),
            stdout=theirs,
            stderr=subprocess.PIPE,
            env=command.variables(),
            check=True,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return done.stderr.decode()


def entries_like(stack: LocalStack, counter: str) -> int:
    """How many items the ledger has under names that begin like this."""
    found = stack.client("dynamodb").scan(
        TableName=stack.outputs["LedgerTableName"],
        FilterExpression="begins_with(#c, :c)",
        ExpressionAttributeNames={"#c": "counter"},
        ExpressionAttributeValues={":c": {"S": counter}},
        ConsistentRead=True,
    )
    return int(found["Count"])


def test_up_makes_the_schedules_and_alerts_of_a_settings_file(
    process: Process, tmp_path: Path
) -> None:
    """A bad file is refused with its reason; a good one is there on the stack that was started."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    rule = '[[alerts]]\nname = "busy"\nall = true\nstep = 100\ndirection = "rising"\n'
    good.write_text('[schedules.default]\nevery = "15m"\n' + rule)
    bad.write_text('[schedules.default]\nevery = "sometimes"\n')
    away = {"COUNTLEDGER_STACK_NAME": None}
    try:
        refused = process("up", "--stack-name", name, "--settings", str(bad), "--json", env=away)
        there = refused.json["environment"] | away
        process("namespace", "create", "default", "--stack-name", name, env=there)
        up = process("up", "--stack-name", name, "--settings", str(good), env=away)
        listed = process("schedule", "list", "--stack-name", name, env=there)
        alerts = process("alert", "list", "--stack-name", name, env=there)
    finally:
        process("down", "--stack-name", name)

    assert [refused.code, up.code, listed.code] == [2, 0, 0]
    assert "sometimes" in refused.err
    assert "rate(15 minutes)" in listed.out
    assert "busy" in alerts.out
