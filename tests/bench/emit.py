"""What an entry costs the emitting process, against bare boto3 calls on the same engine.

Processor time of this process alone: the engine is another one.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from countledger import CountLedger, Event, Settings
from countledger.ledger.limits import BATCH_WRITE_ITEMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.infra.local_stack import LocalStack

SINGLE = 500
MANY = 5_000


def microseconds_per_entry(entries: int, work: Callable[[], object]) -> float:
    """Processor time of this process for each entry."""
    begun = time.process_time()
    work()
    return (time.process_time() - begun) / entries * 1e6


def bare_item() -> dict[str, Any]:
    """What somebody writes who keeps a ledger by hand."""
    return {
        "counter": {"S": "bench:bare"},
        "entry": {"S": f"e#{uuid.uuid4()}"},
        "delta": {"N": "1"},
        "at": {"N": str(time.time_ns() // 1_000_000)},
        "origin": {"S": "us-east-1"},
    }


def rows(stack: LocalStack) -> list[tuple[str, float, float]]:
    """Name, microseconds per entry, and the ratio against the bare loop of the same kind."""
    bare = stack.client("dynamodb")
    table = stack.outputs["LedgerTableName"]
    settings = Settings(stack_name=stack.name)
    ledger = CountLedger(settings, session=stack.session(), endpoint_url=stack.url)
    ledger.record("bench:warm", 1)

    def put_loop() -> None:
        for _ in range(SINGLE):
            bare.put_item(TableName=table, Item=bare_item())

    def record_loop() -> None:
        for _ in range(SINGLE):
            ledger.record("bench:one", 1)

    def batch_loop() -> None:
        for _ in range(MANY // BATCH_WRITE_ITEMS):
            puts = [{"PutRequest": {"Item": bare_item()}} for _ in range(BATCH_WRITE_ITEMS)]
            bare.batch_write_item(RequestItems={table: puts})

    def record_many(key: str | None) -> None:
        events = (
            Event("bench:many", 1, key=key and f"{key}-{n}")
            for n in range(MANY if not key else SINGLE)
        )
        for outcome in ledger.record_many(events):
            if isinstance(outcome, Exception):
                raise outcome

    put_us = microseconds_per_entry(SINGLE, put_loop)
    batch_us = microseconds_per_entry(MANY, batch_loop)
    one_us = microseconds_per_entry(SINGLE, record_loop)
    many_us = microseconds_per_entry(MANY, lambda: record_many(None))
    keyed_us = microseconds_per_entry(SINGLE, lambda: record_many("key"))
    return [
        ("boto3 put_item, one by one", put_us, 1.0),
        ("record", one_us, put_us / one_us),
        ("record_many, keyed", keyed_us, put_us / keyed_us),
        ("boto3 batch_write_item of 25", batch_us, put_us / batch_us),
        ("record_many", many_us, put_us / many_us),
    ]
