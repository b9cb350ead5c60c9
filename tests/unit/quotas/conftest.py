"""A quota of ten a day, at noon."""

import pytest

from countledger.ledger.limits import HOUR_MS
from countledger.producers.quotas.quotas import Quotas
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient
from tests.unit.quotas.processes import MIDNIGHT_MS, process


@pytest.fixture
def clock() -> ManualClock:
    """Noon of the day before."""
    return ManualClock(MIDNIGHT_MS - 12 * HOUR_MS)


@pytest.fixture
def quotas(dynamo: MemoryClient, clock: ManualClock) -> Quotas:
    """Ten a day."""
    made = process(dynamo, clock)
    made.create("llm:", limit=10, per="day")
    return made
