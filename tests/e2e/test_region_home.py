"""Another home region, and the entries of a lost one, by the command line on local stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from countledger import CountLedger, Settings
from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    assert f"HomeRegion={EU}" in done.err
    again = command("region", "promote", EU, "--json").json
    assert again == done.json
    report = command("compact", "p:a", "--json")
    assert f"the home region is {EU} (epoch 1)" in report.out
    assert client.exact("p:a").sum == 5
