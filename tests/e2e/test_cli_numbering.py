"""`countledger sequence` and `countledger claim` on the deployed stack, as a user runs them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.infra.local.stack import LocalStack
    from tests.e2e.command import Command


@pytest.fixture
def name() -> str:
    """A name of this test alone."""
    return f"x{uuid4().hex[:10]}"


@pytest.fixture(params=["S", "N"])
def own_table(stack: LocalStack, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A table of an app's own and the type of its sort key."""
    yield from _table(stack, request.param)


def _table(stack: LocalStack, sort: Literal["S", "N"]) -> Iterator[tuple[str, str]]:
    client: Any = stack.client("dynamodb")
    table = f"own-{uuid4().hex[:8]}"
    keys = {"id": ("S", "HASH"), "place": (sort, "RANGE")}
    client.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": key, "AttributeType": kind} for key, (kind, _) in keys.items()
        ],
        KeySchema=[{"AttributeName": key, "KeyType": role} for key, (_, role) in keys.items()],
    )
    yield table, sort
    client.delete_table(TableName=table)


def test_numbers_are_made_drawn_and_shown(command: Command, name: str) -> None:
    """Create, draw, draw a block, draw by expectation, show."""
    sequence = f"{name}:orders"
    made = command("sequence", "create", sequence, "--first", "70001", "--json")
    one = command("sequence", "draw", sequence)
    many = command("sequence", "draw", sequence, "--count", "1000", "--json")
    careful = command("sequence", "draw", sequence, "--expected", "--known", "71001", "--json")
    shown = command("sequence", "show", sequence, "--json")
    again = command("sequence", "create", sequence)

    assert [made.json["last"], made.json["version"]] == [70_000, 1]
    assert f"{sequence}\t70001\t70001\t1" in one.out
    expected = {"sequence": sequence, "first": 70_002, "last": 71_001, "count": 1_000}
    assert many.json == expected
    assert careful.json["first"] == 71_002
    assert (shown.json["last"], shown.json["version"]) == (71_002, 4)
    assert [made.code, one.code, many.code, careful.code, shown.code] == [0] * 5
    assert again.code == 2
    assert again.err.count("\n") == 1


def test_the_total_of_a_sequence_is_its_last_number(command: Command, name: str) -> None:
    """One read path for all that has a current value."""
    command("sequence", "draw", f"{name}:a", "--count", "41")

    shown = command("total", f"{name}:a", "--json")

    assert shown.code == 0
    assert '"total": 41' in shown.out


def test_a_sequence_has_no_ledger_to_verify(command: Command, name: str) -> None:
    """Nor entries; and a change of a strict counter is not for it."""
    command("sequence", "draw", f"{name}:a")

    for other in (
        ("verify", f"{name}:a"),
        ("entries", f"{name}:a"),
        ("emit", f"{name}:a", "1"),
        ("strict", "change", f"{name}:a", "1"),
    ):
        told = command(*other)
        assert told.code == 2
        assert "of kind sequence" in told.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("draw", "{name}:a", "--known", "3"),
        ("draw", "{name}:a", "--expected", "--count", "2"),
        ("draw", "{name}:a", "--count", "0"),
        ("draw", "{name}:a", "--count", "1000001"),
        ("create", "{name}:a", "--first", "-1"),
        ("draw", "{name}#a"),
        ("show", "{name}:a"),
        ("append", "t", "[1]", "--partition", "id=a", "--sort", "s"),
        ("append", "t", '{"a": NaN}', "--partition", "id=a", "--sort", "s"),
        ("append", "t", "{}", "--partition", "id", "--sort", "s"),
        ("append", "t", "{}", "--partition", "id:=a", "--sort", "s"),
        ("append", "t", '{"s": 1}', "--partition", "id=a", "--sort", "s"),
        ("append", "no-such-table", "{}", "--partition", "id=a", "--sort", "s"),
    ],
)
def test_bad_input_to_sequences_is_one_line(
    command: Command, name: str, arguments: tuple[str, ...]
) -> None:
    """With exit code 2, and nothing is drawn."""
    told = command(
        "sequence", *(argument.format(name=name) for argument in arguments[:2]), *arguments[2:]
    )

    assert (told.code, told.out) == (2, "")
    assert told.err.count("\n") == 1


def test_an_item_of_ones_own_is_appended(command: Command, own_table: tuple[str, str]) -> None:
    """Its number is its place, and the rest is as it was given, exactly."""
    table, sort = own_table
    where = [table, "--partition", "id=p-1", "--sort", "place"]
    if sort == "S":
        where += ["--prefix", "c#", "--digits", "4"]
    item = '{"text": "hi", "price": 12.10, "tags": ["a"], "big": 123456789012345678901}'

    first = command("sequence", "append", *where, item, "--json")
    second = command("sequence", "append", *where, "{}")

    assert first.code == second.code == 0, first.err + second.err
    assert first.json["number"] == 1
    stored = first.json["item"]
    assert stored["place"] == (1 if sort == "N" else "c#0001")
    assert (stored["id"], stored["text"], stored["price"]) == ("p-1", "hi", "12.10")
    assert f"2\t{table}" in second.out


