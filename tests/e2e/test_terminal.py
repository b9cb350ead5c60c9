"""The command line in a user's shell: terminals, pipes, signals, lost answers, own tables."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from countledger.infra.local.stack import LocalStack
from tests.e2e.command import PATIENCE_S, Command, Process, eventually
from tests.e2e.proxy import PassingRequest, ProxyAnswer, proxy_before
from tests.e2e.steps import play, step, totals
from tests.e2e.world import client_of, make_table

_RULE = "alert create NS --prefix NS: --threshold 100 --direction rising"


@pytest.mark.parametrize(
    ("refusal", "outcome", "line"),
    [
        ((500, "InternalServerError"), "unknown", "method atomic cannot know"),
        ((400, "TransactionConflictException"), "contended", "let none of 8 attempts through"),
    ],
)
def test_a_change_without_a_clear_answer_is_exit_code_3_with_advice(
    stack: LocalStack, command: Command, refusal: tuple[int, str], outcome: str, line: str
) -> None:
    name = play(command, [step("strict create NS:a --method atomic")])
    code, error = refusal
    refused = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{error}"}).encode()

    def answer(request: PassingRequest) -> ProxyAnswer:
        if request.headers.get("X-Amz-Target", "").endswith(".UpdateItem"):
            return code, "application/x-amz-json-1.0", refused
        return request.forward()

    with proxy_before(stack.url, answer) as url:
        change = f"strict change {name}:a 1 --endpoint-url {url}"
        play(command, [step(change, {"outcome": outcome}, code=3, err=line)])

    play(command, [step(f"strict show {name}:a", {"value": "0"})])


@contextmanager
def on_a_terminal(command: Command, *arguments: str, **streams: Any) -> Iterator[tuple[Any, int]]:  # noqa: ANN401
    """A process with a terminal as stdin or stdout, whichever is not given; its other end."""
    ours, theirs = pty.openpty()
    pipes: dict[str, Any] = {"stdin": theirs, "stdout": theirs, **streams}
    with subprocess.Popen(
        command.line(*arguments),
        stderr=subprocess.PIPE,
        env=command.variables({"COLUMNS": "120", "TERM": "xterm"}),
        **pipes,
    ) as running:
        os.close(theirs)
        yield running, ours
    os.close(ours)


@pytest.mark.parametrize(("typed", "code"), [("y", 0), ("n", 130)])
def test_a_person_is_asked_before_a_counter_is_deleted(
    command: Command, typed: str, code: int
) -> None:
    counter = f"{play(command, [step('strict create NS:a --method occ --opening 7')])}:a"
    with on_a_terminal(command, "strict", "delete", counter, stdout=subprocess.DEVNULL) as (
        asked,
        terminal,
    ):
        os.write(terminal, f"{typed}\n".encode())
        _, said = asked.communicate(timeout=PATIENCE_S)

    assert asked.returncode == code
    assert f"Delete counter {counter!r} and its value 7, for good?" in said.decode()
    assert command("strict", "show", counter).code == (2 if typed == "y" else 0)


def test_watch_shows_a_table_on_a_terminal_and_ends_by_an_interrupt(command: Command) -> None:
    name = play(command, (step("emit NS:1 7"), step("total NS:1", out="\t7\t", waits=True)))
    watching = ("watch", "--prefix", f"{name}:", "--every", "200ms")
    with on_a_terminal(command, *watching, stdin=subprocess.DEVNULL) as (running, terminal):
        shown = _read_until(terminal, f"{name}:1")
        command("emit", f"{name}:1", "5")
        shown += _read_until(terminal, "+5")
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=PATIENCE_S)

    assert (running.returncode, said) == (0, b"")
    assert "each second" in shown


def _read_until(terminal: int, wanted: str) -> str:
    shown = ""
    deadline = time.monotonic() + PATIENCE_S
    while wanted not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 65_536).decode(errors="replace")
    return shown


def test_watch_prints_changes_and_alerts_as_json_lines_for_programs(command: Command) -> None:
    name = play(command, [step(_RULE)])
    effective = command("alert", "show", name, "--json").json["effective_from"]
    watching = ("watch", f"{name}:1", "--every", "200ms", "--for", "30s", "--json")
    with subprocess.Popen(
        command.line(*watching), env=command.variables(), stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        first = json.loads(running.stdout.readline())
        eventually(lambda: time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) > effective[:19])
        command("emit", f"{name}:1", "150")
        seen = [json.loads(running.stdout.readline()) for _ in range(2)]
        running.terminate()

    assert (first["kind"], first["value"], first["change"]) == ("total", "0", None)
    assert (seen[0]["value"], seen[0]["change"]) == ("150", "150")
    assert (seen[1]["kind"], seen[1]["counter"], seen[1]["new"]) == ("alert", f"{name}:1", "150")


def test_a_reader_that_leaves_is_no_failure(command: Command, name: str) -> None:
    lines = json.dumps({"counter": name, "delta": 1}) + "\n"
    command("emit", "--file", "-", stdin=lines * 1000)
    with subprocess.Popen(
        command.line("entries", name, "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=command.variables(),
    ) as reading:
        assert reading.stdout
        assert reading.stderr
        assert reading.stdout.readline() == b'{"items": [\n'
        reading.stdout.close()
        said = reading.stderr.read()

    assert (reading.returncode, said) == (141, b"")


def test_an_interrupt_is_exit_code_130_without_a_traceback(command: Command) -> None:
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


def test_a_person_who_types_events_sees_at_once_what_became_of_each(
    command: Command, name: str
) -> None:
    with on_a_terminal(command, "emit", "--file", "-", stdout=subprocess.PIPE) as (
        typing,
        terminal,
    ):
        os.write(terminal, f'{{"counter": "{name}", "delta": 3}}\n'.encode())
        assert typing.stderr.readline() == b"through line 1: 1 recorded\n"
        os.write(terminal, b"not an event\n")
        assert typing.stderr.readline().startswith(b"line 2: ")
        assert typing.stderr.readline() == b"through line 2: 1 recorded, 1 bad\n"
        os.write(terminal, b"\x04")  # the end of the input
        out, _ = typing.communicate(timeout=PATIENCE_S)

    assert typing.returncode == 1
    assert out.split(b"\n")[1] == b"1\t0\t1"


def test_up_serves_a_shell_with_the_rules_of_a_settings_file_until_down(
    stack: LocalStack, name: str, tmp_path: Path
) -> None:
    process = Process(stack.environment())
    there = ("--stack-name", name)
    away = {"COUNTLEDGER_STACK_NAME": None, "AWS_PROFILE": "mine", "COUNTLEDGER_HOME_REGION": "x"}
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    rule = '[[alerts]]\nname = "busy"\nall = true\nstep = 100\ndirection = "rising"\n'
    good.write_text('[schedules.default]\nevery = "15m"\n' + rule)
    bad.write_text('[schedules.default]\nevery = "sometimes"\n')
    try:
        refused = process("up", *there, "--settings", str(bad), "--json", env=away)
        running = refused.json["environment"] | away | {"AWS_PROFILE": None}
        running["COUNTLEDGER_HOME_REGION"] = None
        process("namespace", "create", "default", *there, env=running)
        up = process("up", *there, "--settings", str(good), env=away)
        script = f"{up.out}\nexec {' '.join(process.line('emit', 'likes:1', '-5', '--json'))}"
        emitted = subprocess.run(
            ["/bin/sh", "-c", script],
            capture_output=True,
            env=process.variables(dict.fromkeys(process.environment) | away),
            check=True,
        )
        rules = [process(kind, "list", *there, env=running) for kind in ("schedule", "alert")]
        status = process("status", *there, "--json")
        with on_a_terminal(process, "up", *there, stdin=subprocess.DEVNULL) as (again, _):
            _, seen = again.communicate(timeout=60)
    finally:
        down = process("down", *there, "--json")
    gone, down_again = process("status", *there, "--json"), process("down", *there, "--json")

    assert (refused.code, up.code) == (2, 0)
    assert "sometimes" in refused.err
    assert {line.split()[0] for line in up.out.splitlines()} == {"unset", "export"}
    assert "data is kept in memory and lost" in up.err
    assert "does not know of it yet" in seen.decode()
    assert "does not know of it yet" not in up.err
    assert json.loads(emitted.stdout)["delta"] == "-5"
    assert ["rate(15 minutes)" in rules[0].out, "busy" in rules[1].out] == [True, True]
    assert [status.code, status.json["running"]] == [0, True]
    assert down.json == {"stack_name": name, "stopped": True}
    assert [gone.code, gone.json["running"]] == [1, False]
    assert down_again.json == {"stack_name": name, "stopped": False}


def test_alerts_that_a_target_refuses_are_kept_and_sent_again(
    command: Command, stack: LocalStack
) -> None:
    sns = stack.client("sns")
    name = play(command, (step("emit NS:old 150"), totals(old=150)))
    topic = sns.create_topic(Name=name)["TopicArn"]
    rule = _RULE.replace("NS", name)
    play(command, [step(f"{rule} --to topic {topic}", {"to": topic})])
    sns.delete_topic(TopicArn=topic)
    alerts = client_of(stack).alerts

    assert alerts.initial_scan(alerts.get(name)) == 1
    (logged,) = command("alert", "log", f"{name}:old", "--json").items
    refused = command("alert", "resend", "--json")
    sns.create_topic(Name=name)
    sent, empty = [command("alert", "resend", "--json") for _ in range(2)]

    assert "does not exist" in logged["reason"]
    assert refused.code == 1
    # The queue may hold alerts of other tests.
    resent = [
        [one["sent"] for one in done.items if one["alert"]["id"] == logged["alert"]["id"]]
        for done in (refused, sent, empty)
    ]
    assert resent == [[False], [True], []]


@pytest.mark.parametrize("kind", ["alert", "schedule"])
def test_a_settings_file_is_applied_as_a_whole_and_again_changes_nothing(
    command: Command, name: str, tmp_path: Path, kind: str
) -> None:
    toml, yaml, bad = (tmp_path / f"a.{end}" for end in ("toml", "yaml", "bad.toml"))
    if kind == "alert":
        one = f'[[alerts]]\nname = "{name}"\nprefix = "{name}:"\nstep = 10\ndirection = "both"\n'
        same = f"alerts:\n- {{name: {name}, prefix: '{name}:', step: 10, direction: both}}\n"
        none = "arn:aws:sns:us-east-1:000000000000:none"
        more = f'[[alerts]]\nname = "x"\nall = true\nstep = 1\ndirection = "both"\nto = "{none}"\n'
    else:
        one = f'[schedules.{name}]\nevery = "15m"\nmin_entries = 500\nretire = "delete"\n'
        same = f"schedules: {{{name}: {{every: 15m, min_entries: 500, retire: delete}}}}\n"
        more = '[schedules.no-such]\nevery = "1h"\n'
    toml.write_text(one)
    yaml.write_text(same)
    bad.write_text(one + more)
    play(
        command,
        (
            step(f"namespace create {name}"),
            step(f"{kind} apply {bad}", code=2),
            step(f"{kind} show {name}", code=2),
            step(f"{kind} apply {toml}", [{"change": "created"}]),
            step(f"{kind} apply {yaml}", [{"change": "unchanged"}]),
            step(f"{kind} delete {name}"),
        ),
    )


@contextmanager
def own_table(stack: LocalStack, name: str, sort: Any) -> Iterator[None]:  # noqa: ANN401 - a literal
    """A table of an app's own, whose sort key is of type S or N."""
    make_table(stack, name, id="S", place=sort)
    yield
    stack.client("dynamodb").delete_table(TableName=name)


