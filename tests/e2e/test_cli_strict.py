"""`countledger strict` on the deployed stack, as a user runs it."""

from __future__ import annotations

import os
import pty
import subprocess
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.command import Command
from tests.e2e.refusing_proxy import refusing_proxy

if TYPE_CHECKING:
    from countledger.infra.local.stack import LocalStack

FACTS = {
    "counter",
    "method",
    "value",
    "lower",
    "upper",
    "version",
    "bins",
    "history",
    "max_tokens",
    "remembered",
    "window_ms",
    "updated_at",
    "write_units",
}


@pytest.fixture
def counter() -> str:
    """A counter of this test alone, in a namespace that it has to itself."""
    return f"hall{uuid.uuid4().hex[:12]}:tickets"


def create(command: Command, counter: str, *arguments: str) -> dict[str, Any]:
    """Make a counter; what is said of it."""
    made = command("strict", "create", counter, *arguments, "--json")
    assert made.code == 0, made.err
    return dict(made.json)


def test_a_counter_is_made_sold_from_and_deleted(command: Command, counter: str) -> None:
    """Create, change, retry, be refused, show, delete."""
    made = create(command, counter, "--method", "marker", "--lower", "0", "--opening", "500")
    sold = command("strict", "change", counter, "-2", "--key", "o-1", "--note", "seat=7", "--json")
    again = command("strict", "change", counter, "-2.0", "--key", "o-1", "--json")
    reused = command("strict", "change", counter, "-3", "--key", "o-1")
    refused = command("strict", "change", counter, "-499")
    refused_json = command("strict", "change", counter, "-499", "--json")
    shown = command("strict", "show", counter, "--json")
    table = command("strict", "show", counter)
    deleted = command("strict", "delete", counter, "--yes", "--json")
    gone = command("strict", "show", counter)

    assert set(made) == FACTS
    assert [made["value"], made["lower"], made["upper"]] == [500, 0, None]
    assert [made["method"], made["window_ms"], made["write_units"]] == ["marker", 86_400_000, 4]
    asked = {"counter": counter, "delta": -2, "value": 498}
    assert sold.json == {"status": "applied", **asked}
    assert again.json == {"status": "duplicate", **asked}
    assert [sold.code, again.code, reused.code] == [0, 0, 2]
    assert refused.code == refused_json.code == 4
    assert refused.out == ""
    assert refused.err == refused_json.err
    assert refused.err.count("\n") == 1
    assert f"{counter!r} is at 498, its lower bound is 0: -499 was refused" in refused.err
    assert refused_json.json == {
        "status": "bound_reached",
        "counter": counter,
        "delta": -499,
        "value": 498,
        "side": "lower",
        "bound": 0,
    }
    assert shown.json["value"] == 498
    assert set(shown.json) == FACTS
    assert f"{counter}\t498\t0\t-\tmarker\t1\t24 h\t4\t" in table.out
    assert deleted.json == {"counter": counter, "deleted": True}
    assert gone.code == 2
    assert f"strict counter {counter!r} does not exist" in gone.err


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["--method", "atomic"], {"method": "atomic", "write_units": 1}),
        (["--method", "occ"], {"method": "occ", "write_units": 1}),
        (["--method", "history", "--history", "3"], {"method": "history", "history": 3}),
        (["--method", "crt"], {"method": "crt", "write_units": 2, "updated_at": None}),
        (["--method", "marker", "--window", "90m"], {"method": "marker", "window_ms": 5_400_000}),
        (["--method", "set", "--max-tokens", "30"], {"method": "set", "max_tokens": 30}),
        (["--method", "atomic", "--bins", "3"], {"method": "atomic", "bins": 3}),
    ],
)
def test_every_method_sells_and_refuses(
    command: Command, counter: str, arguments: list[str], facts: dict[str, object]
) -> None:
    """One ticket, sold once, and `total` reads what is left as of any counter."""
    made = create(command, counter, *arguments, "--lower", "0", "--opening", "1")
    sold = command("strict", "change", counter, "-1", "--json")
    refused = command("strict", "change", counter, "-1", "--json")
    (total,) = command("total", counter, "--json").json["totals"]

    assert made == made | facts
    assert [sold.code, refused.code] == [0, 4]
    assert sold.json["value"] == (None if "--bins" in arguments else 0)
    assert [refused.json["status"], refused.json["value"]] == ["bound_reached", 0]
    assert [total["total"], total["method"], total["bins"]] == [0, facts["method"], made["bins"]]


