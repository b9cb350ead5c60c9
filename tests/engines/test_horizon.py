"""P2: within the horizon a retry counts once, whatever was merged; beyond it none is sent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest

from countledger.compaction.report import RunOutcome
from countledger.ledger.clock import to_datetime
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import KeyExpired
from countledger.ledger.ids import IdempotencyKey, new_id
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.producers.event import Event, make_entry
from tests.engines.clock import HandClock
from tests.engines.compacting import compactor, fill
from tests.engines.store import Store

HORIZON_MS = 24 * HOUR_MS
# Horizon, replication bound, skew, life of a signed request.
LIMIT_MS = HORIZON_MS + 15 * MINUTE_MS + MINUTE_MS + 15 * MINUTE_MS


def _sum(store: Store, counter: str) -> object:
    return store.exact().read(counter).value


@contextmanager
def _frozen_before_signing(dynamo: DynamoClient, act: Callable[[], None]) -> Iterator[None]:
    """The process stands still between its check and the signature of its request."""
    waiting = [act]

    def once(**_: object) -> None:
        if waiting:
            waiting.pop()()

    events: Any = dynamo.client.meta.events
    events.register("before-sign", once)
    try:
        yield
    finally:
        events.unregister("before-sign", once)


@pytest.mark.parametrize("kind", ["key with its time", "bare key"])
def test_p2_a_retry_within_the_horizon_counts_once(store: Store, counter: str, kind: str) -> None:
    """However many compactions ran in between: the entry is too young for them."""
    made, clock = HandClock(), HandClock()
    at = to_datetime(made.now_ms())
    key = "order 7" if kind == "bare key" else IdempotencyKey("order 7", at)
    store.recorder(clock=made).record(Event(counter, 5, key))
    fill(store, counter, 3)
    clock.at_ms = made.now_ms()
    for _ in range(4):
        clock.move_ms(HORIZON_MS // 4)
        assert compactor(store, clock=clock).compact(counter).outcome is RunOutcome.NOTHING

        again = store.recorder(clock=clock).record(Event(counter, 5, key))

        assert again.status == "duplicate"
    assert _sum(store, counter) == 11


def test_p2_an_entry_is_merged_at_the_limit_and_not_before(store: Store, counter: str) -> None:
    made = HandClock()
    store.recorder(clock=made).record(Event(counter, 5))
    clock = HandClock(made.now_ms() + LIMIT_MS)

    assert compactor(store, clock=clock).compact(counter).outcome is RunOutcome.NOTHING
    clock.move_ms(1)
    assert compactor(store, clock=clock).compact(counter).merged == 1


def test_p2_a_process_frozen_between_check_and_resend_is_refused(
    store: Store, counter: str
) -> None:
    """It wakes when its entry is merged; the last look is behind the signature."""
    made = HandClock()
    recorder = store.recorder(clock=made)
    event = Event(counter, 5)
    entry = make_entry(event, now_ms=made.now_ms(), origin="here", new_id=new_id)
    recorder.resend(entry)

    def freeze() -> None:
        made.move_ms(LIMIT_MS + 1)
        another = Thread(target=compactor(store, clock=made).compact, args=(counter,))
        another.start()
        another.join()

    with _frozen_before_signing(recorder.sender.dynamo, freeze), pytest.raises(KeyExpired):
        recorder.resend(entry)

    assert store.entry_items(counter) == []
    assert _sum(store, counter) == 5