@pytest.mark.parametrize(
    ("sort", "options", "place"),
    [("N", "", 1), ("S", "--prefix c# --digits 4", "c#0001")],
    ids=["by number", "by text"],
)
def test_items_of_an_own_table_are_appended_in_order(  # noqa: PLR0917 - three are the row
    stack: LocalStack, command: Command, name: str, sort: str, options: str, place: object
) -> None:
    item = '{"text": "hi", "price": 12.10, "big": 123456789012345678901}'
    append = f"sequence append {name} --partition id=p-1 --sort place {options}"
    stored = {"id": "p-1", "place": place, "text": "hi", "price": "12.10"}
    with own_table(stack, name, sort):
        play(
            command,
            (
                step(f"{append} '{item}'", {"number": 1, "item": stored}),
                step(f"{append} {{}}", out=f"2\t{name}"),
            ),
        )


def test_a_claim_and_an_item_of_an_own_table_change_together(
    stack: LocalStack, command: Command, name: str
) -> None:
    key = '{"id": "u-1", "place": 0}'
    with own_table(stack, name, "N"):
        same = f"--owner u-1 --table {name} --key '{key}'"
        change = f'claim change NS --from a --to b {same} --set \'{{"mail": "b"}}\' --expect'
        item = key.replace("}", ', "mail": "a"}')
        play(
            command,
            (
                step(
                    f"claim take NS a --owner u-1 --table {name} --key-name id --key-name place "
                    f"--item '{item}'"
                ),
                step(f'{change} \'{{"mail": "z"}}\'', code=4, err="expected: mail = 'a'"),
                step(f'{change} \'{{"mail": "a"}}\'', {"done": True}),
                step(f"claim release NS b {same}"),
            ),
        )
        assert stack.client("dynamodb").scan(TableName=name)["Items"] == []
