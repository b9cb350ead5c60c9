"""A part of the names ends soon, however large and however slow the table is."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import pytest

from countledger.consumers.totals import names_page
from countledger.infra.memory.client import MemoryDynamo
from countledger.infra.memory.tables import COUNTERS
from countledger.ledger import keys
from countledger.ledger.connection import Connection
from countledger.ledger.operations import Page, Query, Scan
from countledger.testing import MemoryStack
from tests.unit.connections import connection_on

_START = datetime(2026, 1, 1, tzinfo=UTC)
_COUNT = 25_000
_PAGE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _SlowDynamo(MemoryDynamo):
    """A client of tables whose requests take a time, on the clock of their stack."""

    takes_ms: int

    def page(self, read: Query | Scan) -> Page:
        """One page, late."""
        self.clock.sleep_ms(self.takes_ms)
        return MemoryDynamo.page(self, read)


def _to(slow: _SlowDynamo) -> Connection:
    return connection_on(slow, slow.clock, counters_table=COUNTERS)


@pytest.fixture(scope="module")
def large() -> MemoryDynamo:
    """Many counters in memory, on a clock that moves with waits alone."""
    dynamo = MemoryStack(at=_START).ledger.connection.dynamo("standard")
    assert isinstance(dynamo, MemoryDynamo)
    table = dynamo.table(COUNTERS)
    for number in range(_COUNT):
        item = {**keys.total_key(f"likes:{number}"), "total": 1}
        table.store(table.key_of(item), item)
    return dynamo


@pytest.mark.parametrize(
    ("takes_ms", "requests"), [(0, 20), (99, 20), (500, 4), (1_999, 2), (60_000, 1)]
)
def test_a_part_ends_after_twenty_requests_or_two_seconds(
    large: MemoryDynamo, takes_ms: int, requests: int
) -> None:
    values: dict[str, Any] = {one.name: getattr(large, one.name) for one in fields(large)}
    slow = _SlowDynamo(**values, takes_ms=takes_ms)
    began_ms = slow.clock.now_ms()

    part = names_page(_to(slow), "views:", None, 10)

    assert part.items_read == requests * _PAGE
    assert part.after is not None
    assert slow.clock.now_ms() - began_ms == requests * takes_ms


def test_the_parts_of_a_slow_table_are_all_of_it(large: MemoryDynamo) -> None:
    values: dict[str, Any] = {one.name: getattr(large, one.name) for one in fields(large)}
    slow = _SlowDynamo(**values, takes_ms=1_500)
    part = names_page(_to(slow), "likes:12", None, 1_000)
    found = [*part.names]
    while part.after is not None:
        part = names_page(_to(slow), "likes:12", part.after, 1_000)
        found += part.names

    assert sorted(found) == sorted(f"likes:{n}" for n in range(_COUNT) if f"{n}".startswith("12"))
