"""`countledger export` and `import`: balances out of one stack and into another."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from countledger import CountLedger, Event, Settings
from countledger.infra.local.stack import LocalStack
from countledger.infra.portability.exporting import Exporter, new_file, place_beside
from countledger.infra.portability.importing import Importer, ImportResult
from countledger.infra.portability.lines import CounterLine, ExportLine
from countledger.ledger import keys
from countledger.ledger.errors import BadSequence, KeyExpired, SequenceExists
from countledger.ledger.head import Head, encode_head
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Put
from tests.e2e.command import Command


@pytest.fixture(scope="module")
def other() -> Iterator[LocalStack]:
    """A stack in another account, as it were."""
    with LocalStack(name="countledger-other") as running:
        yield running


@pytest.fixture
def namespace() -> str:
    return f"moved-{uuid.uuid4().hex[:8]}"


def client_of(stack: LocalStack) -> CountLedger:
    return CountLedger(
        Settings(stack_name=stack.name), session=stack.session(), endpoint_url=stack.url
    )


def filled(stack: LocalStack, namespace: str, counters: int = 3) -> CountLedger:
    client = client_of(stack)
    client.namespaces.create(namespace, spread=16, description="to be moved")
    events = [Event(f"{namespace}:{n}", n + 1) for n in range(counters) for _ in range(2)]
    assert all(getattr(one, "status", None) for one in client.record_many(events))
    stack.pump.drain()
    return client


def test_from_one_stack_into_another_once(
    stack: LocalStack, other: LocalStack, namespace: str, tmp_path: Path
) -> None:
    """Namespace, values and a strict counter with its bounds; again changes nothing."""
    filled(stack, namespace)
    seats = f"{namespace}-seats"
    client_of(stack).strict.create(
        f"{seats}:hall", method="marker", lower=0, upper=100, opening=40, bins=2
    )
    file = tmp_path / "all.jsonl"
    there = Command(other.environment())
    lines: list[dict[str, Any]] = []
    for name in (namespace, seats):
        done = Command(stack.environment())("export", "--namespace", name)
        assert done.code == 0, done.err
        lines += [json.loads(line) for line in done.out.splitlines()]
        file.write_text(file.read_text() + done.out if file.exists() else done.out)

    first = there("import", str(file), "--json")
    again = there("import", str(file), "--json")

    assert [one.get("namespace", one.get("counter")) for one in lines[:1]] == [namespace]
    assert {one["counter"]: one["value"] for one in lines if "counter" in one} == {
        f"{namespace}:0": 2,
        f"{namespace}:1": 4,
        f"{namespace}:2": 6,
        f"{seats}:hall": 40,
    }
    assert (first.code, again.code) == (0, 0), first.err + again.err
    assert (first.json["recorded"], first.json["made"]) == (3, 3)
    assert (again.json["recorded"], again.json["made"]) == (0, 0)
    assert (again.json["duplicate"], again.json["exists"]) == (3, 3)
    moved = client_of(other)
    assert [moved.exact(f"{namespace}:{n}").sum for n in range(3)] == [2, 4, 6]
    assert moved.namespaces.get(namespace).spread == 16
    hall = moved.strict.show(f"{seats}:hall")
    assert (hall.value, hall.lower, hall.upper, hall.bins) == (40, 0, 100, 2)


def test_a_sequence_goes_on_where_it_stood(
    stack: LocalStack, other: LocalStack, namespace: str
) -> None:
    """No number twice: it is made behind the last one, and never moved."""
    here, there = client_of(stack), client_of(other)
    name = f"{namespace}:bill"
    here.sequences.draw_block(name, 41)
    lines: list[ExportLine] = [*Exporter(here, namespace).namespaces(), Exporter(here).line(name)]

    first = list(Importer.begin(there, namespace).outcomes(lines))
    number = there.sequences.draw(name)
    again = list(Importer.begin(there, namespace).outcomes(lines))
    here.sequences.draw_block(name, 9)
    (ahead,) = Importer.begin(there, namespace).outcomes([Exporter(here).line(name)])

    assert (first, number, again) == ([ImportResult.MADE] * 2, 42, [ImportResult.EXISTS] * 2)
    assert isinstance(ahead, SequenceExists)
    assert "43 to 50" in str(ahead)
    assert there.sequences.draw(name) == 43


@pytest.mark.parametrize("value", [-5, "0.5", 2**63 - 1])
def test_a_sequence_has_whole_numbers(stack: LocalStack, namespace: str, value: object) -> None:
    """Anything else is named, and nothing is made."""
    client = client_of(stack)
    line = CounterLine(counter=f"{namespace}:bill", kind=Kind.SEQUENCE, value=value)

    (outcome,) = Importer.begin(client, namespace).outcomes([line])

    assert isinstance(outcome, BadSequence)
    assert client.sequences.draw(f"{namespace}:bill") == 1


def test_an_interrupted_export_goes_on(stack: LocalStack, namespace: str, tmp_path: Path) -> None:
    """A crash behind the lines and before the place: no line twice, none missing."""
    client = filled(stack, namespace, counters=40)
    out = tmp_path / "all.jsonl"
    exporter = Exporter(client, namespace)
    walk = exporter.walk(resume=place_beside(out), segments=2)
    walk.walker = replace(walk.walker, page_size=30)
    with new_file(out) as file:
        file.add(exporter.namespaces())
        rounds = walk.rounds()
        for _ in range(3):
            file.add(next(rounds))
    out.write_bytes(out.read_bytes() + b'{"counter": "half a li')
    command = Command(stack.environment())

    done = command("export", "--namespace", namespace, "--out", str(out))

    assert done.code == 0, done.err
    assert "continuing after" in done.err
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["namespace"] for one in lines if "namespace" in one] == [namespace]
    counters = [one["counter"] for one in lines if "counter" in one]
    assert sorted(counters) == sorted(f"{namespace}:{n}" for n in range(40))
    assert list(tmp_path.iterdir()) == [out]
    assert command("export", "--namespace", namespace, "--out", str(out)).code == 2


def test_bad_lines_never_stop_the_rest(stack: LocalStack, namespace: str, tmp_path: Path) -> None:
    """Each is named with its number; the exit code says that there were some."""
    file = tmp_path / "balances.jsonl"
    file.write_text(
        f'{{"counter": "{namespace}:a", "value": 5}}\n'
        "nonsense\n"
        f'{{"counter": "{namespace}#b", "value": 5}}\n'
        f'{{"counter": "{namespace}:zero", "value": 0}}\n'
        f'{{"counter": "{namespace}:c", "value": "0.25"}}\n'
    )
    command = Command(stack.environment())

    tried = command("import", str(file), "--dry-run", "--json")
    done = command("import", str(file), "--json")

    assert (tried.code, tried.json["bad"]) == (1, 1)
    assert done.code == 1
    assert (done.json["recorded"], done.json["nothing"], done.json["bad"]) == (2, 1, 2)
    assert "line 2: " in done.err
    assert "line 3: " in done.err
    client = client_of(stack)
    assert [str(client.exact(f"{namespace}:{n}").sum) for n in "ac"] == ["5", "0.25"]


def test_an_import_begun_before_the_horizon_is_refused(stack: LocalStack, namespace: str) -> None:
    """Its entries may have been merged and forgotten since: nobody could tell a retry."""
    client = filled(stack, namespace)
    begun = datetime.now(UTC) - timedelta(hours=25)

    (outcome,) = Importer(client, "old", begun).outcomes(
        [CounterLine(counter=f"{namespace}:0", value=7)]
    )

    assert isinstance(outcome, KeyExpired)
    assert client.exact(f"{namespace}:0").sum == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["export", "a:b", "--namespace", "a"], "give counters, or --namespace"),
        (["export", "a#b"], "'#'"),
        (["export", "no-such-namespace:b"], "does not exist"),
        (["import", "-"], "give the import one with --name"),
        (["import", "no-such-file.jsonl"], "cannot be read"),
        (["import", "-", "--name", "a#b"], "without '#'"),
    ],
    ids=str,
)
def test_bad_input_is_one_line(stack: LocalStack, arguments: list[str], says: str) -> None:
    """Exit 2."""
    done = Command(stack.environment())(*arguments)

    assert done.code == 2
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_counter_without_an_entry_is_not_exported(stack: LocalStack, namespace: str) -> None:
    """Of one that was removed the name is left for a day, and may be somebody's."""
    client = filled(stack, namespace, counters=1)
    dynamo, ledger = client.connection.dynamo("standard"), client.connection.setting("ledger_table")
    empty = encode_head(f"{namespace}:gone", Head(generation=7, run="removed"))
    dynamo.put(Put(ledger, {**empty, **keys.head_key(f"{namespace}:gone")}))

    done = Command(stack.environment())("export", "--namespace", namespace)

    assert done.code == 0, done.err
    names = [json.loads(line).get("counter") for line in done.out.splitlines()]
    assert names == [None, f"{namespace}:0"]
