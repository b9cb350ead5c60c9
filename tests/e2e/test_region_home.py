"""Another home region, and the entries of a lost one, by the command line on local stacks."""

from collections.abc import Iterator
from typing import Final

import pytest

from countledger import CountLedger, Settings
from countledger.compaction.lease import Epoch
from countledger.compaction.regions import Promotion
from countledger.consumers.region_state import Phase, RegionStateStore
from countledger.infra.deploy.home_change import HomeChange, HomeStep
from countledger.infra.local.stack import LocalStack
from countledger.ledger import keys
from countledger.ledger.limits import DAY_MS, HOUR_MS
from tests.e2e.command import Command, eventually
from tests.e2e.world import edit, following, record_aged, tick, total_item

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


def test_after_a_promotion_the_new_home_compacts_by_its_schedule(
    stack: LocalStack, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the command ends before each step, and is started again."""
    before = _client(stack, HOME)
    before.namespaces.create("s")
    before.schedules.create("s", every_ms=HOUR_MS, min_entries=2)
    record_aged(before, "s:a", [1] * 5, 2 * DAY_MS)
    stack.drain()
    planned = command("region", "promote", EU, "--plan", "--json").json
    assert (planned["home"], planned["epoch"]) == (HOME, 0)
    refused = command("region", "promote", EU, "--lost", HOME, "--region", EU)
    assert refused.code == 2
    assert f"{HOME} is a replica of the table still" in refused.err
    assert command("region", "salvage", EU).code == 2

    killed: list[HomeStep] = []
    take = HomeChange.take

    def once(self: HomeChange, step: HomeStep, epoch: Epoch) -> None:
        if step not in killed:
            killed.append(step)
            raise RuntimeError("killed here")
        take(self, step, epoch)

    monkeypatch.setattr(HomeChange, "take", once)
    while "killed here" in (done := command("region", "promote", EU, "--json")).err:
        pass

    assert (done.code, killed) == (0, list(HomeStep)), done.err
    assert (done.json["home"], done.json["epoch"], done.json["missing"]) == (EU, 1, [])
    assert command("region", "promote", EU, "--json").json == done.json
    client = _client(stack, EU)
    assert client.schedules.state("s") == "enabled"
    assert client.schedules.get("s").region == EU
    assert command("schedule", "list", "--region", HOME).code == 2
    _end_the_waits(stack, EU)
    assert stack.stacks[EU].find()
    # The sweep of the first tick puts the counter into the index of this region, due in a day.
    assert "due_bucket" not in total_item(client, "s:a")
    edit(client, "counters_table", keys.schedule_key("s"), unswept_since=1)
    _tick(stack, EU, "s")
    eventually(lambda: "due_bucket" in total_item(client, "s:a"))
    edit(client, "counters_table", keys.total_key("s:a"), due_at=1)
    eventually(lambda: _tick(stack, EU, "s") and client.exact("s:a").entries_read == 0)
    assert client.exact("s:a").value == 5
    stack.drain()
    assert [_client(stack, one).total("s:a").value for one in (HOME, EU)] == [5, 5]


def test_a_drifted_total_is_seen_in_its_region(stack: LocalStack, command: Command) -> None:
    client = _client(stack, EU)
    edit(client, "counters_table", keys.total_key("s:a"), total=6)

    found = command("region", "list", "--json")

    assert found.code == 1
    drift = {one["name"]: one["drift"] for one in found.json["items"]}
    assert drift[HOME] == {"compared": 1, "drifted": []}
    assert drift[EU] == {"compared": 1, "drifted": ["s:a"]}
    assert command("repair", "s:a", "--region", EU).code == 0
    assert command("region", "list").code == 0
    assert command("region", "list", "--sample", "0", "--json").json["items"][0]["drift"] is None


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
    store = RegionStateStore(connection)
    store.write(Phase.REBUILDING, store.read())

    refused = command("region", "promote", target, "--leave-strict")

    store.write(Phase.READY, store.read())
    assert refused.code == 2
    assert f"{target} is rebuilding" in refused.err


def test_a_home_is_lost_and_what_it_had_is_brought_in_once(
    stack: LocalStack, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step by step as docs/regions.md says; on this engine a region cannot fail alone."""
    assert command("region", "remove", EU, "--yes").code == 2
    stack.replicator.cut_off(EU)
    record_aged(_client(stack, EU), "s:a", [10] * 3, 2 * DAY_MS)
    table = stack.outputs["LedgerTableName"]
    lost = stack.stacks[EU].client("dynamodb")
    backup = lost.create_backup(TableName=table, BackupName="before")["BackupDetails"]["BackupArn"]

    with following(stack):
        removed = command("region", "remove", EU, "--lost", "--yes")
        assert removed.code == 0, removed.err
        eventually(lambda: EU not in stack.stacks)
    assert "promote with --lost" in command("region", "promote", HOME).err
    promoted = command("region", "promote", HOME, "--lost", EU)
    assert promoted.code == 0, promoted.err
    lost.restore_table_from_backup(TargetTableName="restored", BackupArn=backup)
    arguments = ("region", "salvage", EU, "--table", "restored", "--json")
    assert "may arrive for another" in command(*arguments).err
    _end_the_waits(stack, HOME)
    with monkeypatch.context() as killing:
        killing.setattr(Promotion, "settle", _killed)
        assert "killed here" in command(*arguments).err
    salvaged = command(*arguments)

    assert salvaged.code == 0, salvaged.err
    assert "continues after" in salvaged.err
    assert salvaged.json["brought"] == 3
    again = command(*arguments)
    assert "continues after" not in again.err
    assert ("brought" in again.json, again.json["there"] >= 3) == (False, True)
    client = _client(stack, HOME)
    assert client.exact("s:a").value == 35
    stack.drain()
    assert client.total("s:a").value == 35
    edit(client, "ledger_table", keys.region_home_key(keys.LEASE), until=1)
    assert command("compact", "s:a", "--json").json["items"][0]["merged"] == 3
    assert client.exact("s:a").value == 35


def _killed(*_: object) -> None:
    raise RuntimeError("killed here")


def _client(stack: LocalStack, region: str) -> CountLedger:
    session = stack.stacks[region].session()
    return CountLedger(Settings(stack_name="homes"), session=session, endpoint_url=stack.url)


def _home(command: Command) -> str:
    regions = command("region", "list", "--json").json["items"]
    (home,) = [str(one["name"]) for one in regions if one["home"]]
    return home


def _other(region: str) -> str:
    return EU if region == HOME else HOME


def _end_the_waits(stack: LocalStack, region: str) -> None:
    """As if the 21 minutes after a promotion had passed."""
    epoch = keys.region_home_key(keys.EPOCH)
    edit(_client(stack, region), "ledger_table", epoch, begins_at=1)
    stack.drain()


def _tick(stack: LocalStack, region: str, namespace: str) -> bool:
    """What the schedule's tick does."""
    tick(stack.stacks[region], namespace)
    return True
