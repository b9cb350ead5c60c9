"""Another home region, and the entries of a lost one, by the command line on local stacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from countledger import CountLedger, Settings
from countledger.consumers.region_state import Phase, RegionStateStore
from countledger.infra.deploy.home_change import HomeChange, HomeStep
from countledger.infra.local.stack import LocalStack
from countledger.ledger import keys
from countledger.ledger.expressions import Assign
from countledger.ledger.limits import DAY_MS, HOUR_MS
from countledger.ledger.operations import Update
from tests.e2e.command import Command, eventually
from tests.e2e.world import record_aged, total_item

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.compaction.lease import Epoch

HOME: Final = "us-east-1"
EU: Final = "eu-west-1"


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    """Two regions."""
    with LocalStack(name="homes", regions=(HOME, EU)) as running:
        yield running


@pytest.fixture(scope="module")
def command(stack: LocalStack) -> Command:
    """The command line of that stack."""
    return Command(stack.environment() | {"COUNTLEDGER_STACK_NAME": "homes"})


def test_a_promotion_is_shown_planned_and_carried_out(stack: LocalStack, command: Command) -> None:
    client = CountLedger(
        Settings(stack_name="homes"), session=stack.home.session(), endpoint_url=stack.url
    )
    client.namespaces.create("p")
    client.record("p:a", 5)
    stack.drain()

    planned = command("region", "promote", EU, "--plan", "--json").json
    assert (planned["home"], planned["epoch"]) == (HOME, 0)
    refused = command("region", "promote", EU, "--lost", HOME, "--region", EU)
    assert refused.code == 2
    assert f"{HOME} is a replica of the table still" in refused.err
    assert command("region", "salvage", EU).code == 2

    done = command("region", "promote", EU, "--json")
    assert done.code == 0, done.err
    assert (done.json["home"], done.json["epoch"], done.json["missing"]) == (EU, 1, [])
    steps = [
        one.partition(":")[0] for one in done.err.splitlines() if not one.startswith("stack in")
    ]
    assert steps == ["compactor", "stacks"]
    again = command("region", "promote", EU, "--json")
    assert (again.json, again.err) == (done.json, "")
    assert command("compact", "p:a", "--json").code == 2
    assert command("compact", "p:a", "--region", EU).code == 0
    assert client.exact("p:a").sum == 5


def test_what_stays_in_the_home_before_is_named(stack: LocalStack, command: Command) -> None:
    home = _home(command)
    command("namespace", "create", "stock", "--kind", "strict", "--region", home)
    command("claim", "take", "mail", "a@b", "--owner", "o", "--region", home)
    stack.drain()

    refused = command("region", "promote", _other(home))

    assert refused.code == 2
    for word in ("kind strict: stock", "unique claims", "--leave-strict", home):
        assert word in refused.err
    assert _home(command) == home


def test_a_region_without_complete_totals_is_not_promoted(
    stack: LocalStack, command: Command
) -> None:
    target = _other(_home(command))
    connection = _client(stack, target).connection
    table = connection.setting("counters_table")
    store = RegionStateStore(connection.dynamo("standard"), table)
    store.write(Phase.REBUILDING)

    refused = command("region", "promote", target, "--leave-strict")

    store.write(Phase.READY)
    assert refused.code == 2
    assert f"{target} is rebuilding" in refused.err


def test_after_a_promotion_the_new_home_compacts_by_its_schedule(
    stack: LocalStack, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the command ends before each step, and is started again."""
    old = _home(command)
    new = _other(old)
    before = _client(stack, old)
    before.namespaces.create("s")
    before.schedules.create("s", every_ms=HOUR_MS, min_entries=2)
    record_aged(before, "s:a", [1] * 5, 2 * DAY_MS)
    stack.drain()
    killed: list[HomeStep] = []
    take = HomeChange.take

    def once(self: HomeChange, step: HomeStep, epoch: Epoch) -> None:
        if step not in killed:
            killed.append(step)
            raise RuntimeError("killed here")
        take(self, step, epoch)

    monkeypatch.setattr(HomeChange, "take", once)
    while "killed here" in (done := command("region", "promote", new, "--leave-strict")).err:
        pass

    assert (done.code, killed) == (0, list(HomeStep)), done.err
    client = _client(stack, new)
    assert client.schedules.state("s") == "enabled"
    assert client.schedules.get("s").region == new
    assert command("schedule", "list", "--region", old).code == 2
    _end_the_waits(stack, new, "s")
    assert stack.stacks[new].find()
    # The sweep of the first tick puts the counter into the index of this region, due in a day.
    assert "due_bucket" not in total_item(client, "s:a")
    _tick(stack, new, "s")
    eventually(lambda: "due_bucket" in total_item(client, "s:a"))
    _age(client, "s:a")
    eventually(lambda: _tick(stack, new, "s") and client.exact("s:a").entries_read == 0)
    assert client.exact("s:a").sum == 5
    stack.drain()
    assert [_client(stack, one).total("s:a").total for one in (old, new)] == [5, 5]


def _client(stack: LocalStack, region: str) -> CountLedger:
    session = stack.stacks[region].session()
    return CountLedger(Settings(stack_name="homes"), session=session, endpoint_url=stack.url)


def _home(command: Command) -> str:
    regions = command("region", "list", "--json").json["regions"]
    (home,) = [str(one["name"]) for one in regions if one["home"]]
    return home


def _other(region: str) -> str:
    return EU if region == HOME else HOME


def _end_the_waits(stack: LocalStack, region: str, namespace: str) -> None:
    """As if the 21 minutes after a promotion had passed, and those before a sweep."""
    connection = _client(stack, region).connection
    dynamo = connection.dynamo("standard")
    epoch = keys.region_home_key(keys.EPOCH)
    dynamo.update(Update(connection.setting("ledger_table"), epoch, (Assign("begins_at", 1),)))
    schedule = keys.schedule_key(namespace)
    swept = (Assign("unswept_since", 1),)
    dynamo.update(Update(connection.setting("counters_table"), schedule, swept))
    stack.drain()


def _age(client: CountLedger, counter: str) -> None:
    """As if a counter's day had passed."""
    table = client.connection.setting("counters_table")
    due = Update(table, keys.total_key(counter), (Assign("due_at", 1),))
    client.connection.dynamo("standard").update(due)


def _tick(stack: LocalStack, region: str, namespace: str) -> bool:
    """What the schedule's tick does."""
    there = stack.stacks[region]
    answer = there.client("lambda").invoke(
        FunctionName=there.outputs["DispatcherFunctionName"],
        Payload=json.dumps({"namespace": namespace}).encode(),
    )
    text = answer["Payload"].read()
    assert "FunctionError" not in answer, text
    return True
