"""Processes with quotas, over a stack in memory."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from countledger.infra.memory.tables import COUNTERS, MemoryClock
from countledger.ledger.limits import SECOND_MS
from countledger.producers.quotas.quota import Admitted, Denied, Ticket
from countledger.producers.quotas.quotas import Quotas
from countledger.testing import MemoryStack

TEAM = "llm:team-1"
MIDNIGHT_MS = int(datetime(2026, 11, 23, tzinfo=UTC).timestamp()) * SECOND_MS


def process_like(quotas: Quotas) -> Quotas:
    """A process that has read nothing yet."""
    return Quotas(replace(quotas.connection, _shared={}))


def move_to(clock: MemoryClock, at_ms: int) -> None:
    """Let the time pass until then."""
    clock.sleep_ms(at_ms - clock.now_ms())


def admitted(outcome: Admitted | Denied) -> Admitted:
    assert isinstance(outcome, Admitted), outcome
    return outcome


def denied(outcome: Admitted | Denied) -> Denied:
    assert isinstance(outcome, Denied), outcome
    return outcome


def used(stack: MemoryStack) -> dict[str, Any]:
    """What each window has used, by its name: of all counters together."""
    found: Counter[str] = Counter()
    for item in stack.items(COUNTERS):
        if item["part"].startswith("w#"):
            found[item["counter"].split("#")[2]] += item["used"]
    return dict(found)


def ticket_of(quotas: Quotas, amount: int, key: str | None = None) -> Admitted:
    return admitted(quotas.reserve(TEAM, amount, key=key))


def ticket_in(outcome: Admitted) -> Ticket:
    """The ticket of a reservation."""
    assert outcome.ticket is not None
    return outcome.ticket
