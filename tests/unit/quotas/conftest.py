"""A quota of ten a day, at noon."""

from datetime import UTC, datetime, timedelta

import pytest

from countledger.infra.memory.tables import MemoryClock
from countledger.ledger.limits import SECOND_MS
from countledger.producers.quotas.quotas import Quotas
from countledger.testing import MemoryStack
from tests.unit.quotas.processes import MIDNIGHT_MS


@pytest.fixture
def stack() -> MemoryStack:
    """A stack whose time passes by waits only, from noon of the day before."""
    midnight = datetime.fromtimestamp(MIDNIGHT_MS / SECOND_MS, UTC)
    made = MemoryStack(at=midnight - timedelta(hours=12))
    made.hold_stream()
    return made


@pytest.fixture
def clock(stack: MemoryStack) -> MemoryClock:
    """Its clock."""
    return stack.clock


@pytest.fixture
def quotas(stack: MemoryStack) -> Quotas:
    """Ten a day."""
    stack.ledger.quotas.create("llm:", limit=10, per="day")
    return stack.ledger.quotas
