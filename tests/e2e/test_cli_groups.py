"""`countledger group`, rankings, snapshots, transfers and `set` on the deployed stack."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from countledger import CountLedger, Settings
from countledger.ledger.errors import AccessDenied
from tests.e2e.command import Command, eventually

if TYPE_CHECKING:
    from countledger.infra.local.stack import LocalStack


@pytest.fixture
def name() -> str:
    """A name of this test alone."""
    return f"g{uuid.uuid4().hex[:12]}"


def _total_is(command: Command, counter: str, total: int) -> bool:
    (found,) = command("total", counter, "--json").json["totals"]
    return bool(found["total"] == total)


def test_a_group_is_made_shown_ranked_and_deleted(command: Command, name: str) -> None:
    """Add, show, top, rank, list, remove, delete; the deployed materializer keeps the order."""
    ann, bob = f"{name}:ann", f"{name}:bob"
    command("emit", ann, "3")
    command("emit", bob, "5")
    eventually(lambda: _total_is(command, ann, 3) and _total_is(command, bob, 5))

    added = command("group", "add", name, ann, bob, "--json")
    ranked = command("group", "rank", name, "--json")
    command("emit", ann, "9")
    eventually(lambda: _total_is(command, ann, 12))
    top = command("group", "top", name, "--limit", "1", "--json")
    shown = command("group", "show", name)
    page = command("group", "show", name, "--after", ann, "--json")
    groups = command("group", "list", "--of", ann, "--json")
    listed = command("group", "list", "--json")
    unranked = command("group", "unrank", name, "--json")
    removed = command("group", "remove", name, bob, f"{name}:none", "--json")
    deleted = command("group", "delete", name, "--json")
    gone = command("group", "show", name)

    assert [one["added"] for one in added.json] == [True, True]
    assert ranked.json == {"group": name, "ranked": True, "members": 2}
    assert top.json == [{"rank": 1, "counter": ann, "total": 12}]
    assert f"{ann}\t12\t2" in shown.out
    assert shown.err == "sum: 17\n"
    assert [one["counter"] for one in page.json] == [bob]
    assert groups.json == [{"group": name}]
    assert {"group": name, "ranked": True} in listed.json
    assert unranked.json["ranked"] is False
    assert [one["removed"] for one in removed.json] == [True, False]
    assert deleted.json == {"group": name, "deleted": True, "members": 1}
    assert gone.code == 2
    assert gone.err.count("\n") == 1
    assert "does not exist" in gone.err


def test_a_namespace_is_ranked_by_the_deployed_materializer(command: Command, name: str) -> None:
    """Counters that are there, and one that is new; listed as well; then no more."""
    command("emit", f"{name}:a", "3")
    eventually(lambda: _total_is(command, f"{name}:a", 3))
    refused = command("namespace", "top", name)
    ranked = command("namespace", "rank", name, "--no-wait", "--json")
    top = command("namespace", "top", name, "--json")
    listed = command("namespace", "counters", name, "--json")
    off = command("namespace", "unrank", name, "--json")

    assert refused.code == 2
    assert "namespace rank" in refused.err
    assert ranked.json == {"namespace": name, "ranked": True, "totals": 1}
    assert top.json == [{"rank": 1, "counter": f"{name}:a", "total": 3}]
    assert [one["counter"] for one in listed.json] == [f"{name}:a"]
    assert off.json == {"namespace": name, "ranked": False, "totals": 1}
    assert command("namespace", "top", name).code == 2


def test_a_new_counter_is_ranked_with_its_first_entry(command: Command, name: str) -> None:
    """By the deployed materializer, which reads the rule when it first meets the namespace."""
    command("namespace", "create", name)
    command("namespace", "rank", name, "--no-wait")

    command("emit", f"{name}:new", "3")
    eventually(lambda: _total_is(command, f"{name}:new", 3))

    top = command("namespace", "top", name, "--json")
    assert top.json == [{"rank": 1, "counter": f"{name}:new", "total": 3}]


def test_strict_counters_are_moved_set_and_seen_together(command: Command, name: str) -> None:
    """Transfer, retry, refusal with its name, several at once, set, snapshot, give up."""
    ann, bob = f"{name}:ann", f"{name}:bob"
    for counter, opening in ((ann, "10"), (bob, "0")):
        made = command(
            "strict", "create", counter, "--method", "marker", "--lower", "0", "--opening", opening
        )
        assert made.code == 0, made.err
    transfer = ("strict", "transfer", ann, bob, "2.5", "--key", f"{name}-1")

    moved = command(*transfer, "--json")
    again = command(*transfer, "--json")
    refused = command("strict", "transfer", bob, ann, "3", "--key", f"{name}-2", "--json")
    together = command(
        "strict", "together", f"{ann}=-7.5", f"{bob}=+7.5", "--key", f"{name}-3", "--json"
    )
    assigned = command("set", bob, "4", "--key", f"{name}-4", "--json")
    snapshot = command("snapshot", ann, bob, "--json")
    in_words = command("snapshot", ann, bob)
    withdrawn = command("strict", "withdraw", "--key", f"{name}-5", "--json")
    too_late = command("strict", "withdraw", "--key", f"{name}-1", "--json")

    asked = {"from": ann, "to": bob, "amount": "2.5"}
    assert moved.json == {"status": "applied", **asked}
    assert again.json == {"status": "duplicate", **asked}
    assert refused.code == 4
    assert f"counter {bob!r} is at 2.5" in refused.err
    assert (refused.json["status"], refused.json["counter"]) == ("bound_reached", bob)
    assert together.json["status"] == "applied"
    assert assigned.json == {"status": "applied", "counter": bob, "value": 4}
    assert [one["total"] for one in snapshot.json["totals"]] == [0, 4]
    assert in_words.err == ""
    assert (withdrawn.code, too_late.code) == (0, 1)


def test_a_ledger_counter_is_set_and_reset(command: Command, name: str) -> None:
    """By an entry that the log shows; a retry is a duplicate; negative values are values."""
    counter = f"{name}:c"
    command("emit", counter, "3")
    done = command("set", counter, "-5", "--key", "k-1", "--json")
    again = command("set", counter, "-5", "--key", "k-1", "--json")
    reset = command("set", counter, "0", "--key", "k-2")
    entries = command("entries", counter, "--json").json
    eventually(lambda: _total_is(command, counter, 0))
    snapshot = command("snapshot", counter)

    assert done.json == {"status": "recorded", "counter": counter, "value": -5, "delta": -8}
    assert again.json == done.json | {"status": "duplicate"}
    assert reset.code == 0
    assert {"set": "0"} in [one["note"] for one in entries if one["delta"] == 5]
    assert "as materialized" in snapshot.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["strict", "together", "a:b", "--key", "k"], "COUNTER=DELTA"),
        (["strict", "together", "a:b=1", "a:b=2", "--key", "k"], "twice"),
        (["strict", "transfer", "a:b", "a:c", "-1", "--key", "k"], "below zero"),
        (["set", "a:b", "much", "--key", "k"], "not a decimal number"),
        (["group", "add", "a#b", "a:b"], "group name"),
        (["namespace", "top", "nobody-has-it"], "namespace"),
        (["group", "top", "nobody-has-it", "--limit", "0"], "1 to 1000"),
        (["snapshot", *(f"a:{number}" for number in range(101))], "101 counters"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    command: Command, arguments: list[str], reason: str
) -> None:
    """Exit code 2, nothing on stdout."""
    refused = command(*arguments)

    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert reason in refused.err


def test_each_policy_lets_do_its_part(auth_stack: LocalStack, name: str) -> None:
    """Who operates groups and ranks; who reads sees them; who sells moves at once; no more."""

    def client(policy: str) -> CountLedger:
        session = auth_stack.session(auth_stack.credentials_for(policy))
        settings = Settings(stack_name=auth_stack.name)
        return CountLedger(settings, session=session, endpoint_url=auth_stack.url)

    operator, reader, seller = map(client, ("OperatePolicyArn", "ReadPolicyArn", "StrictPolicyArn"))
    a, b = f"{name}:a", f"{name}:b"
    for counter in (a, b):
        seller.strict.create(counter, method="atomic", lower=0, opening=5)
    seller.strict.transactions.transfer(a, b, 2, key=f"{name}-1")
    seller.strict.transactions.set_value(b, 6, key=f"{name}-2")
    operator.groups.add(name, [a, b])
    operator.groups.switch_ranking(name, on=True)
    operator.rankings.switch_on(name)

    assert [one.total for one in reader.groups.top(name)] == [6, 3]
    assert [one.total for one in reader.rankings.top(name)] == [6, 3]
    assert list(reader.groups.of(a)) == [name]
    assert [one.total for one in reader.snapshot([a, b]).totals.values()] == [3, 6]
    with pytest.raises(AccessDenied):
        reader.groups.add(name, [f"{name}:c"])
    with pytest.raises(AccessDenied):
        reader.rankings.switch_off(name)
    operator.rankings.switch_off(name)
    operator.groups.delete(name)
