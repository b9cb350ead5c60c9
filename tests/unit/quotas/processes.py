"""Processes with quotas, over tables in memory."""

from datetime import UTC, datetime
from typing import Any

from countledger.ledger.limits import SECOND_MS
from countledger.producers.quotas.quota import Admitted, Denied, Ticket
from countledger.producers.quotas.quotas import Quotas
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient

TEAM = "llm:team-1"
MIDNIGHT_MS = int(datetime(2026, 11, 23, tzinfo=UTC).timestamp()) * SECOND_MS


def process(dynamo: MemoryClient, clock: ManualClock) -> Quotas:
    """Another process."""
    return Quotas(connection_on(dynamo, clock))


def process_like(quotas: Quotas) -> Quotas:
    """A process that has read nothing yet."""
    return Quotas(quotas.connection)


def admitted(outcome: Admitted | Denied) -> Admitted:
    assert isinstance(outcome, Admitted), outcome
    return outcome


def denied(outcome: Admitted | Denied) -> Denied:
    assert isinstance(outcome, Denied), outcome
    return outcome


def used(dynamo: MemoryClient) -> dict[str, Any]:
    """What each window has used."""
    windows = [item for item in dynamo.items("counters") if item["part"].startswith("w#")]
    return {item["part"].removeprefix("w#"): item["used"] for item in windows}


def ticket_of(quotas: Quotas, amount: int, key: str | None = None) -> Admitted:
    return admitted(quotas.reserve(TEAM, amount, key=key))


def ticket_in(outcome: Admitted) -> Ticket:
    """The ticket of a reservation."""
    assert outcome.ticket is not None
    return outcome.ticket
