"""What tests of several folders begin with."""

import pytest

from tests.unit.ledger.memory import MemoryClient


@pytest.fixture
def dynamo() -> MemoryClient:
    """Empty tables."""
    return MemoryClient()
