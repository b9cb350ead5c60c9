"""Where a stack in memory differs from AWS: each difference has a name in the guide, and a test."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import current_thread

import pytest

from countledger import Event
from countledger.infra.memory.faults import GUIDE
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.ledger.operations import Compare, Query, Scan
from countledger.testing import MemoryStack

_TEXT = (Path(__file__).resolve().parents[3] / GUIDE).read_text()
_COUNTER = "likes:post-1"


def _reads_are_consistent(stack: MemoryStack) -> None:
    stack.ledger.record(_COUNTER, 1)

    assert stack.ledger.totals([_COUNTER])[_COUNTER].value == 1


def _indexes_are_current(stack: MemoryStack) -> None:
    stack.ledger.namespaces.create("views")

    assert [one.name for one in stack.ledger.namespaces.list()] == ["views"]


def _requests_take_turns(stack: MemoryStack) -> None:
    """Two hundred changes of one counter by several threads, and no conflict to wait for."""
    stack.ledger.record(_COUNTER, 1)
    before_ms = stack.clock.now_ms()

    stack.ledger.record_many([Event(_COUNTER, 1)] * 200)

    assert stack.clock.now_ms() == before_ms


def _pages_by_number(stack: MemoryStack) -> None:
    stack.ledger.record_many(Event(_COUNTER, 1, note={"text": "x" * 900}) for _ in range(1_100))
    connection = stack.ledger.connection
    dynamo, table = connection.dynamo("none"), connection.setting("ledger_table")

    page = dynamo.page(Query(table, Compare("counter", "=", _COUNTER)))
    assert (len(page.items), page.after is not None) == (1_000, True)
    assert len(dynamo.page(Scan(table)).items) == 1_000


def _one_shard(stack: MemoryStack) -> None:
    stack.ledger.record(_COUNTER, 1)
    stack.advance(days=2)
    stack.ledger.record(_COUNTER, 1)

    (shard,) = stack.ledger.freshness().shards
    assert shard.shard.endswith("00000000")


def _delivery_at_once(stack: MemoryStack) -> None:
    threads = list[str]()
    memory = stack._memory
    memory.table("memory-counters").watchers.append(
        lambda change: threads.append(current_thread().name) if change.key[1] == "total" else None
    )

    stack.ledger.record(_COUNTER, 1)

    assert len(threads) == 1
    assert stack.ledger.total(_COUNTER).value == 1


def _targets_accept(stack: MemoryStack) -> None:
    topic = "arn:aws:sns:us-east-1:000000000000:nobody-made-it"
    stack.ledger.alerts.create(
        "many", counter=_COUNTER, threshold=1, direction="rising", to=topic, now=True
    )

    stack.ledger.record(_COUNTER, 1)

    assert [one.target for one in stack.notifications] == [topic]
    assert list(stack.ledger.alerts.resend()) == []


def _nothing_scheduled(stack: MemoryStack) -> None:
    stack.ledger.record_many([Event(_COUNTER, 1)] * 20)
    stack.ledger.schedules.create("likes", min_entries=2, every_ms=HOUR_MS)

    stack.advance(days=3)

    assert stack.ledger.head(_COUNTER).entries == 0
    stack.compact(_COUNTER)
    assert stack.ledger.head(_COUNTER).entries == 20


def _expiry_at_advance(stack: MemoryStack) -> None:
    strict = stack.ledger.strict
    strict.create("seats:hall", lower=0, opening=2, method="marker")
    strict.hold("seats:hall", 2, key="basket", expires_in=timedelta(minutes=10))

    stack.clock.sleep_ms(15 * MINUTE_MS)
    assert strict.show("seats:hall").available == 0
    stack.advance()
    assert strict.show("seats:hall").available == 2


_DEVIATIONS: dict[str, Callable[[MemoryStack], None]] = {
    "reads-are-consistent": _reads_are_consistent,
    "indexes-are-current": _indexes_are_current,
    "requests-take-turns": _requests_take_turns,
    "pages-by-number": _pages_by_number,
    "one-shard": _one_shard,
    "delivery-at-once": _delivery_at_once,
    "targets-accept": _targets_accept,
    "nothing-scheduled": _nothing_scheduled,
    "expiry-at-advance": _expiry_at_advance,
}


@pytest.mark.parametrize("name", _DEVIATIONS)
def test_a_difference_from_aws_is_as_the_guide_says(name: str) -> None:
    stack = MemoryStack(at=datetime(2026, 3, 1, 12, tzinfo=UTC))

    _DEVIATIONS[name](stack)

    assert stack.failures == []


def test_the_guide_lists_every_difference() -> None:
    _, _, table = _TEXT.partition("## What differs from AWS")

    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE) == list(_DEVIATIONS)
