"""The command line on the deployed stack: counters of a ledger, as a user runs it."""

import json
from pathlib import Path
from typing import Final

import pytest

from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command
from tests.e2e.steps import ANY, Story, play, step, totals
from tests.e2e.world import alter_total

_FACTS: Final[list[dict[str, object]]] = [{"delta": "2"} for _ in range(300)]
_FACTS.extend({"delta": delta, "key": "k"} for delta in (5, 5, 6))
_FACTS.append({})
_LINES: Final = "\n".join(json.dumps({"counter": "NS:a", **facts}) for facts in _FACTS)
_NAMESPACE: Final = {"name": "NS", "kind": "ledger", "spread": 16, "horizon_ms": 604_800_000}
_STORIES: Final[dict[str, Story]] = {
    "an event counts once under its key, and the pair of key and time is another identity": (
        step("emit NS:a -5", {"status": "recorded", "counter": "NS:a", "delta": "-5", "id": ANY}),
        step("emit NS:a 12.50 --key k", {"status": "recorded", "delta": "12.5"}),
        step("emit NS:a 12.5 --key k", {"status": "duplicate", "events": 1}),
        step("emit NS:a 13 --key k", code=2, err="12.5"),
        step("emit NS:a 1 --key k --at NOW", {"status": "recorded"}),
        step("emit NS:a 1 --key k --at NOW", {"status": "duplicate"}),
        totals(a="8.5"),
    ),
    "totals come with their freshness, and with --exact the sum of the ledger": (
        step("emit NS:a 3"),
        totals(a=3),
        step(
            "total NS:a NS:never --exact",
            {
                "items": [
                    {"version": 1, "updated_at": ANY, "exact": {"value": "3", "events": 1}},
                    {"value": "0", "version": 0, "updated_at": None},
                ],
                "freshness": {"handled_through": ANY, "shards": ANY},
            },
        ),
        step("total NS:a --exact", out="NS:a\t3\t3\t", err="in the totals"),
    ),
    "entries are the change log, newest first, with all that the caller gave": (
        step("emit NS:a 1 --occurred-at 2001-02-03T04:05:06+01:00"),
        step("emit NS:a 3 --key k --note who=me"),
        step(
            "entries NS:a",
            [
                {"delta": "3", "key": "k", "note": {"who": "me"}, "occurred_at": None},
                {"delta": "1", "key": None, "occurred_at": "2001-02-03T03:05:06.000Z"},
            ],
        ),
        step("entries NS:a --limit 1", [{"delta": "3"}]),
        step("entries NS:a", out="who=me"),
    ),
    "lines of one counter become one entry with --coalesce; keyed lines stay entries": (
        step(
            "emit --file - --coalesce",
            {"recorded": 301, "duplicates": 1, "bad": 2, "entries": 2},
            stdin=_LINES,
            code=1,
            err="line 303: ",
        ),
        totals(a=605),
        step("emit NS:a 1 --coalesce", code=2),
    ),
    "a file of good lines is exit code 0, and so is an empty one": (
        step("emit --file -"),
        step(
            "emit --file -",
            stdin='{"counter": "NS:a", "delta": "0.1"}\n' * 2,
            out="recorded\tduplicates\tbad\n2\t0\t0\n",
        ),
    ),
    "a namespace is created once; only its description changes": (
        step(
            "namespace create NS --spread 16 --horizon 7d --description one",
            {**_NAMESPACE, "description": "one"},
        ),
        step("namespace create NS --spread 16 --horizon 7d", {"description": "one"}),
        step("namespace create NS --spread 1", code=2, err="spread 16"),
        step("namespace set NS --description two", {**_NAMESPACE, "description": "two"}),
        step("namespace set NS --spread 1", code=2, err="fixed"),
        step("namespace show NS", {**_NAMESPACE, "description": "two"}),
        step("namespace list", out="NS\tledger\t16\t7 d\ttwo"),
        step("namespace show no-such", code=2, err="does not exist"),
    ),
    "a namespace is created with the defaults by its first event": (
        step("emit NS:a 1"),
        step("namespace show NS", {"spread": 1, "horizon_ms": 86_400_000, "description": None}),
    ),
}


@pytest.mark.parametrize("title", _STORIES)
def test_it_happens_as_told(command: Command, title: str) -> None:
    play(command, _STORIES[title])


def test_good_lines_of_a_file_are_emitted_and_bad_ones_reported_by_number(
    command: Command, name: str, tmp_path: Path
) -> None:
    counter = f"{name}:a"
    lines = [json.dumps({"counter": counter, "delta": "2", "key": str(n)}) for n in range(300)]
    lines[10:10] = ["{", "", '{"counter": "a#b", "delta": "1"}', "[]", "\0"]
    bad = ({"delta": "3", "key": "7"}, {"delta": "0"}, {"delta": "1", "colour": "red"})
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


def test_verify_finds_the_drift_of_a_total_that_was_altered(
    command: Command, stack: LocalStack
) -> None:
    exact = {"findings": 0, "items": [{"verdict": "exact", "proof": ANY}]}
    name = play(command, (step("emit NS:a 3"), totals(a=3), step("verify NS:a", exact)))

    alter_total(stack, f"{name}:a", 2)
    altered = command("verify", f"{name}:a", "--json")

    assert altered.code == 1
    (verdict,) = altered.json["items"]
    assert [verdict["verdict"], verdict["total"], verdict["exact"]] == ["drift", "5", "3"]
    assert verdict["drift"] == "2"
    assert command("repair", f"{name}:a").code == 0
