"""Nobody sends an entry beyond its horizon: the age is asked before every attempt, by us alone."""

from contextlib import nullcontext
from itertools import repeat

import pytest

from countledger.ledger import attempts, connection
from countledger.ledger.entry import Entry
from countledger.ledger.errors import KeyExpired, Unacknowledged
from countledger.ledger.limits import HORIZON_DEFAULT_MS
from countledger.ledger.namespace import Namespace
from countledger.producers.event import Event
from countledger.producers.sender import Sender
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.canary import Rule, judged
from tests.faults.injection import Fault, Kind, faults
from tests.faults.recording import (
    Record,
    expect_sum,
    known,
    one_batch,
    one_timed,
    recorder_of,
    writer_of,
)

# ---- rules to switch off ----


def horizon_asked_only_once(patch: pytest.MonkeyPatch) -> None:
    """The age is checked before the first attempt of an entry, not before every one."""
    real = Sender._check_age
    asked: set[str] = set()

    def check_age(self: Sender, entry: Entry, namespace: Namespace) -> None:
        if entry.id not in asked:
            asked.add(entry.id)
            real(self, entry, namespace)

    patch.setattr(Sender, "_check_age", check_age)


def retries_of_the_sdk_left_on(patch: pytest.MonkeyPatch) -> None:
    """The SDK sends again by itself, and the last look behind the signature is left out.

    Each rule alone holds: the second is there for what freezes behind the first.
    """
    patch.setattr(attempts, "guarded", lambda _look: nullcontext())
    patch.setitem(connection._ATTEMPTS, "none", connection._ATTEMPTS["standard"])


# ---- laws ----


@pytest.mark.parametrize("way", [one_timed, one_batch], ids=["single", "batch"])
@judged(horizon_asked_only_once, retries_of_the_sdk_left_on)
@pytest.mark.parametrize("fault", [Fault(Kind.TIMEOUT), Fault(Kind.THROTTLE)], ids=str)
def test_p2_a_process_frozen_beyond_the_horizon_sends_nothing_more(
    rule: Rule, store: Store, counter: str, way: Record, fault: Fault
) -> None:
    """It wakes between two attempts: no further one is made.

    The caller hears `KeyExpired`, or `Unacknowledged` if the attempt may have been applied.
    """
    refused = Unacknowledged if fault.kind is Kind.TIMEOUT else KeyExpired
    with rule.watched():
        clock = HandClock()
        recorder = known(recorder_of(store, clock), counter)

        def freeze() -> None:
            clock.move_ms(HORIZON_DEFAULT_MS + 1)

        with faults(writer_of(recorder), plan=[fault], then=freeze) as attempts:
            try:
                outcomes = way(recorder, counter)
            except refused as error:
                outcomes = [error]
        expect_sum(store, counter, [])
        # A look for the entry beside it, if its call alone may have written it, and at its head.
        looks = 2 * (refused is Unacknowledged and way is one_timed)
        assert len(attempts) == 1 + looks
        assert {type(outcome) for outcome in outcomes} == {refused}


def test_the_sdk_makes_one_attempt_of_every_write(store: Store, counter: str) -> None:
    """As many attempts as our own loop makes, each behind a wait of ours, each wait bounded."""
    clock = HandClock()
    recorder = known(recorder_of(store, clock), counter)
    backoff = recorder.sender.backoff

    with (
        faults(writer_of(recorder), plan=repeat(Fault(Kind.SERVER_ERROR))) as attempts,
        pytest.raises(Unacknowledged),
    ):
        recorder.record(Event(counter, 1))

    assert len(attempts) == backoff.attempts
    assert len(clock.slept_ms) == backoff.attempts - 1
    ceilings = [min(backoff.cap_ms, backoff.base_ms * 2**n) for n in range(backoff.attempts)]
    assert all(0 <= s <= c for s, c in zip(clock.slept_ms, ceilings, strict=False))
    assert sum(clock.slept_ms) <= 8 * backoff.cap_ms
