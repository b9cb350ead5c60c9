"""What merging an entry costs the compacting process, against a bare loop of the same transactions.

Processor time of this process alone: the engine is another one. The bare loop deletes as many
entries by transactions of a hundred, and does nothing else.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from countledger import CountLedger, Event
from countledger.compaction.compactor import Compactor
from countledger.compaction.report import Retire, RunOutcome
from countledger.ledger.limits import DAY_MS, TRANSACTION_ACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.infra.local.stack import LocalStack

ENTRIES = 3_000


class _TwoDaysLater:
    """The machine's clock, two days on: what is made now is old enough."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000 + 2 * DAY_MS

    def sleep_ms(self, duration_ms: float) -> None:
        """Return after that many milliseconds."""
        time.sleep(duration_ms / 1_000)


def microseconds_per_entry(work: Callable[[], object]) -> float:
    """Processor time of this process for each entry."""
    begun = time.process_time()
    work()
    return (time.process_time() - begun) / ENTRIES * 1e6


def rows(stack: LocalStack) -> list[tuple[str, float, float]]:
    """Name, microseconds per entry, and the ratio of the bare loop's to it."""
    ledger = stack.home.ledger()
    bare_us = microseconds_per_entry(_bare_loop(stack, ledger))
    found = [("boto3 transactions of 100 deletes", bare_us, 1.0)]
    for retire in Retire:
        counter = f"bench:{retire}-{uuid.uuid4().hex[:8]}"
        _fill(ledger, counter)
        ours_us = microseconds_per_entry(_compaction(ledger, counter, retire))
        found.append((f"compact, by {retire}", ours_us, bare_us / ours_us))
    return found


def _fill(ledger: CountLedger, counter: str) -> None:
    for outcome in ledger.record_many(Event(counter, 1) for _ in range(ENTRIES)):
        if isinstance(outcome, Exception):
            raise outcome


def _compaction(ledger: CountLedger, counter: str, retire: Retire) -> Callable[[], object]:
    compactor = Compactor(replace(ledger.connection, clock=_TwoDaysLater()), retire)

    def compact() -> None:
        report = compactor.compact(counter)
        if (report.outcome, report.merged) != (RunOutcome.MERGED, ENTRIES):
            raise AssertionError(report)

    return compact


def _bare_loop(stack: LocalStack, ledger: CountLedger) -> Callable[[], object]:
    """Delete known entries on the condition that they are what they were."""
    counter = f"bench:bare-{uuid.uuid4().hex[:8]}"
    _fill(ledger, counter)
    client, table = stack.client("dynamodb"), stack.outputs["LedgerTableName"]
    names = {"#c": "counter"}
    values = {":c": {"S": counter}, ":e": {"S": "e#"}}
    pages = client.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="#c = :c AND begins_with(entry, :e)",
        ExpressionAttributeNames=names,
        ExpressionAttributeValues=values,
    )
    items = [item for page in pages for item in page["Items"]]

    def delete(item: dict[str, Any]) -> dict[str, Any]:
        return {
            "Delete": {
                "TableName": table,
                "Key": {"counter": item["counter"], "entry": item["entry"]},
                "ConditionExpression": "attribute_not_exists(entry) OR delta = :d",
                "ExpressionAttributeValues": {":d": item["delta"]},
            }
        }

    def loop() -> None:
        for start in range(0, len(items), TRANSACTION_ACTIONS):
            batch = items[start : start + TRANSACTION_ACTIONS]
            client.transact_write_items(TransactItems=[delete(item) for item in batch])

    return loop
