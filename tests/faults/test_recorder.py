"""What an app hears, and what the ledger holds, when a write of an entry goes wrong."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, repeat

import pytest

from countledger.ledger import connection
from countledger.ledger.attributes import Item
from countledger.ledger.clock import to_datetime
from countledger.ledger.door import Door
from countledger.ledger.entry import Entry
from countledger.ledger.errors import (
    CountledgerError,
    IdempotencyKeyReused,
    KeyExpired,
    Unacknowledged,
    Unreachable,
)
from countledger.ledger.ids import IdempotencyKey, new_id
from countledger.ledger.limits import HORIZON_DEFAULT_MS
from countledger.ledger.namespace import Namespace
from countledger.producers import sender
from countledger.producers.event import Event
from countledger.producers.receipt import Receipt, Status
from countledger.producers.recorder import Recorder
from countledger.producers.sender import Sender
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.canary import Rule, judged
from tests.faults.injection import FAULTS, LOST_ANSWERS, Crash, Fault, Kind, faults, unprocessed
from tests.faults.numbers import expect_sum
from tests.faults.product import recorder_of, writer_of

Record = Callable[[Recorder, str], list[Receipt | CountledgerError]]


def _one(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    return [recorder.record(Event(counter, 7))]


def _one_keyed(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    return [recorder.record(Event(counter, 7, "key"))]


def _one_timed(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    key = IdempotencyKey("key", to_datetime(recorder.clock.now_ms()))
    return [recorder.record(Event(counter, 7, key))]


def _many(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    return list(recorder.record_many([Event(counter, 7)] * 30))


def _one_batch(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    return list(recorder.record_many([Event(counter, 7)] * 20))


def _many_keyed(recorder: Recorder, counter: str) -> list[Receipt | CountledgerError]:
    return list(recorder.record_many(Event(counter, 7, f"key {n}") for n in range(4)))


WAYS = pytest.mark.parametrize(
    ("record", "operation"),
    [
        (_one, "PutItem"),
        (_one_keyed, "PutItem"),
        (_one_timed, "PutItem"),
        (_many, "BatchWriteItem"),
        (_many_keyed, "PutItem"),
    ],
    ids=["plain", "keyed", "timed", "many", "many keyed"],
)


def _known(recorder: Recorder, counter: str) -> Recorder:
    """The recorder, which has met the counter's namespace already."""
    recorder.sender.namespaces.create(counter.partition(":")[0])
    return recorder


def _deltas(outcomes: list[Receipt | CountledgerError]) -> list[int]:
    return [7] * sum(isinstance(outcome, Receipt) for outcome in outcomes)


# ---- rules to switch off ----


def fresh_id_for_every_attempt(patch: pytest.MonkeyPatch) -> None:
    """The id is made when the entry is sent, not when it is made."""
    real = sender._stored_form

    def stored_form(entry: Entry, namespace: Namespace) -> Item:
        return real(replace(entry, id=new_id(entry.at_ms)), namespace)

    patch.setattr(sender, "_stored_form", stored_form)


