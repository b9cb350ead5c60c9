"""Delivery and expiry of a stack in memory, part by part."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from countledger.consumers.record import ShardName
from countledger.infra.memory.functions import DeliveryFailed, StreamDelivery, passes_ledger
from countledger.infra.memory.tables import COUNTERS, LEDGER, MemoryTables
from countledger.ledger.operations import Put
from countledger.testing import MemoryStack


def test_a_batch_is_delivered_again_from_the_record_that_failed() -> None:
    memory, seen, fails = MemoryTables(), list[list[str]](), [True]
    for number in range(3):
        memory.table(LEDGER).write(Put(LEDGER, {"counter": "a:b", "entry": f"e#{number}"}))

    def apply(records: Sequence[Mapping[str, Any]], _shard: ShardName) -> int | None:
        numbers = [str(one["dynamodb"]["SequenceNumber"]) for one in records]
        seen.append([one["dynamodb"]["Keys"]["entry"]["S"] for one in records])
        return int(numbers[1]) if fails.pop() else None

    delivery = StreamDelivery(memory.ledger_stream, passes_ledger, apply)
    with pytest.raises(DeliveryFailed, match="delivered again"):
        delivery.step()
    fails.append(False)

    assert delivery.step()
    assert not delivery.step()
    assert seen == [["e#0", "e#1", "e#2"], ["e#1", "e#2"]]


def test_an_item_is_deleted_when_its_time_to_live_is_over() -> None:
    stack = MemoryStack(at=datetime(2026, 3, 1, tzinfo=UTC))
    strict = stack.ledger.strict
    strict.create("seats:hall", lower=0, opening=2, method="marker")
    strict.hold("seats:hall", 1, key="basket", expires_in=timedelta(minutes=10))
    stack.advance(hours=1)

    def dated() -> list[Any]:
        return [one["expires_at"] for one in stack.items(COUNTERS) if "expires_at" in one]

    assert dated() != []
    stack.advance(days=60)
    assert dated() == []