def test_a_value_is_taken_changed_and_released(command: Command, name: str) -> None:
    """Refusals name the owner and have an exit code of their own."""
    taken = command("claim", "take", name, "ann@x.org", "--owner", "u-1", "--json")
    again = command("claim", "take", name, "ann@x.org", "--owner", "u-1", "--json")
    refused = command("claim", "take", name, "ann@x.org", "--owner", "u-2")
    change = ("claim", "change", name, "--from", "ann@x.org", "--to", "ann@y.org", "--owner", "u-1")
    changed = command(*change, "--json")
    shown = command("claim", "show", name, "ann@y.org", "--json")
    by_id = ("--claim-id", shown.json["claim_id"])
    release = ("claim", "release", name, "ann@y.org", "--owner", "u-1", *by_id)
    released = command(*release)
    command("claim", "take", name, "ann@y.org", "--owner", "u-1")
    repeated = command(*release, "--json")
    command("claim", "release", name, "ann@y.org", "--owner", "u-1")
    nobody = command("claim", "show", name, "ann@y.org")
    late = command(*change)

    expected = {"status": "taken", "scope": name, "value": ["ann@x.org"], "owner": "u-1"}
    assert taken.json == expected
    assert again.json["status"] == "duplicate"
    assert (refused.code, refused.out) == (4, "")
    assert refused.err == f"countledger: {name} 'ann@x.org' is claimed by 'u-1'\n"
    assert changed.json["status"] == "changed"
    facts = {"scope": name, "value": ["ann@y.org"], "owner": "u-1"}
    assert shown.json == {**facts, "claim_id": shown.json["claim_id"]}
    assert repeated.json["status"] == "duplicate"
    assert "released" in released.out
    assert (nobody.code, late.code) == (1, 4)
    assert "is not claimed" in late.err


def test_a_claim_and_an_item_go_together(
    stack: LocalStack, command: Command, own_table: tuple[str, str], name: str
) -> None:
    """Taken with a new item, changed with it, and gone with it."""
    table, sort = own_table
    key: dict[str, str | int] = {"id": "u-1", "place": "-" if sort == "S" else 0}
    item = json.dumps({**key, "mail": "a"})
    own = ("--table", table, "--key-name", "id", "--key-name", "place", "--item", item)
    same = ("--table", table, "--key", json.dumps(key))

    taken = command("claim", "take", name, "a", "--owner", "u-1", *own)
    wrong = ("--set", '{"mail": "b"}', "--expect", '{"mail": "z"}')
    right = ("--set", '{"mail": "b"}', "--expect", '{"mail": "a"}')
    change = ("claim", "change", name, "--from", "a", "--to", "b", "--owner", "u-1", *same)
    refused, changed = command(*change, *wrong), command(*change, *right)
    client: Any = stack.client("dynamodb")
    (stored,) = client.scan(TableName=table)["Items"]
    released = command("claim", "release", name, "b", "--owner", "u-1", *same)

    assert [taken.code, refused.code, changed.code, released.code] == [0, 4, 0, 0]
    assert "not as expected: mail = 'a'" in refused.err
    assert stored["mail"] == {"S": "b"}
    assert client.scan(TableName=table)["Items"] == []


def test_a_combination_is_one_value(command: Command, name: str) -> None:
    """All of its parts together, and not one of them."""
    seat = ("hall-1", "row-3", "seat-7")
    command("claim", "take", name, *seat, "--owner", "o-1")

    assert command("claim", "show", name, *seat).code == 0
    assert command("claim", "show", name, "hall-1").code == 1
    assert command("claim", "take", name, *seat, "--owner", "o-2").code == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ("take", "s#", "a", "--owner", "u"),
        ("take", "s", "", "--owner", "u"),
        ("take", "s", "x" * 2_100, "--owner", "u"),
        ("take", "s", "a", "--owner", ""),
        ("take", "s", "a", "--owner", "u", "--table", "t"),
        ("take", "s", "a", "--owner", "u", "--table", "t", "--key-name", "id", "--item", "{}"),
        ("change", "s", "--from", "a", "--to", "a", "--owner", "u"),
        ("change", "s", "--from", "a", "--to", "b", "--owner", "u", "--expect", "{}"),
        ("release", "s", "a", "--owner", "u", "--table", "t", "--key", "[]"),
        ("release", "s", "a", "--owner", "u", "--table", "", "--key", ""),
        ("show", "s", "a\x00"),
    ],
)
def test_bad_input_to_claims_is_one_line(command: Command, arguments: tuple[str, ...]) -> None:
    """With exit code 2, and nothing is claimed."""
    told = command("claim", *arguments)

    assert (told.code, told.out) == (2, "")
    assert told.err.count("\n") == 1
