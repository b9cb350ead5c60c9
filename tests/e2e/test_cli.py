"""The command line on the deployed stack, as a user runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.command import Command, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from countledger.infra.local_stack import LocalStack


@pytest.fixture
def command(stack: LocalStack) -> Command:
    """The command line in the environment that a user of the stack has."""
    return Command(stack.environment())


@pytest.fixture
def counter() -> str:
    """A counter of this test alone."""
    return f"cli:{uuid.uuid4()}"


def total_of(command: Command, counter: str) -> dict[str, Any]:
    """The total as the command line tells it."""
    (total,) = command("total", counter, "--json").json["totals"]
    return dict(total)


def test_an_event_is_recorded_once_and_its_total_follows(command: Command, counter: str) -> None:
    """Record, repeat under the key, reuse the key, read."""
    first = command("emit", counter, "-5", "--json")
    keyed = command("emit", counter, "12.50", "--key", "k", "--note", "a=b", "--json")
    again = command("emit", counter, "12.5", "--key", "k", "--json")
    reused = command("emit", counter, "13", "--key", "k")

    assert [first.code, keyed.code, again.code, reused.code] == [0, 0, 0, 2]
    assert {"status": "recorded", "counter": counter, "delta": -5, "id": first.json["id"]} == (
        first.json
    )
    assert [keyed.json["status"], again.json["status"]] == ["recorded", "duplicate"]
    assert keyed.json["id"] == again.json["id"]
    assert "12.5" in reused.err
    assert "13" in reused.err
    eventually(lambda: total_of(command, counter)["events"] == 2)
    assert total_of(command, counter)["total"] == "7.5"


def test_a_key_with_its_time_is_another_identity(command: Command, counter: str) -> None:
    """The pair is the identity: the same key at another time is another event."""
    now = command("emit", counter, "1", "--key", "now", "--json").json
    times = [entry["at"] for entry in command("entries", counter, "--json").json]
    results = [
        command("emit", counter, "1", "--key", "now", "--at", at, "--json").json["status"]
        for at in (times[0], times[0], times[0].replace("Z", "+00:00"))
    ]

    assert now["status"] == "recorded"
    assert results == ["recorded", "duplicate", "duplicate"]


def test_totals_come_with_freshness_and_on_request_with_the_exact_sum(
    command: Command, counter: str
) -> None:
    """One JSON document of a known shape; a counter never recorded is 0."""
    command("emit", counter, "3")
    eventually(lambda: total_of(command, counter)["total"] == 3)

    document = command("total", counter, "cli:never", "--exact", "--json").json

    seen, never = document["totals"]
    assert {"counter", "total", "events", "entries", "version", "updated_at", "exact"} == set(seen)
    assert {name: seen["exact"][name] for name in ("sum", "events", "entries")} == {
        "sum": 3,
        "events": 1,
        "entries": 1,
    }
    assert [never["total"], never["version"], never["updated_at"]] == [0, 0, None]
    # The stream tells its records' times in whole seconds.
    (entry,) = command("entries", counter, "--json").json
    assert document["freshness"]["handled_through"] >= entry["at"][:19]
    assert document["freshness"]["shards"]

    table = command("total", counter, "--exact")
    assert f"{counter}\t3\t3\t" in table.out
    assert "are in the totals" in table.err


def test_entries_are_the_change_log_newest_first(command: Command, counter: str) -> None:
    """With all that the caller gave, and no more than asked for."""
    lines = [
        {"counter": counter, "delta": 1},
        {"counter": counter, "delta": 2, "occurred_at": "2001-02-03T04:05:06+01:00"},
        {"counter": counter, "delta": 3, "key": "k", "note": {"who": "me"}},
    ]
    for line in lines:
        assert command("emit", "--file", "-", stdin=json.dumps(line)).code == 0

    entries = command("entries", counter, "--json").json
    latest = command("entries", counter, "--limit", "1", "--json").json
    table = command("entries", counter)

    assert sorted(entry["delta"] for entry in entries) == [1, 2, 3]
    assert entries == sorted(entries, key=lambda entry: str(entry["at"]), reverse=True)
    by_delta = {entry["delta"]: entry for entry in entries}
    assert by_delta[2]["occurred_at"] == "2001-02-03T03:05:06.000Z"
    assert by_delta[3]["note"] == {"who": "me"}
    assert by_delta[3]["key"] == "k"
    assert entries[:1] == latest
    assert table.out.count("\n") == 4


def test_good_lines_of_a_file_are_emitted_and_bad_ones_reported(
    command: Command, counter: str, tmp_path: Path
) -> None:
    """Number and reason of every bad line, the sum of every good one, exit 1."""
    lines = [
        json.dumps({"counter": counter, "delta": 2, "key": str(number)}) for number in range(300)
    ]
    lines[10:10] = ["{", "", '{"counter": "a#b", "delta": 1}', "[]", "\0"]
    for bad in ({"delta": 3, "key": "7"}, {"delta": 0}, {"delta": 1, "colour": "red"}):
        lines.append(json.dumps({"counter": counter} | bad))
    file = tmp_path / "events.jsonl"
    file.write_bytes("\r\n".join(lines).encode() + b"\n\xff\n" + b"x" * 100_000)

    first = command("emit", "--file", str(file), "--json")
    again = command("emit", "--file", str(file), "--json")

    assert [first.code, again.code] == [1, 1]
    assert first.json == {"recorded": 300, "duplicates": 0, "bad": 9}
    assert again.json == {"recorded": 0, "duplicates": 300, "bad": 9}
    numbers = [int(line.split(":")[0].removeprefix("line ")) for line in first.err.splitlines()]
    assert sorted(numbers) == [11, 13, 14, 15, 306, 307, 308, 309, 310]
    eventually(lambda: total_of(command, counter)["total"] == 600)


def test_a_file_of_good_lines_is_no_finding(command: Command, counter: str) -> None:
    """Exit 0, also for none at all."""
    assert command("emit", "--file", "-", stdin="").code == 0
    line = json.dumps({"counter": counter, "delta": "0.1"})
    done = command("emit", "--file", "-", stdin=f"{line}\n{line}")

    assert done.code == 0
    assert done.out == "recorded\tduplicates\tbad\n2\t0\t0\n"


def test_verify_proves_what_it_says(command: Command, counter: str, stack: LocalStack) -> None:
    """Exact for an honest total; drift, exit 1 and the difference for one altered by hand."""
    command("emit", counter, "3")
    eventually(lambda: total_of(command, counter)["total"] == 3)

    honest = command("verify", counter, "--json")

    assert honest.code == 0
    assert honest.json["findings"] == 0
    assert honest.json["verdicts"][0]["verdict"] == "exact"
    assert honest.json["verdicts"][0]["proof"]

    add_by_hand(stack, counter, 2)
    altered = command("verify", counter, "--json")
    add_by_hand(stack, counter, -2)

    assert altered.code == 1
    (verdict,) = altered.json["verdicts"]
    assert [verdict["verdict"], verdict["total"], verdict["exact"]] == ["drift", 5, 3]
    assert verdict["drift"] == 2


def test_verify_all_takes_every_counter(command: Command, counter: str) -> None:
    """A counter need not be named."""
    command("emit", counter, "1")
    eventually(lambda: total_of(command, counter)["total"] == 1)

    verdicts = command("verify", "--all", "--json").json["verdicts"]

    assert counter in [verdict["counter"] for verdict in verdicts]


def test_a_namespace_is_made_read_and_described(command: Command) -> None:
    """Kind, spread and horizon are fixed when it is made; the description may change."""
    name = f"n{uuid.uuid4().hex[:8]}"
    create = ("namespace", "create", name, "--spread", "16", "--horizon", "7d")

    made = command(*create, "--description", "first", "--json")
    again = command(*create, "--json")
    other = command("namespace", "create", name, "--spread", "1")
    described = command("namespace", "set", name, "--description", "second", "--json")
    fixed = command("namespace", "set", name, "--spread", "1")
    shown = command("namespace", "show", name, "--json")
    listed = command("namespace", "list", "--json")
    unknown = command("namespace", "show", "no-such")

    wanted = {"name": name, "kind": "ledger", "spread": 16, "horizon_ms": 604_800_000}
    assert made.json == {**wanted, "description": "first"}
    assert [made.code, again.code, other.code, fixed.code, unknown.code] == [0, 0, 2, 2, 2]
    assert described.json == shown.json == {**wanted, "description": "second"}
    assert shown.json in listed.json
    assert "spread 16" in other.err


def test_a_namespace_is_made_at_the_first_emit(command: Command) -> None:
    """With the defaults."""
    name = f"n{uuid.uuid4().hex[:8]}"
    command("emit", f"{name}:x", "1")

    assert command("namespace", "show", name, "--json").json == {
        "name": name,
        "kind": "ledger",
        "spread": 1,
        "horizon_ms": 86_400_000,
        "description": None,
    }


def test_shared_options_stand_before_or_after_the_command(
    command: Command, stack: LocalStack, counter: str
) -> None:
    """What the environment does not say, the options do; the nearer one wins."""
    endpoint = ("--endpoint-url", stack.url, "--region", "us-east-1", "--stack-name", stack.name)
    bare = {"AWS_ENDPOINT_URL": None, "AWS_REGION": None, "AWS_DEFAULT_REGION": None}

    after = command("total", counter, *endpoint, "--json", **bare)
    before = command(*endpoint, "--json", "total", counter, **bare)
    both = command("--stack-name", "no-such", "total", counter, *endpoint, "--output", "json")
    nested = command("namespace", *endpoint, "--output", "json", "list", **bare)

    assert [after.code, before.code, both.code, nested.code] == [0, 0, 0, 0]
    assert after.json["totals"] == before.json["totals"] == both.json["totals"]


def test_what_is_wrong_with_the_set_up_is_one_line(command: Command, counter: str) -> None:
    """No stack, no table, no credentials, nobody there, no such profile: exit 2."""
    here = ("total", counter)
    refused = {
        "no stack 'other'": command(*here, COUNTLEDGER_STACK_NAME="other"),
        "COUNTLEDGER_*_TABLE": command("emit", counter, "1", COUNTLEDGER_LEDGER_TABLE="none"),
        "credentials": command(*here, AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None),
        "127.0.0.1:1": command(*here, AWS_ENDPOINT_URL="http://127.0.0.1:1"),
        "Invalid endpoint": command(*here, AWS_ENDPOINT_URL="nonsense"),
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
        ["{counter}", "1", "--at", "{now}"],
        ["{counter}", "1", "--key", "k", "--at", "2001-01-01T00:00:00Z"],
        ["{counter}", "1", "--key", "k", "--at", "2101-01-01T00:00:00Z"],
        ["{counter}", "1", "--key", "k", "--at", "2026-01-01"],
        ["{counter}", "1", "--note", "n=" + "x" * 1024],
        ["{counter}" + "x" * 500, "1"],
    ],
)
def test_bad_input_writes_nothing(
    command: Command, counter: str, stack: LocalStack, arguments: list[str]
) -> None:
    """Refused with one line and exit 2, and the ledger has no entry of it."""
    done = command("emit", *(text.format(counter=counter, now="now") for text in arguments))

    assert done.code == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
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


def test_up_serves_a_shell_until_down(command: Command) -> None:
    """Only exports on stdout; status tells; down leaves nothing that answers."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    away = {"COUNTLEDGER_STACK_NAME": None, "AWS_PROFILE": "mine", "COUNTLEDGER_HOME_REGION": "x"}
    try:
        up = command("up", "--stack-name", name, **away)
        assert up.code == 0
        script = f"{up.out}\nexec {' '.join(command.line('emit', 'likes:1', '-5', '--json'))}"
        emitted = subprocess.run(
            ["/bin/sh", "-c", script],
            capture_output=True,
            env=command.variables(dict.fromkeys(command.environment) | away),
            check=True,
        )
        running = command("status", "--stack-name", name, "--json")
        up_again = command("up", "--stack-name", name, "--json")
    finally:
        down = command("down", "--stack-name", name, "--json")
    gone = command("status", "--stack-name", name, "--json")
    down_again = command("down", "--stack-name", name, "--json")

    assert {line.split()[0] for line in up.out.splitlines()} == {"unset", "export"}
    assert "data live as long as it runs" in up.err
    assert json.loads(emitted.stdout)["delta"] == -5
    assert [running.code, running.json["running"]] == [0, True]
    assert up_again.json["was_running"]
    assert up_again.json["url"] == running.json["url"]
    assert down.json == {"stack_name": name, "stopped": True}
    assert [gone.code, gone.json["running"]] == [1, False]
    assert down_again.json == {"stack_name": name, "stopped": False}


def add_by_hand(stack: LocalStack, counter: str, amount: int) -> None:
    """Alter a total behind the consumer's back."""
    stack.client("dynamodb").update_item(
        TableName=stack.outputs["CountersTableName"],
        Key={"counter": {"S": counter}, "part": {"S": "total"}},
        UpdateExpression="ADD #t :a",
        ExpressionAttributeNames={"#t": "total"},
        ExpressionAttributeValues={":a": {"N": str(amount)}},
    )


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