def unprocessed_items_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What a batch leaves is taken for written."""
    real = Door.put_batch

    def put_batch(door: Door, table: str, items: Sequence[Item]) -> list[Item]:
        real(door, table, items)
        return []

    patch.setattr(Door, "put_batch", put_batch)


def payload_never_compared(patch: pytest.MonkeyPatch) -> None:
    """Whatever stands under the key is a duplicate."""

    def judge(entry: Entry, _stored: Item) -> Receipt:
        return Receipt(entry.counter, entry.id, Status.DUPLICATE)

    patch.setattr(sender, "judge_existing", judge)


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
    """The SDK sends again by itself, and asks nobody for the horizon."""
    patch.setitem(connection._RETRIES, "none", connection._RETRIES["standard"])


# ---- laws ----


@WAYS
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_p1_one_fault_is_got_over(
    store: Store, counter: str, record: Record, operation: str, fault: Fault
) -> None:
    """Whatever happens to the first attempt: `recorded`, two attempts, and each counts once."""
    recorder = _known(recorder_of(store), counter)

    with faults(writer_of(recorder), at=operation, plan=[fault]) as attempts:
        outcomes = record(recorder, counter)

    assert {o.status for o in outcomes if isinstance(o, Receipt)} == {Status.RECORDED}
    expected = {"_many": 3, "_many_keyed": 5}.get(record.__name__, 2)
    assert len(attempts) == expected
    assert len(_deltas(outcomes)) == len(outcomes)
    expect_sum(store, counter, _deltas(outcomes))


@WAYS
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_p1_faults_without_end_are_handed_back(
    store: Store, counter: str, record: Record, operation: str, fault: Fault
) -> None:
    """The entry comes back with the error; sent again later it counts once in any case."""
    recorder = _known(recorder_of(store), counter)

    with faults(writer_of(recorder), at=operation, plan=repeat(fault)) as attempts:
        try:
            outcomes = record(recorder, counter)
        except Unacknowledged as error:
            outcomes = [error]
    handed_back = [o for o in outcomes if isinstance(o, Unacknowledged)]

    assert len(handed_back) == len(outcomes)
    batches = {"_many": 2, "_many_keyed": 4}.get(record.__name__, 1)
    assert len(attempts) == batches * recorder.sender.backoff.attempts
    expect_sum(store, counter, [7] * len(handed_back) if fault.applied else [])
    statuses = {recorder_of(store).resend(error.entry).status for error in handed_back}
    assert statuses == {Status.DUPLICATE if fault.applied else Status.RECORDED}
    expect_sum(store, counter, [7] * len(handed_back))


@judged(fresh_id_for_every_attempt)
@pytest.mark.parametrize("fault", LOST_ANSWERS, ids=str)
def test_an_applied_batch_is_sent_again_as_it_was(
    rule: Rule, store: Store, counter: str, fault: Fault
) -> None:
    """A batch carries no condition: only the same bytes under the same ids make it harmless."""
    with rule.watched():
        recorder = _known(recorder_of(store), counter)
        with faults(writer_of(recorder), at="BatchWriteItem", plan=[fault]):
            outcomes = _many(recorder, counter)
        expect_sum(store, counter, _deltas(outcomes))


@judged(unprocessed_items_forgotten)
def test_p1_what_is_acknowledged_of_a_batch_is_written(
    rule: Rule, store: Store, counter: str
) -> None:
    """An entry that the service left unprocessed is acknowledged only once it was taken."""
    with rule.watched():
        recorder = _known(recorder_of(store), counter)
        with unprocessed(writer_of(recorder), [10, 3]):
            outcomes = _one_batch(recorder, counter)
        expect_sum(store, counter, _deltas(outcomes))


@judged(payload_never_compared)
def test_p2_a_retry_is_a_duplicate_and_another_delta_is_refused(
    rule: Rule, store: Store, counter: str
) -> None:
    """What is acknowledged is what the ledger holds under that key, one process or several."""
    with rule.watched():
        acknowledged: dict[str, int] = {}
        for key, delta in (("a", 1), ("b", 2), ("a", 1), ("a", 5), ("b", 2)):
            with suppress(IdempotencyKeyReused):
                recorder_of(store).record(Event(counter, delta, key))
                acknowledged[key] = delta
        expect_sum(store, counter, acknowledged.values())


@pytest.mark.parametrize("way", [_one_timed, _one_batch], ids=["single", "batch"])
@judged(horizon_asked_only_once, retries_of_the_sdk_left_on)
@pytest.mark.parametrize("fault", [f for f in FAULTS if not f.applied], ids=str)
def test_p2_a_process_frozen_beyond_the_horizon_sends_nothing_more(
    rule: Rule, store: Store, counter: str, way: Record, fault: Fault
) -> None:
    """It wakes between two attempts: no further one is made, and the caller hears `KeyExpired`."""
    with rule.watched():
        clock = HandClock()
        recorder = _known(recorder_of(store, clock), counter)

        def freeze() -> None:
            clock.move_ms(HORIZON_DEFAULT_MS + 1)

        with faults(writer_of(recorder), plan=[fault], then=freeze) as attempts:
            try:
                outcomes = way(recorder, counter)
            except KeyExpired as error:
                outcomes = [error]
        expect_sum(store, counter, [])
        assert len(attempts) == 1
        assert {type(outcome) for outcome in outcomes} == {KeyExpired}


def test_the_sdk_makes_one_attempt_of_every_write(store: Store, counter: str) -> None:
    """As many attempts as our own loop makes, each behind a wait of ours, each wait bounded."""
    clock = HandClock()
    recorder = _known(recorder_of(store, clock), counter)
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


@pytest.mark.parametrize("fault", LOST_ANSWERS, ids=str)
def test_after_a_lost_answer_the_own_entry_is_recorded_and_anothers_is_not(
    store: Store, counter: str, fault: Fault
) -> None:
    """Finding its very item means that it was applied; another process's says duplicate."""
    mine, other = _known(recorder_of(store), counter), recorder_of(store)
    with faults(writer_of(mine), plan=[fault]):
        assert mine.record(Event(counter, 1, "mine")).status is Status.RECORDED

    other.record(Event(counter, 1, "theirs"))
    mine.clock.sleep_ms(1)
    with faults(writer_of(mine), plan=[Fault(fault.kind)]):
        assert mine.record(Event(counter, 1, "theirs")).status is Status.DUPLICATE
    with (
        faults(writer_of(mine), plan=[Fault(fault.kind)]),
        pytest.raises(IdempotencyKeyReused),
    ):
        mine.record(Event(counter, 2, "theirs"))

    expect_sum(store, counter, [1, 1])


