"""Strict counters over regions, deployed in three.

The engine writes to all regions of a strongly consistent table at once and one after the other, so
no two writes conflict here; the simulation has the conflicts.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import pytest

from countledger import CountLedger, Kind, Settings, outcomes
from countledger.infra.cli.destroy import destruction_of
from countledger.infra.deploy.stack_operation import StackReader
from countledger.infra.local.stack import LocalStack
from countledger.infra.portability.export import Exporter
from countledger.infra.portability.lines import CounterLine
from countledger.ledger.connection import Connection
from countledger.ledger.errors import AccessDenied, BadSetting, NotRanked, Refused, WrongRegion
from countledger.ledger.operations import Put
from tests.e2e.test_regions_local import client_in

HOME: Final = "us-east-1"
REGIONS: Final = (HOME, "us-east-2", "us-west-2")
POLICIES: Final = ("StrictPolicyArn", "ReadPolicyArn")


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    """The stack in three regions, with a table for strict counters over all of them."""
    parameters = {"StrictRegions": ",".join(REGIONS)}
    with LocalStack(name="strictly", regions=REGIONS, auth=True, parameters=parameters) as running:
        yield running


@pytest.fixture
def clients(stack: LocalStack, name: str) -> dict[str, CountLedger]:
    """A client of each region under the policies for it; the test's namespace is known there."""
    found = {region: client_in(stack, region, *POLICIES) for region in REGIONS}
    found[HOME].strict.create(f"{name}:a", method="occ", lower=0, opening=30, regions=True)
    stack.drain()
    return found


def test_a_bound_holds_for_changes_from_every_region(
    clients: dict[str, CountLedger], name: str
) -> None:
    """Fifty ask for one each, from all regions at once; thirty get one."""
    counter = f"{name}:a"

    def take(number: int) -> object:
        region = REGIONS[number % len(REGIONS)]
        while True:
            outcome = clients[region].strict.change(counter, -1, key=f"order-{number}")
            if not isinstance(outcome, outcomes.Contended):
                return outcome

    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(take, range(50)))

    assert sum(isinstance(one, outcomes.Applied) for one in taken) == 30
    assert {client.strict.show(counter).value for client in clients.values()} == {0}
    assert {client.total(counter).value for client in clients.values()} == {0}
    west = clients["us-west-2"]
    assert west.strict.set_bounds(counter, lower=-2).lower == -2
    assert isinstance(west.strict.change(counter, -1, key="order-51"), outcomes.Applied)
    assert [one.counter for one in clients["us-east-2"].counters(name)] == [counter]


def test_what_is_not_over_regions_is_refused_with_the_reason(
    clients: dict[str, CountLedger], name: str
) -> None:
    west, counter = clients["us-west-2"], f"{name}:a"

    with pytest.raises(BadSetting, match="method marker is a transaction"):
        west.strict.create(f"{name}:b", method="marker")
    with pytest.raises(BadSetting, match="no transactions"):
        west.strict.transactions.transfer(counter, counter + "2", 1, key="k")
    with pytest.raises(BadSetting, match="read it by `totals`"):
        west.snapshot([counter])
    with pytest.raises(Refused, match="Delete it in"):
        west.strict.delete(counter)
    clients[HOME].strict.create(f"{name}-home:a", method="atomic")


def test_what_reads_streams_or_indexes_refuses_and_what_lists_includes(
    stack: LocalStack, clients: dict[str, CountLedger], name: str
) -> None:
    """No evaluator and no board sees that table; an export and the names of all counters do."""
    client, counter = client_in(stack, HOME), f"{name}:a"

    with pytest.raises(BadSetting, match="compare each answer"):
        client.alerts.create("low", threshold=3, direction="falling", counter=counter)
    with pytest.raises(BadSetting, match="compare each answer"):
        client.alerts.create("low", threshold=3, direction="falling", prefix=f"{name}:")
    with pytest.raises(NotRanked, match="kind strict-regions"):
        client.rankings.switch_on(name)
    assert list(client.names(f"{name}:")) == [counter]
    (line,) = Exporter(client, name).over_regions()
    assert isinstance(line, CounterLine)
    assert (line.kind, line.method, line.value) == (Kind.STRICT_REGIONS, "occ", 30)
    assert clients[HOME].totals([counter])[counter].value == 30


def test_another_region_may_change_no_total(
    stack: LocalStack, clients: dict[str, CountLedger], name: str
) -> None:
    """The policy for strict counters allows the table over regions there, and no other."""
    west = clients["us-west-2"]
    mine = client_in(stack, "us-west-2", "StrictPolicyArn")

    west.strict.create(f"{name}:c", method="atomic", upper=1)
    for table, allowed in (("strict_table", True), ("counters_table", False)):
        put = Put(mine.connection.setting(table), {"counter": f"{name}:d", "part": "x"})
        if allowed:
            mine.connection.dynamo("none").put(put)
            continue
        with pytest.raises(AccessDenied):
            mine.connection.dynamo("none").put(put)
    clients[HOME].strict.create(f"{name}-s:a", method="atomic")
    stack.drain()
    with pytest.raises(WrongRegion):
        west.strict.change(f"{name}-s:a", 1)


def test_destroying_a_stack_names_its_table_and_keeps_it(stack: LocalStack) -> None:
    """DynamoDB deletes no single replica of it."""
    settings = Settings(stack_name=stack.name)
    connection = Connection.open(settings, session=stack.session(), endpoint_url=stack.url)
    reader = StackReader(cloudformation=connection.stacks(), name=stack.name, poll_s=0.05)
    destruction = destruction_of(connection, reader, None)
    plan = destruction.plan()
    assert plan is not None
    (strict,) = [one for one in plan.tables if one.resource == "Strict"]
    assert [one.strong for one in plan.tables] == [False, False, True]

    destruction.delete_tables(replace(plan, tables=(strict,)))

    connection.dynamo("standard").describe(strict.name)
