"""A mapping or a stream made anew is survived: nothing counts twice, repair finds the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from countledger import CountLedger, Settings
from countledger.infra.local.stack import LocalStack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from countledger.infra.local.pump import Pump


@pytest.fixture(scope="module")
def own() -> Iterator[LocalStack]:
    """A stack of these tests alone, delivered to by hand."""
    with LocalStack(name="renewed", pumping=False) as running:
        yield running


def client_of(stack: LocalStack, stream_arn: str | None = None) -> CountLedger:
    """Someone who may do everything; the stream is the stack's, or another."""
    settings = Settings(stack_name=stack.name, ledger_stream_arn=stream_arn)
    return CountLedger(settings, session=stack.session(), endpoint_url=stack.url)


def test_a_mapping_made_anew_delivers_all_again_and_nothing_counts_twice(own: LocalStack) -> None:
    """It begins at the oldest record that the stream has."""
    client = client_of(own)
    for number in range(1, 21):
        client.record(f"again:{number % 3}", number)
    own.drain()
    before = client.totals([f"again:{number}" for number in range(3)])

    own.new_pump().drain()

    assert client.totals(before) == before
    assert sum(int(one.total) for one in before.values()) == sum(range(21))


def _renewed_stream(stack: LocalStack) -> str:
    """Switch the ledger's stream off, write an entry, and switch it on; its new ARN."""
    dynamodb = stack.client("dynamodb")
    table = stack.outputs["LedgerTableName"]
    dynamodb.update_table(TableName=table, StreamSpecification={"StreamEnabled": False})
    client_of(stack).record("renewed:a", 100)
    answer: Any = dynamodb.update_table(
        TableName=table,
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    arn: str = answer["TableDescription"]["LatestStreamArn"]
    return arn


def test_a_stream_made_anew_is_another_stream(own: LocalStack) -> None:
    """Old entries count once, new ones count, and what no stream showed is found by repair."""
    client = client_of(own)
    client.record("renewed:a", 1)
    own.drain()

    arn = _renewed_stream(own)
    client.record("renewed:a", 10)
    reading: Pump = own.new_pump(stream_arn=arn)
    reading.drain()

    assert arn != own.outputs["LedgerStreamArn"]
    assert client.total("renewed:a").total == 11
    assert client.exact("renewed:a").sum == 111
    renewed = client_of(own, arn)
    assert renewed.audit.verify("renewed:a").verdict == "drift"
    assert renewed.audit.repair("renewed:a").healthy
    own.new_pump(stream_arn=arn).drain()
    assert client.total("renewed:a").total == 111
    assert renewed.audit.verify("renewed:a").verdict == "exact"