def test_where_nothing_answers_nothing_was_written(store: Store, counter: str) -> None:
    """An endpoint that cannot be reached is the operator's: said as such, after every attempt."""
    recorder = _known(recorder_of(store), counter)

    with (
        faults(writer_of(recorder), plan=repeat(Fault(Kind.UNREACHABLE))) as attempts,
        pytest.raises(Unreachable, match="check the network"),
    ):
        recorder.record(Event(counter, 1))

    assert len(attempts) == recorder.sender.backoff.attempts
    expect_sum(store, counter, [])


def test_an_endpoint_that_fails_after_a_lost_answer_leaves_it_open(
    store: Store, counter: str
) -> None:
    """The first attempt may have been applied, so the entry comes back, not `Unreachable`."""
    recorder = _known(recorder_of(store), counter)
    plan = chain([Fault(Kind.TIMEOUT, applied=True)], repeat(Fault(Kind.UNREACHABLE)))

    with faults(writer_of(recorder), plan=plan), pytest.raises(Unacknowledged) as raised:
        recorder.record(Event(counter, 7))

    expect_sum(store, counter, [7])
    assert recorder_of(store).resend(raised.value.entry).status is Status.DUPLICATE
    expect_sum(store, counter, [7])


def test_a_refused_batch_is_sent_one_by_one(store: Store, counter: str) -> None:
    """The service names no culprit; the good ones are recorded, each once."""
    recorder = _known(recorder_of(store), counter)

    with (
        faults(writer_of(recorder), at="BatchWriteItem", plan=[Fault(Kind.REJECT)]),
        faults(writer_of(recorder), at="PutItem", plan=[None, Fault(Kind.REJECT)]),
    ):
        outcomes = list(recorder.record_many([Event(counter, 7)] * 5))

    kinds = [type(outcome).__name__ for outcome in outcomes]
    assert kinds == ["Receipt", "RequestRejected", "Receipt", "Receipt", "Receipt"]
    expect_sum(store, counter, [7] * 4)


def test_a_crash_leaves_an_entry_whole_or_not_at_all(store: Store, counter: str) -> None:
    """The process dies before or after; its next life repeats the key, and it counts once."""
    for number, applied in enumerate((False, True)):
        recorder = _known(recorder_of(store), counter)
        event = Event(counter, 7, f"key {number}")
        crash = Fault(Kind.CRASH, applied)
        with faults(writer_of(recorder), plan=[crash]), pytest.raises(Crash):
            recorder.record(event)
        recorder_of(store).record(event)
    expect_sum(store, counter, [7, 7])
