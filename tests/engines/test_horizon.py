"""P2: within the horizon a retry counts once, whatever was merged; beyond it none is sent."""

import pytest

from countledger.compaction.report import RunOutcome
from countledger.ledger.clock import to_datetime
from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import HOUR_MS, MINUTE_MS
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.compacting import compactor, fill
from tests.engines.store import Store

HORIZON_MS = 24 * HOUR_MS
# Horizon, replication bound, skew, life of a signed request.
LIMIT_MS = HORIZON_MS + 15 * MINUTE_MS + MINUTE_MS + 15 * MINUTE_MS


def _sum(store: Store, counter: str) -> object:
    return store.exact().read(counter).value


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
