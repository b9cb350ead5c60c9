"""Many events: one outcome for each, in order, and every one of them counts once."""

from datetime import timedelta

import pytest

from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import IdempotencyKeyReused, KeyExpired
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.keys import total_key
from countledger.ledger.operations import Put
from countledger.producers.event import Event, Receipt
from tests.engines.clock import HandClock
from tests.engines.store import Store


def test_outcomes_come_in_the_order_of_the_events(store: Store, counter: str) -> None:
    """Plain, keyed, repeated and refused ones among each other: each has its own outcome."""
    clock = HandClock()
    long_ago = IdempotencyKey("old", to_datetime(clock.now_ms()) - timedelta(days=2))
    recorder = store.recorder(clock=clock)
    recorder.record(Event(counter, 100, "taken"))
    events = [
        *(Event(counter, n) for n in range(1, 31)),
        Event(counter, 100, "taken"),
        Event(counter, 7, "taken"),
        Event(counter, 5, long_ago),
        Event(f"{counter}/other", 1000, "fresh"),
        *(Event(counter, n) for n in range(31, 61)),
    ]

    outcomes = list(recorder.record_many(events))

    assert len(outcomes) == len(events)
    kinds = [str(o.status) if isinstance(o, Receipt) else type(o).__name__ for o in outcomes]
    plain = ["recorded"] * 30
    odd = ["duplicate", "IdempotencyKeyReused", "KeyExpired", "recorded"]
    assert kinds == [*plain, *odd, *plain]
    assert isinstance(outcomes[31], IdempotencyKeyReused)
    assert isinstance(outcomes[32], KeyExpired)
    receipts = [o for o in outcomes if isinstance(o, Receipt)]
    assert [r.counter for r in receipts].index(f"{counter}/other") == 31
    assert store.exact().read(counter).value == 100 + sum(range(1, 61))
    assert store.exact().read(f"{counter}/other").value == 1000


@pytest.mark.parametrize("count", [1, 100, 101, 230])
def test_many_keys_are_read_in_one_go(store: Store, counter: str, count: int) -> None:
    """`get_many` finds what is there, whatever the service's limit of one call."""
    dynamo = store.dynamo()
    wanted = [total_key(f"{counter}/{n}") for n in range(count)]
    for key in wanted[::50]:
        dynamo.put(Put(store.counters, {**key, "total": 1}))

    found = dynamo.get_many(store.counters, wanted)

    assert sorted(i["counter"] for i in found) == sorted(key["counter"] for key in wanted[::50])
