"""Entries that were made long ago: a test cannot wait until one is old enough to be merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from countledger.ledger.clock import SystemClock
from countledger.ledger.keys import total_key
from countledger.producers.event import Event
from countledger.producers.recorder import Recorder
from countledger.producers.sender import Sender

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger import CountLedger
    from countledger.ledger.attributes import Item


@dataclass(frozen=True)
class PastClock:
    """The machine's clock, so far behind.

    Attributes:
        behind_ms: how far.
    """

    behind_ms: int

    def now_ms(self) -> int:
        """Then."""
        return SystemClock().now_ms() - self.behind_ms

    def sleep_ms(self, duration_ms: float) -> None:
        """Wait, now."""
        SystemClock().sleep_ms(duration_ms)


def record_aged(client: CountLedger, counter: str, deltas: Iterable[int], age_ms: int) -> None:
    """Record events as a process did that ran so long ago."""
    clock = PastClock(age_ms)
    connection = client.connection
    sender = Sender(
        connection.dynamo("none"),
        connection.setting("ledger_table"),
        client.namespaces,
        clock=clock,
    )
    recorder = Recorder(sender, connection.region, clock)
    for outcome in recorder.record_many(Event(counter, delta) for delta in deltas):
        assert not isinstance(outcome, Exception), outcome


def total_item(client: CountLedger, counter: str) -> Item:
    """What is stored as a counter's total."""
    table = client.connection.setting("counters_table")
    return (
        client.connection.dynamo("standard").get(table, total_key(counter), consistent=True) or {}
    )


def age_mark(client: CountLedger, counter: str) -> None:
    """Let a counter that is in the due index be due now: as if its time had passed."""
    client.connection.dynamo("standard").client.update_item(
        TableName=client.connection.setting("counters_table"),
        Key={"counter": {"S": counter}, "part": {"S": "total"}},
        UpdateExpression="SET due_at = :now",
        ConditionExpression="attribute_exists(due_at)",
        ExpressionAttributeValues={":now": {"N": str(SystemClock().now_ms() - 1)}},
    )
