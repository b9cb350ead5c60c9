"""`countledger cost` on the deployed stack: measured from what its materializer noted."""

import uuid

import pytest

from countledger import CountLedger, Event, Settings
from countledger.compaction.retire import Retire
from countledger.infra.cli.cost import measure, regions_of, retire_of
from countledger.infra.local.stack import LocalStack
from countledger.ledger.clock import SystemClock
from countledger.ledger.limits import DAY_MS, HOUR_MS
from tests.e2e.command import Command

# Other tests use the stack: so many entries more tell by how much the pace has to grow.
EVENTS = 100


@pytest.fixture
def client(stack: LocalStack) -> CountLedger:
    return CountLedger(
        Settings(stack_name=stack.name), session=stack.session(), endpoint_url=stack.url
    )


class _Later:
    """The machine's clock, two hours ahead: by then the stack has been used for that long."""

    def now_ms(self) -> int:
        return SystemClock().now_ms() + 2 * HOUR_MS

    def sleep_ms(self, duration_ms: float) -> None:
        SystemClock().sleep_ms(duration_ms)


def test_the_pace_is_measured_from_what_was_materialized(
    stack: LocalStack, client: CountLedger
) -> None:
    """Entries and their write units, by the progress of the stream that the function wrote."""
    namespace = f"cost-{uuid.uuid4().hex[:8]}"
    client.namespaces.create(namespace)
    before = measure(client, _Later())
    assert all(
        getattr(one, "status", None)
        for one in client.record_many([Event(f"{namespace}:a", 1)] * EVENTS)
    )
    stack.pump.drain()

    after = measure(client, _Later())

    assert after is not None
    grown = after.entries_per_day - (before.entries_per_day if before else 0.0)
    # Two hours and what the session has lasted, itself less than two.
    assert EVENTS * DAY_MS / (4 * HOUR_MS) * 0.5 < grown <= EVENTS * DAY_MS / (2 * HOUR_MS) * 1.01
    assert 0 < after.total_units <= 2
    assert measure(client, least_ms=DAY_MS) is None
    assert regions_of(client) == 1


def test_the_command_tells_a_month(stack: LocalStack, client: CountLedger) -> None:
    """Asked with a number of events nothing is measured; a schedule tells how entries go."""
    command = Command(stack.environment())
    # One more than the other tests of the stack have left, so that most of them delete.
    namespaces = [f"cost-{uuid.uuid4().hex[:8]}" for _ in range(len(client.schedules.list()) + 1)]
    for namespace in namespaces:
        client.namespaces.create(namespace)
        client.schedules.create(namespace, every_ms=HOUR_MS, retire=Retire.DELETE)
    ways = retire_of(client)
    for namespace in namespaces:
        client.schedules.delete(namespace)

    planned = command("cost", "--events-per-day", "1000000", "--retire", "delete", "--json")
    table = command("cost", "--events-per-day", "1000000")
    wrong = command("cost", "--events-per-day", "-1")

    assert ways is Retire.DELETE
    assert (planned.code, table.code, wrong.code) == (0, 0, 2), planned.err + table.err
    sums = {one["position"]: float(one["usd"]) for one in planned.json["month"]}
    assert sums["entries"] == pytest.approx(18.75)
    assert float(planned.json["usd"]) == pytest.approx(sum(sums.values()), abs=0.05)
    assert "coalesce" in planned.json["savings"][0]["setting"]
    assert planned.json["prices_as_of"].startswith("20")
    assert "a month" in table.out
    assert "would save $" in table.err
    assert wrong.err.count("\n") == 1
    assert "-1" in wrong.err
