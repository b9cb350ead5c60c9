"""What a refusal of a strict counter costs, in write and read units."""

from datetime import UTC, datetime

import pytest

from countledger.producers.strict.outcome import BoundReached
from countledger.testing import MemoryStack

COUNTER = "s:hall"


@pytest.mark.parametrize(
    ("method", "bins", "key", "units"),
    [
        ("atomic", 1, None, (1, 0)),
        ("atomic", 2, None, (2, 4)),
        ("request_token", 1, "order-1", (2, 0)),
        ("request_token", 2, None, (4, 4)),
        ("request_token", 2, "order-1", (6, 4)),
        ("request_token", 5, "order-1", (8, 10)),
        ("marker", 1, "order-1", (4, 1)),
        ("marker", 2, "order-1", (8, 5)),
    ],
)
def test_a_refusal_costs_what_the_guide_says(
    method: str, bins: int, key: str | None, units: tuple[float, float]
) -> None:
    """Each bin that is tried, the read of all, and the look at what the key was used for."""
    ledger = MemoryStack(at=datetime(2030, 1, 1, tzinfo=UTC)).ledger
    ledger.strict.create(COUNTER, method=method, bins=bins, lower=0, opening=2)
    ledger.strict.show(COUNTER)
    meter = ledger.connection.meter
    before = meter.write_units, meter.read_units

    assert isinstance(ledger.strict.change(COUNTER, -3, key=key), BoundReached)

    assert (meter.write_units - before[0], meter.read_units - before[1]) == units
