"""`countledger delete` on the deployed stack: asked for, waited for, proven, gone."""

from datetime import timedelta

import pytest

from countledger import CountLedger
from countledger.infra.local.stack import LocalStack
from countledger.ledger import keys
from countledger.ledger.clock import SystemClock
from countledger.ledger.limits import DAY_MS
from tests.e2e.command import Command
from tests.e2e.world import edit, record_aged, record_all, total_item


@pytest.fixture
def command(stack: LocalStack) -> Command:
    """A proof waits for as long as clocks may differ while the stream is never still."""
    return Command({**stack.environment(), "COUNTLEDGER_CLOCK_SKEW_MS": "1000"})


def _days_pass(client: CountLedger, counter: str) -> None:
    """As if the mark, the membership, and the last move of the total were three days old."""
    then_ms = SystemClock().now_ms() - 3 * DAY_MS
    membership = keys.member_key(f"{keys.namespace_of(counter)}-group", counter)
    edit(client, "counters_table", keys.total_key(counter), updated_at=then_ms)
    edit(client, "ledger_table", keys.deletion_key(counter), at=then_ms)
    edit(client, "counters_table", membership, at=then_ms)


def test_a_ledger_counter_goes_once_nothing_can_arrive(
    command: Command, stack: LocalStack, client: CountLedger, name: str
) -> None:
    counter, other = f"{name}:gone", f"{name}:stays"
    client.namespaces.create(name)
    for one in (counter, other):
        record_aged(client, one, [5, 7], timedelta(days=4) // timedelta(milliseconds=1))
    stack.pump.drain()
    client.groups.add(f"{name}-group", [counter, other])

    unasked = command("delete", counter)
    mistyped = command("delete", counter, "--yes", other)
    marked = command("delete", counter, "--yes", counter, "--json")
    waiting = command("delete", counter, "--yes", counter, "--json")
    assert client.total(counter).value == 12
    _days_pass(client, counter)
    deleted = command("delete", counter, "--yes", counter, "--json")

    assert (unasked.code, mistyped.code) == (2, 2)
    assert f"--yes {counter}" in unasked.err
    assert [marked.items[0]["stage"], waiting.items[0]["stage"]] == ["marked", "waiting"]
    assert (marked.code, waiting.code) == (1, 1)
    assert deleted.code == 0, deleted.err + deleted.out
    assert deleted.items[0]["stage"] == "deleted"
    assert (total_item(client, counter), client.exact(counter).value) == ({}, 0)
    assert list(client.groups.of(counter)) == []
    assert (client.total(other).value, client.exact(other).value) == (12, 12)
    assert list(client.groups.of(other)) == [f"{name}-group"]


def test_a_namespace_is_marked_and_kept_after_all(
    command: Command, stack: LocalStack, client: CountLedger, name: str
) -> None:
    names = [f"{name}:{n}" for n in range(3)]
    record_all(client, (*names, f"{name}2:other"))
    stack.pump.drain()

    marked = command("delete", "--namespace", name, "--yes", name, "--json")
    kept = command("delete", "--namespace", name, "--cancel", "--json")

    assert sorted(one["counter"] for one in marked.items) == names
    assert {one["stage"] for one in marked.items} == {"marked"}
    assert kept.code == 0
    assert sorted(one["counter"] for one in kept.items) == names
    assert list(client.deletions.pending(name)) == []
    assert list(client.deletions.pending(f"{name}2")) == []


def test_strict_counters_and_sequences_go_at_once(
    command: Command, client: CountLedger, name: str
) -> None:
    seats, orders = f"{name}:hall", f"{name}-seq:orders"
    client.strict.create(seats, method="marker", lower=0, opening=5, bins=2)
    client.strict.change(seats, -1, key="k")
    client.groups.add(f"{name}-group", [seats])
    assert client.sequences.draw(orders) == 1

    gone = [command("delete", one, "--yes", one, "--json") for one in (seats, orders)]
    again = command("delete", seats, "--yes", seats)

    assert [one.items[0]["stage"] for one in gone] == ["forgotten", "forgotten"]
    assert again.code == 2
    assert list(client.groups.of(seats)) == []
    assert client.sequences.draw(orders) == 1
    assert client.strict.create(seats, method="marker", lower=0, opening=9).value == 9
