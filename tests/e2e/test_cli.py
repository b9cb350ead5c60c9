"""The command line on the deployed stack, as a user runs it."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.command import Command, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from countledger.infra.local.stack import LocalStack


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
    bad = ({"delta": 3, "key": "7"}, {"delta": 0}, {"delta": 1, "colour": "red"})
    lines += [json.dumps({"counter": counter} | facts) for facts in bad]
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


def test_lines_of_one_counter_become_one_entry_on_request(command: Command, counter: str) -> None:
    """With their sum and their number; keyed ones stay, and bad ones are reported as ever."""
    lines = [{"counter": counter, "delta": delta} for delta in [2] * 300]
    keyed = [{"counter": counter, "delta": delta, "key": "k"} for delta in (5, 5, 6)]
    text = "\n".join(json.dumps(line) for line in [*lines, *keyed, {"counter": counter}])

    done = command("emit", "--file", "-", "--coalesce", "--json", stdin=text)

    assert done.code == 1
    assert done.json == {"recorded": 301, "duplicates": 1, "bad": 2, "entries": 2}
    assert "line 303: " in done.err
    entries = command("entries", counter, "--json").json
    assert sorted((one["delta"], one["events"]) for one in entries) == [(5, 1), (600, 300)]
    assert command("emit", counter, "1", "--coalesce").code == 2


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


def add_by_hand(stack: LocalStack, counter: str, amount: int) -> None:
    """Alter a total behind the consumer's back."""
    stack.client("dynamodb").update_item(
        TableName=stack.outputs["CountersTableName"],
        Key={"counter": {"S": counter}, "part": {"S": "total"}},
        UpdateExpression="ADD #t :a",
        ExpressionAttributeNames={"#t": "total"},
        ExpressionAttributeValues={":a": {"N": str(amount)}},
    )
