"""Many events: one outcome for each, in order, and every one of them counts once."""

from datetime import timedelta

import pytest

from countledger.ledger.clock import to_datetime
from countledger.ledger.errors import IdempotencyKeyReused, KeyExpired, Unacknowledged
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.keys import total_key
from countledger.ledger.operations import Put
from countledger.producers.event import Event, Receipt
from tests.engines.clock import HandClock
from tests.engines.differences import Difference
from tests.engines.store import Store
from tests.faults.leftovers import unprocessed


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
    assert store.exact().read(counter).sum == 100 + sum(range(1, 61))
    assert store.exact().read(f"{counter}/other").sum == 1000


def test_what_a_batch_leaves_unprocessed_is_sent_again(store: Store, counter: str) -> None:
    """Only the leftovers go again, after a wait, and every entry counts once."""
    clock = HandClock()
    recorder = store.recorder(clock=clock)
    recorder.record(Event(counter, 1000))
    events = [Event(counter, n) for n in range(1, 26)]

    with unprocessed(recorder.sender.dynamo.client, [10, 9, 2]) as asked:
        outcomes = list(recorder.record_many(events))

    assert asked == [25, 10, 9, 2]
    assert len(clock.slept_ms) == 3
    assert {o.status for o in outcomes if isinstance(o, Receipt)} == {"recorded"}
    exact = store.exact().read(counter)
    assert (exact.sum, exact.entries) == (1000 + sum(range(1, 26)), 26)


def test_what_stays_unprocessed_is_not_acknowledged(store: Store, counter: str) -> None:
    """After the last attempt its entry is handed back; sent again it counts once."""
    recorder = store.recorder()
    recorder.record(Event(counter, 1000))
    attempts = recorder.sender.backoff.attempts
    events = [Event(counter, n) for n in range(attempts + 1)[1:]] + [Event(counter, 500)]

    with unprocessed(recorder.sender.dynamo.client, range(attempts, 0, -1)) as asked:
        *taken, left = recorder.record_many(events)

    assert asked == list(range(attempts + 1, 1, -1))
    assert {o.status for o in taken if isinstance(o, Receipt)} == {"recorded"}
    assert isinstance(left, Unacknowledged)
    before = 1000 + sum(range(attempts + 1))
    assert store.exact().read(counter).sum == before
    assert recorder.resend(left.entry).status == "recorded"
    assert recorder.resend(left.entry).status == "duplicate"
    assert store.exact().read(counter).sum == before + 500


@pytest.mark.parametrize("count", [1, 100, 101, 230])
def test_many_keys_are_read_in_one_go(store: Store, counter: str, count: int) -> None:
    """`get_many` finds what is there, whatever the service's limit of one call."""
    dynamo = store.dynamo()
    wanted = [total_key(f"{counter}/{n}") for n in range(count)]
    for key in wanted[::50]:
        dynamo.put(Put(store.counters, {**key, "total": 1}))

    found = dynamo.get_many(store.counters, wanted)

    assert sorted(i["counter"] for i in found) == sorted(key["counter"] for key in wanted[::50])


def test_units_of_a_batch_are_reported(store: Store, counter: str) -> None:
    """Five entries, five units; the exact costs are held by the tests of costs."""
    recorder = store.recorder()
    list(recorder.record_many(Event(counter, 1) for _ in range(5)))

    invented = store.engine.has(Difference.UNITS_ARE_INVENTED)
    assert recorder.sender.dynamo.meter.write_units == (1 if invented else 5)