def test_total_says_nothing_of_a_stream_that_a_strict_counter_does_not_have(
    command: Command, counter: str
) -> None:
    """No freshness, no events, no sum of a ledger: its value is current."""
    create(command, counter, "--method", "occ", "--opening", "7")

    plain = command("total", counter)
    exact = command("total", counter, "--exact")
    both = command("total", counter, f"{uuid.uuid4()}", "--exact", "--json")

    assert [plain.code, exact.code, both.code] == [0, 0, 0]
    assert f"{counter}\t7\t-\t20" in plain.out
    assert f"{counter}\t7\t-\t-\t-\t-\t20" in exact.out
    assert [plain.err, exact.err] == ["", ""]
    strict, ledger = both.json["totals"]
    assert "exact" not in strict
    assert "exact" in ledger
    assert "method" not in ledger


def test_a_full_set_is_refused_in_one_line(command: Command, counter: str) -> None:
    """The same exit code as a bound, and what it costs is said at the making."""
    made = command("strict", "create", counter, "--method", "set", "--max-tokens", "100")
    assert "about 4 when it holds its 100 keys" in made.err
    command("strict", "delete", counter, "--yes")
    create(command, counter, "--method", "set", "--max-tokens", "1")
    command("strict", "change", counter, "+1", "--key", "seat-1")

    full = command("strict", "change", counter, "1", "--key", "seat-2", "--json")
    again = command("strict", "change", counter, "1", "--key", "seat-1", "--json")

    assert [full.code, again.code] == [4, 0]
    assert full.err.count("\n") == 1
    assert "is at 1 and holds 1 keys, its maximum: +1 was refused" in full.err
    assert full.json == {
        "status": "set_full",
        "counter": counter,
        "delta": 1,
        "value": 1,
        "max_tokens": 1,
    }
    assert again.json["status"] == "duplicate"


def test_a_change_is_given_up_or_is_in(command: Command, counter: str) -> None:
    """Exit 0 only where it is out for good."""
    create(command, counter, "--method", "marker", "--lower", "0", "--opening", "9")
    command("strict", "change", counter, "-1", "--key", "in")

    out = command("strict", "withdraw", counter, "--key", "out", "--json")
    inside = command("strict", "withdraw", counter, "--key", "in", "--json")
    late = command("strict", "change", counter, "-1", "--key", "out", "--json")

    assert [out.code, inside.code, late.code] == [0, 1, 2]
    assert [out.json["status"], inside.json["status"]] == ["withdrawn", "counted"]
    assert late.json["status"] == "withdrawn"
    assert "a new change needs a new key" in late.err
    assert command("strict", "show", counter, "--json").json["value"] == 8


def test_a_key_with_its_time_is_another_identity(command: Command, counter: str) -> None:
    """The pair is the identity, and one too old to be remembered is refused."""
    create(command, counter, "--method", "marker")
    stamp = command("strict", "show", counter, "--json").json["updated_at"]
    at = ("--key", "k", "--at", stamp)

    told = [
        command("strict", "change", counter, "1", *more, "--json").json["status"]
        for more in (("--key", "k"), at, at)
    ]
    expired = command(
        "strict", "change", counter, "1", "--key", "k", "--at", "2001-01-01T00:00:00Z"
    )
    withdrawn = command("strict", "withdraw", counter, *at, "--json")

    assert told == ["applied", "applied", "duplicate"]
    assert expired.code == 2
    assert withdrawn.json["status"] == "counted"


@pytest.mark.parametrize(
    ("refusal", "told", "line"),
    [
        ((500, "InternalServerError"), "unknown", "method atomic cannot know"),
        ((400, "TransactionConflictException"), "contended", "let none of 8 attempts through"),
    ],
)
def test_a_change_without_a_clear_answer_comes_with_advice(
    stack: LocalStack, command: Command, refusal: tuple[int, str], told: str, line: str
) -> None:
    """Exit 3, one line, and the same for programs."""
    counter = f"n{uuid.uuid4().hex}:x"
    create(command, counter, "--method", "atomic")
    change = ("strict", "change", counter, "1", "--json")

    with refusing_proxy(stack.url, "UpdateItem", *refusal) as url:
        done = command(*change, "--endpoint-url", url)

    assert done.code == 3
    assert done.json["status"] == told
    assert done.err.count("\n") == 1
    assert line in done.err
    assert command("strict", "show", counter, "--json").json["value"] == 0


