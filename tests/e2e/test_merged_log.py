"""What a user sees of merged entries: a line of the change log, the archive, an exact sum."""

from collections.abc import Iterator

import pytest

from countledger import CountLedger, Remedy
from countledger.infra.local.stack import LocalStack
from countledger.ledger.keys import total_key
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.operations import Delete
from tests.e2e.command import Command
from tests.e2e.world import record_aged


@pytest.fixture
def archived(
    stack: LocalStack, client: CountLedger, command: Command, name: str
) -> Iterator[tuple[str, str]]:
    """A counter of ten merged entries and one young one, and where the ten are archived."""
    counter, place = f"{name}:a", f"s3://{name}/kept"
    stack.client("s3").create_bucket(Bucket=name)
    client.namespaces.create(name)
    client.schedules.create(name, every_ms=HOUR_MS, min_entries=2, archive=place)
    record_aged(client, counter, range(1, 11), 2 * DAY_MS)
    record_aged(client, counter, [100], HOUR_MS)
    stack.pump.drain()
    done = command("compact", counter, "--json")
    assert done.json["items"][0]["merged"] == 10
    yield counter, place
    client.schedules.delete(name)


def test_the_log_shows_the_head_as_what_it_is(command: Command, archived: tuple[str, str]) -> None:
    counter, _ = archived

    log = command("entries", counter, "--json").items
    lines = command("entries", counter).out.splitlines()
    short = command("entries", counter, "--limit", "1", "--json").items

    assert [row["kind"] for row in log] == ["entry", "head"]
    assert log[0]["delta"] == "100"
    head = log[1]
    assert (head["entries"], head["events"], head["sum"]) == (10, 10, "55")
    assert head["from"] <= head["to"] < log[0]["at"]
    assert len(lines) == 3
    assert "10 merged entries, the oldest of" in lines[2]
    assert lines[2].split("\t")[1] == "55"
    assert [row["kind"] for row in short] == ["entry"]


def test_merged_entries_are_read_back(command: Command, archived: tuple[str, str]) -> None:
    counter, place = archived

    found = command("entries", counter, "--archived", place, "--json")
    lines = command("entries", counter, "--archived", place)
    nowhere = command("entries", counter, "--archived", "s3://no-such-bucket-at-all/x")
    no_place = command("entries", counter, "--archived", "bucket")

    assert sorted(int(row["delta"]) for row in found.items) == list(range(1, 11))
    assert len(lines.out.splitlines()) == 11
    said = "10 archived entries with the sum 55; the head stands for 10 with the sum 55"
    assert said in lines.err
    assert [found.code, nowhere.code, no_place.code] == [0, 2, 2]
    assert "no-such-bucket-at-all" in nowhere.err
    assert "Traceback" not in nowhere.err
    assert "s3://bucket/prefix" in no_place.err


def test_an_exact_total_says_what_it_read(command: Command, archived: tuple[str, str]) -> None:
    counter, _ = archived

    (total,) = command("total", counter, "--exact", "--json").json["items"]
    headings = command("total", counter, "--exact").out.splitlines()[0].split("\t")

    exact = total["exact"]
    assert (exact["value"], exact["entries"], exact["entries_read"]) == ("155", 11, 1)
    assert exact["read_units"] == 3
    assert {"exact", "entries read", "read units"} <= set(headings)


def test_a_lost_total_is_made_from_the_head(
    stack: LocalStack, client: CountLedger, archived: tuple[str, str]
) -> None:
    counter, _ = archived
    before = client.total(counter)
    table = client.connection.setting("counters_table")
    client.connection.dynamo("standard").delete(Delete(table, total_key(counter)))

    repair = client.audit.repair(counter)
    stack.new_pump().drain()

    assert repair.remedy is Remedy.MADE
    after = client.total(counter)
    assert (after.value, after.events, after.entries) == (155, 11, 11)
    assert (before.value, before.events, before.entries) == (155, 11, 11)
