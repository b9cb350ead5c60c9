"""The first use of a namespace goes wrong: the producer says so, and nothing counts twice."""

from itertools import repeat

import pytest

from countledger.ledger.errors import CountledgerError
from countledger.ledger.limits import HORIZON_DEFAULT_MS
from countledger.ledger.namespace import Namespace
from countledger.producers.event import Event
from tests.engines.store import Store
from tests.faults.injection import FAULTS, Crash, Fault, Kind, before_call, faults
from tests.faults.numbers import expect_sum
from tests.faults.product import recorder_of

OPERATIONS = pytest.mark.parametrize("operation", ["GetItem", "PutItem"])
FAULT = pytest.mark.parametrize("fault", FAULTS, ids=str)
SDK_ATTEMPTS = 4


@OPERATIONS
@FAULT
def test_p1_the_first_use_gets_over_a_fault(
    store: Store, counter: str, operation: str, fault: Fault
) -> None:
    """The SDK sends again; a settings item that is there already is the one that counts."""
    recorder = recorder_of(store)

    with faults(recorder.sender.namespaces.dynamo.client, at=operation, plan=[fault]) as attempts:
        assert recorder.record(Event(counter, 7)).status == "recorded"

    assert len(attempts) == 2
    name, _, _ = counter.partition(":")
    assert store.namespaces().get(name) == Namespace(name, horizon_ms=HORIZON_DEFAULT_MS)
    expect_sum(store, counter, [7])


@OPERATIONS
@FAULT
def test_p1_a_first_use_that_fails_writes_no_entry(
    store: Store, counter: str, operation: str, fault: Fault
) -> None:
    """Without its namespace an entry has no place; the next call makes up for it."""
    recorder = recorder_of(store)
    client = recorder.sender.namespaces.dynamo.client

    with (
        faults(client, at=operation, plan=repeat(fault, SDK_ATTEMPTS)) as attempts,
        pytest.raises(CountledgerError),
    ):
        recorder.record(Event(counter, 7, "key"))

    assert len(attempts) == SDK_ATTEMPTS
    expect_sum(store, counter, [])
    assert recorder.record(Event(counter, 7, "key")).status == "recorded"
    expect_sum(store, counter, [7])


@FAULT
def test_p1_a_first_use_that_fails_is_an_outcome_of_many(
    store: Store, counter: str, fault: Fault
) -> None:
    """Of many events each says for itself whether it was recorded."""
    recorder = recorder_of(store)
    client = recorder.sender.namespaces.dynamo.client

    with faults(client, at="GetItem", plan=repeat(fault, SDK_ATTEMPTS)):
        failed, recorded = recorder.record_many([Event(counter, 1), Event(counter, 7)])

    assert isinstance(failed, CountledgerError)
    assert getattr(recorded, "status", None) == "recorded"
    expect_sum(store, counter, [7])


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.applied], ids=str)
def test_a_lost_answer_and_another_maker_meet(store: Store, counter: str, fault: Fault) -> None:
    """While the answer is lost somebody else makes it: both use what lies in the table."""
    recorder = recorder_of(store)
    name, _, _ = counter.partition(":")
    client = recorder.sender.namespaces.dynamo.client

    def somebody_else() -> None:
        store.namespaces().create(name, spread=256)

    with before_call(client, "PutItem", somebody_else), faults(client, at="PutItem", plan=[fault]):
        recorder.record(Event(counter, 7, "key"))

    assert store.namespaces().get(name).spread == 256
    assert recorder_of(store).record(Event(counter, 7, "key")).status == "duplicate"
    expect_sum(store, counter, [7])


@pytest.mark.parametrize("applied", [False, True])
def test_a_crash_at_the_first_use_leaves_a_namespace_or_none(
    store: Store, counter: str, *, applied: bool
) -> None:
    """The next process finds it, or makes it."""
    recorder = recorder_of(store)
    client = recorder.sender.namespaces.dynamo.client
    crash = Fault(Kind.CRASH, applied)

    with faults(client, at="PutItem", plan=[crash]), pytest.raises(Crash):
        recorder.record(Event(counter, 7, "key"))

    expect_sum(store, counter, [])
    recorder_of(store).record(Event(counter, 7, "key"))
    expect_sum(store, counter, [7])