def test_bounds_move_while_the_counter_is_in_use(command: Command, counter: str) -> None:
    """Set, taken away, refused where the value lies outside, forced and said so."""
    create(command, counter, "--method", "atomic", "--opening", "500")
    closer = command("strict", "set", counter, "--upper", "600", "--lower", "-5", "--json")
    refused = command("strict", "set", counter, "--upper", "400")
    forced = command("strict", "set", counter, "--upper", "400", "--force", "--json")
    towards = command("strict", "change", counter, "1", "--json")
    away = command("strict", "change", counter, "-0.5", "--json")
    free = command("strict", "set", counter, "--upper", "none", "--json")

    assert [closer.json["lower"], closer.json["upper"]] == [-5, 600]
    assert refused.code == 2
    assert "above the upper bound 400" in refused.err
    assert forced.json["upper"] == 400
    assert "changes up are refused until it is back inside" in forced.err
    assert [towards.code, away.code] == [4, 0]
    assert away.json["value"] == "499.5"
    assert [free.json["lower"], free.json["upper"]] == [-5, None]
    assert free.err == ""


def test_the_counters_of_a_namespace_are_listed_by_name(command: Command, counter: str) -> None:
    """As `show` shows each."""
    names = [f"{counter}-{letter}" for letter in "ba"]
    for name in names:
        create(command, name, "--method", "crt")

    namespace = counter.split(":", maxsplit=1)[0]
    listed = command("strict", "list", namespace, "--json").json
    table = command("strict", "list", namespace)

    assert [each["counter"] for each in listed] == sorted(names)
    assert all(set(each) == FACTS for each in listed)
    assert table.out.count("\n") == 3
    assert table.out.startswith("counter\tvalue\tlower\tupper\tmethod\t")


@pytest.mark.parametrize(("typed", "code"), [("y", 0), ("n", 130)])
def test_a_person_is_asked_before_a_counter_is_deleted(
    command: Command, counter: str, typed: str, code: int
) -> None:
    """At a terminal; anywhere else nothing is deleted without --yes."""
    create(command, counter, "--method", "occ", "--opening", "7")
    unasked = command("strict", "delete", counter)
    ours, theirs = pty.openpty()
    os.write(ours, f"{typed}\n".encode())
    try:
        asked = subprocess.run(
            command.line("strict", "delete", counter),
            stdin=theirs,
            capture_output=True,
            text=True,
            env=command.variables(),
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)

    assert unasked.code == 2
    assert "of value 7 would be deleted: give --yes" in unasked.err
    assert asked.returncode == code
    assert f"Delete {counter!r} and its value 7? This cannot be undone." in asked.stderr
    assert command("strict", "show", counter).code == (2 if typed == "y" else 0)


CREATE = ["create", "{counter}"]
MARKER = [*CREATE, "--method", "marker"]
# The rows of what must be refused: the arguments, and the reason that is told.
REFUSED_MAKING = [
    ([*MARKER, "--lower", "10", "--upper", "5"], "leave no headroom for any change"),
    ([*MARKER, "--lower", "5", "--upper", "5"], "leave no headroom for any change"),
    ([*MARKER, "--lower", "nan"], "is not a finite number"),
    ([*MARKER, "--lower", "0", "--opening", "-1"], "is below the lower bound 0"),
    ([*MARKER, "--upper", "9", "--opening", "10"], "is above the upper bound 9"),
    ([*CREATE, "--method", "magic"], "'magic' is not one of"),
    ([*CREATE, "--method", "set", "--max-tokens", "1639"], "would pass 64 KB"),
    ([*CREATE, "--method", "set", "--max-tokens", "0"], "max_tokens 0 is not between"),
    ([*CREATE, "--method", "history", "--history", "1"], "history 1 is not between"),
    ([*CREATE, "--method", "history", "--history", "101"], "history 101 is not between"),
    ([*MARKER, "--history", "5"], "history is a choice of method history"),
    ([*MARKER, "--window", "1s"], "is not between"),
    ([*MARKER, "--bins", "0"], "bins 0 must be"),
    ([*MARKER, "--bins", "99"], "bins 99 must be"),
    ([*CREATE, "--method", "occ", "--bins", "2"], "cannot have bins"),
    (["create", "a#b", "--method", "occ"], "'#', which is reserved"),
    (["create", "{counter}" + "x" * 500, "--method", "occ"], "at most 512"),
]
REFUSED_USE = [
    (["change", "{counter}", "0"], "delta 0 changes nothing"),
    (["change", "{counter}", "two"], "is not a decimal number"),
    (["change", "{counter}", "1" * 21], "has more than 20 digits"),
    (["change", "{counter}", "1", "--key", "k" * 1025], "1025 bytes long; at most 1024"),
    (["change", "{counter}", "1", "--key", ""], "idempotency key is empty"),
    (["change", "{counter}", "1", "--prefer", "over"], "for method atomic"),
    (["change", "{counter}", "1", "--note", "n=" + "x" * 1024], "1025 bytes long; at most 1024"),
    (["change", "{counter}", "1", "--key", "k", "--at", "2101-01-01T00:00:00Z"], "ahead"),
    (["create", "{counter}", "--method", "occ"], "exists, of method marker"),
    (["set", "{counter}", "--upper", "4"], "is above the upper bound 4"),
    (["set", "{counter}", "--lower", "6"], "is below the lower bound 6"),
    (["set", "{counter}", "--lower", "9", "--upper", "1"], "leave no headroom for any change"),
    (["set", "{counter}", "--lower", "9", "--upper", "9", "--force"], "leave no headroom"),
    (["set", "{counter}"], "nothing to set"),
    (["delete", "{counter}"], "give --yes"),
    (["show", "{counter}-2"], "does not exist"),
    (["change", "{counter}-2", "1"], "does not exist"),
    (["delete", "{counter}-2", "--yes"], "does not exist"),
    (["list", "no-such"], "namespace 'no-such' does not exist"),
]


