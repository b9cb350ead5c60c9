"""`countledger export` and `import`: balances out of one stack and into another."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from countledger import CountLedger
from countledger.infra.local.stack import LocalStack
from countledger.infra.portability.export import Exporter, open_export, part_beside
from countledger.infra.portability.importing import Importer, ImportResult
from countledger.infra.portability.lines import (
    CounterLine,
    ExportLine,
    NamespaceLine,
    encode_line,
    importable,
)
from countledger.ledger import keys
from countledger.ledger.errors import BadSequence, KeyExpired, SequenceExists
from countledger.ledger.exact import Head, encode_head
from countledger.ledger.ids import unique_id
from countledger.ledger.limits import HOUR_MS
from countledger.ledger.namespace import Kind
from countledger.ledger.operations import Put
from countledger.producers.recorder import Recorder
from tests.e2e.command import Command
from tests.e2e.world import client_of, record_all


def filled(stack: LocalStack, name: str, counters: int = 3) -> CountLedger:
    client = client_of(stack)
    client.namespaces.create(name, spread=16, description="to be moved")
    for n in range(counters):
        record_all(client, [f"{name}:{n}"] * 2, n + 1)
    stack.pump.drain()
    return client


def test_from_one_stack_into_another_once(
    stack: LocalStack, auth_stack: LocalStack, name: str, tmp_path: Path
) -> None:
    filled(stack, name)
    seats = f"{name}-seats"
    client_of(stack).strict.create(
        f"{seats}:hall", method="marker", lower=0, upper=100, opening=40, bins=2
    )
    file = tmp_path / "all.jsonl"
    there = Command(auth_stack.environment())
    lines: list[dict[str, Any]] = []
    for one in (name, seats):
        done = Command(stack.environment())("export", "--namespace", one)
        assert done.code == 0, done.err
        lines += [json.loads(line) for line in done.out.splitlines()]
        file.write_text(file.read_text() + done.out if file.exists() else done.out)

    first = there("import", str(file), "--json")
    again = there("import", str(file), "--json")

    assert lines[0]["namespace"] == name
    assert {one["counter"]: one["value"] for one in lines if "counter" in one} == {
        f"{name}:0": 2,
        f"{name}:1": 4,
        f"{name}:2": 6,
        f"{seats}:hall": 40,
    }
    assert (first.code, again.code) == (0, 0), first.err + again.err
    assert (first.json["recorded"], first.json["made"]) == (3, 3)
    assert (again.json["recorded"], again.json["made"]) == (0, 0)
    assert (again.json["duplicate"], again.json["exists"]) == (3, 3)
    moved = client_of(auth_stack)
    imported = [moved.exact(f"{name}:{n}") for n in range(3)]
    exported = [client_of(stack).exact(f"{name}:{n}") for n in range(3)]
    assert [one.value for one in imported] == [2, 4, 6]
    assert [one.events for one in imported] == [one.events for one in exported] == [2, 2, 2]
    assert moved.namespaces.get(name).spread == 16
    hall = moved.strict.show(f"{seats}:hall")
    assert (hall.value, hall.lower, hall.upper, hall.bins) == (40, 0, 100, 2)


def test_windows_move_as_a_setting_and_opening_balances_are_in_none(
    stack: LocalStack, auth_stack: LocalStack, name: str
) -> None:
    here, there = filled(stack, name, counters=1), client_of(auth_stack)
    options: dict[str, Any] = {"time_zone": "Asia/Kolkata", "max_lateness_ms": HOUR_MS, "ranked": 2}
    here.window_settings.enable(name, by="hour", keep_ms=HOUR_MS, **options)
    exported = [*Exporter(here, name).namespaces(), Exporter(here).line(f"{name}:0")]
    texts = [encode_line(one).encode() for one in exported]
    lines = [line for text in texts if (line := importable(text, drop_holds=False))]

    first = list(Importer.begin(there, name).outcomes(lines))
    (moved,) = there.window_settings.of(name)
    again = list(Importer.begin(there, name).outcomes(lines))
    auth_stack.pump.drain()

    assert (first[0], again[0]) == (ImportResult.MADE, ImportResult.EXISTS)
    assert there.window_settings.of(name) == (moved,)
    assert (moved.finest, moved.zone, moved.keep_ms) == ("hour", "Asia/Kolkata", HOUR_MS)
    assert (moved.max_lateness_ms, moved.ranked) == (HOUR_MS, 2)
    (entry,) = there.entries(f"{name}:0")
    assert entry.at_ms < moved.from_ms
    here.window_settings.disable(name)
    (off,) = Exporter(here, name).namespaces()
    assert isinstance(off, NamespaceLine)
    assert off.windows is None


def test_what_is_held_is_not_imported_unless_it_is_to_be_available(
    stack: LocalStack, auth_stack: LocalStack, name: str, tmp_path: Path
) -> None:
    """A hold is in no export: an import without a word would sell what a customer has reserved."""
    hall, file = f"{name}:hall", tmp_path / "seats.jsonl"
    seats = client_of(stack).strict
    seats.create(hall, method="marker", lower=0, opening=40)
    seats.hold(hall, 3, key="basket-7", expires_in=timedelta(minutes=10))
    file.write_text(Command(stack.environment())("export", "--namespace", name).out)
    there = Command(auth_stack.environment())

    tried = there("import", str(file), "--dry-run", "--json")
    refused = there("import", str(file), "--json")
    taken = there("import", str(file), "--drop-holds", "--json")

    assert (tried.code, tried.json["bad"]) == (1, 1)
    assert (refused.code, refused.json["bad"], refused.json["made"]) == (1, 1, 1)
    assert "open holds of 3" in refused.err
    assert (taken.code, taken.json["made"]) == (0, 1)
    moved = client_of(auth_stack).strict.show(hall)
    assert (moved.value, moved.held, moved.available) == (40, 0, 40)


def test_a_sequence_goes_on_where_it_stood(
    stack: LocalStack, auth_stack: LocalStack, name: str
) -> None:
    here, there = client_of(stack), client_of(auth_stack)
    bill = f"{name}:bill"
    here.sequences.draw_block(bill, 41)
    lines: list[ExportLine] = [*Exporter(here, name).namespaces(), Exporter(here).line(bill)]

    first = list(Importer.begin(there, name).outcomes(lines))
    number = there.sequences.draw(bill)
    again = list(Importer.begin(there, name).outcomes(lines))
    here.sequences.draw_block(bill, 9)
    (ahead,) = Importer.begin(there, name).outcomes([Exporter(here).line(bill)])

    assert (first, number, again) == ([ImportResult.MADE] * 2, 42, [ImportResult.EXISTS] * 2)
    assert isinstance(ahead, SequenceExists)
    assert "43 to 50" in str(ahead)
    assert there.sequences.draw(bill) == 43


@pytest.mark.parametrize("value", [-5, "0.5", 2**63])
def test_a_sequence_has_whole_numbers(stack: LocalStack, name: str, value: object) -> None:
    client = client_of(stack)
    line = CounterLine(counter=f"{name}:bill", kind=Kind.SEQUENCE, value=value)

    (outcome,) = Importer.begin(client, name).outcomes([line])

    assert isinstance(outcome, BadSequence)
    assert client.sequences.draw(f"{name}:bill") == 1


def test_an_interrupted_export_goes_on(stack: LocalStack, name: str, tmp_path: Path) -> None:
    client = filled(stack, name, counters=40)
    out = tmp_path / "all.jsonl"
    exporter = Exporter(client, name)
    with open_export(out, exporter.purpose, unique_id) as file:
        rounds = exporter.write_all(file, totals_per_page=5)
        while next(rounds) < 20:
            pass
    part = part_beside(out)
    part.write_bytes(part.read_bytes() + b'{"counter": "half a li')
    assert not out.exists()
    command = Command(stack.environment())

    done = command("export", "--namespace", name, "--out", str(out))

    assert done.code == 0, done.err
    assert "continuing after" in done.err
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["namespace"] for one in lines if "namespace" in one] == [name]
    counters = [one["counter"] for one in lines if "counter" in one]
    assert sorted(counters) == sorted(f"{name}:{n}" for n in range(40))
    assert list(tmp_path.iterdir()) == [out]
    tried = command("import", str(out), "--dry-run", "--json")
    assert (tried.code, tried.json["good"], tried.json["bad"]) == (0, 41, 0)
    assert command("export", "--namespace", name, "--out", str(out)).code == 2


def test_bad_lines_never_stop_the_rest(stack: LocalStack, name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.jsonl"
    file.write_text(
        f'{{"counter": "{name}:a", "value": 5}}\n'
        "nonsense\n"
        f'{{"counter": "{name}#b", "value": 5}}\n'
        f'{{"counter": "{name}:zero", "value": 0}}\n'
        f'{{"counter": "{name}:c", "value": "0.25"}}\n'
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
    assert [str(client.exact(f"{name}:{n}").value) for n in "ac"] == ["5", "0.25"]


def test_an_import_with_resume_takes_new_lines_alone_and_respects_the_place_of_an_emit(
    command: Command, name: str, tmp_path: Path
) -> None:
    file, place = tmp_path / f"{name}.jsonl", tmp_path / f"{name}.jsonl.place"
    file.write_text(f'{{"counter": "{name}:a", "value": 5}}\n')
    resumed = ("import", str(file), "--resume", "--json")

    plain = command("import", str(file), "--json")
    assert not place.exists()
    first = command(*resumed)
    with file.open("a") as more:
        more.write(f'nonsense\n{{"counter": "{name}:b", "value": 6}}\n')
    grown, again = command(*resumed), command(*resumed)
    other = command("import", str(file), "--json")
    whole = command("import", str(file), "--name", file.name, "--json")

    assert (plain.json["recorded"], first.json["duplicate"]) == (1, 1)
    assert "continuing after line 1" in grown.err
    assert "line 2: " in grown.err
    assert (grown.code, grown.json["recorded"], grown.json["bad"]) == (1, 1, 1)
    assert (again.code, again.json) == (1, grown.json)
    assert (other.code, "with other content" in other.err) == (2, True)
    assert "continuing" not in whole.err
    assert (whole.json["duplicate"], whole.json["bad"]) == (2, 1)

    events = tmp_path / "events.jsonl"
    events.write_text(f'{{"counter": "{name}:c", "delta": 1}}\n')
    command("emit", "--file", str(events), "--resume")
    refused = command("import", str(events), "--json")
    assert (refused.code, "is of an emit to" in refused.err) == (2, True)


def test_an_import_begun_before_the_horizon_is_refused(stack: LocalStack, name: str) -> None:
    """Its entries may have been merged and forgotten since: nobody could tell a retry."""
    client = filled(stack, name)
    begun = datetime.now(UTC) - timedelta(hours=25)

    recorder = Recorder(client.connection)
    (outcome,) = Importer(client, "old", begun, recorder).outcomes(
        [CounterLine(counter=f"{name}:0", value=7)]
    )

    assert isinstance(outcome, KeyExpired)
    assert client.exact(f"{name}:0").value == 2


def test_a_counter_without_an_entry_is_not_exported(stack: LocalStack, name: str) -> None:
    """Of one that was removed the name is left for a day, and may be somebody's."""
    client = filled(stack, name, counters=1)
    dynamo, ledger = client.connection.dynamo("standard"), client.connection.setting("ledger_table")
    empty = encode_head(f"{name}:gone", Head(generation=7, run="removed"))
    dynamo.put(Put(ledger, {**empty, **keys.head_key(f"{name}:gone")}))

    done = Command(stack.environment())("export", "--namespace", name)

    assert done.code == 0, done.err
    names = [json.loads(line).get("counter") for line in done.out.splitlines()]
    assert names == [None, f"{name}:0"]