def refused(command: Command, arguments: list[str], counter: str, reason: str) -> None:
    """Expect exit 2 and one line with the reason."""
    done = command("strict", *(text.format(counter=counter) for text in arguments))

    assert done.code == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert reason in done.err


@pytest.mark.parametrize(("arguments", "reason"), REFUSED_MAKING)
def test_what_cannot_be_made_leaves_nothing_behind(
    stack: LocalStack, command: Command, counter: str, arguments: list[str], reason: str
) -> None:
    """One line, exit 2, no counter and not even a namespace."""
    refused(command, arguments, counter, reason)

    assert items_like(stack, counter.split(":", maxsplit=1)[0]) == []


def test_what_is_refused_changes_nothing(stack: LocalStack, command: Command, counter: str) -> None:
    """One line and exit 2 each, and the counter stays as it is to the byte."""
    made = ["--method", "marker", "--lower", "0", "--upper", "10", "--opening", "5"]
    create(command, counter, *made)
    before = items_like(stack, counter.split(":", maxsplit=1)[0])

    for arguments, reason in REFUSED_USE:
        refused(command, arguments, counter, reason)

    assert items_like(stack, counter.split(":", maxsplit=1)[0]) == before


def test_a_set_takes_steps_of_one(stack: LocalStack, command: Command, counter: str) -> None:
    """Anything else is refused, with nothing written."""
    create(command, counter, "--method", "set")
    before = items_like(stack, counter.split(":", maxsplit=1)[0])

    refused(command, ["change", counter, "2"], counter, "takes changes of 1 and -1, not 2")

    assert items_like(stack, counter.split(":", maxsplit=1)[0]) == before


def test_a_namespace_has_one_kind(command: Command, counter: str) -> None:
    """A ledger call in a strict one, or the other way round, is refused with the reason."""
    ledger = f"ledger-{counter}"
    create(command, counter, "--method", "occ")
    assert command("emit", ledger, "1").code == 0

    emitted = command("emit", counter, "1")

    assert emitted.code == 2
    assert "of kind strict; this call is for counters of kind ledger" in emitted.err
    for arguments in (["create", ledger, "--method", "occ"], ["change", ledger, "1"]):
        refused(command, arguments, counter, "of kind ledger; this call is for counters of kind")


def test_elsewhere_than_home_it_is_refused_with_the_reason(command: Command, counter: str) -> None:
    """A second copy could not keep a bound."""
    create(command, counter, "--method", "occ")
    elsewhere = Command({**command.environment, "COUNTLEDGER_HOME_REGION": "eu-central-1"})

    for arguments in (["change", counter, "1"], ["show", counter], ["delete", counter, "--yes"]):
        refused(elsewhere, arguments, counter, "work only in the home region eu-central-1")


def items_like(stack: LocalStack, namespace: str) -> list[dict[str, Any]]:
    """Every item of a namespace in either table, the namespace's own included."""
    client = stack.client("dynamodb")
    found: list[dict[str, Any]] = []
    for output in ("LedgerTableName", "CountersTableName"):
        pages = client.get_paginator("scan").paginate(
            TableName=stack.outputs[output],
            FilterExpression="contains(#c, :n)",
            ExpressionAttributeNames={"#c": "counter"},
            ExpressionAttributeValues={":n": {"S": namespace}},
            ConsistentRead=True,
        )
        found += [dict(item) for page in pages for item in page["Items"]]
    return sorted(found, key=str)
