"""What an app hears, and what the ledger holds, when a write of an entry goes wrong."""

from dataclasses import replace
from itertools import repeat

import pytest

from countledger.ledger.errors import CountledgerError, IdempotencyKeyReused
from countledger.producers.event import Event, Status
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.injection import GARBLED, Fault, Kind, faults
from tests.faults.leftovers import unprocessed
from tests.faults.play import ON_THE_ENGINE
from tests.faults.recording import deltas, expect_sum, known, one_batch, recorder_of, writer_of


@ON_THE_ENGINE
def test_p1_what_is_left_of_a_table_of_another_account_is_sent_again(
    store: Store, counter: str
) -> None:
    """Its ARN is given for its name; the service may answer under the name."""
    arn = store.client().describe_table(TableName=store.ledger)["Table"]["TableArn"]
    known(recorder_of(store), counter)
    settings = replace(store.connection.settings, ledger_table=arn)
    recorder = recorder_of(replace(store, connection=replace(store.connection, settings=settings)))

    with unprocessed(writer_of(recorder), [10, 3]) as asked:
        outcomes = one_batch(recorder, counter)

    assert asked[1:] == [10, 3]
    expect_sum(store, counter, deltas(outcomes))


@pytest.mark.parametrize("fault", [Fault(Kind.TIMEOUT, applied=True), GARBLED[1]], ids=str)
def test_after_a_lost_answer_the_own_entry_is_recorded_and_anothers_is_not(
    store: Store, counter: str, fault: Fault
) -> None:
    """Finding its very item means that it was applied; another process's says duplicate."""
    mine = known(recorder_of(store), counter)
    # Made at another time, so that its entry is not the very same to the last byte.
    other = recorder_of(store, HandClock(mine.connection.clock.now_ms() - 10_000))
    with faults(writer_of(mine), plan=[fault]):
        assert mine.record(Event(counter, 1, "mine")).status is Status.RECORDED

    other.record(Event(counter, 1, "theirs"))
    with faults(writer_of(mine), plan=[Fault(fault.kind)]):
        assert mine.record(Event(counter, 1, "theirs")).status is Status.DUPLICATE
    with (
        faults(writer_of(mine), plan=[Fault(fault.kind)]),
        pytest.raises(IdempotencyKeyReused),
    ):
        mine.record(Event(counter, 2, "theirs"))

    expect_sum(store, counter, [1, 1])


@pytest.mark.parametrize("fault", [Fault(Kind.TIMEOUT), Fault(Kind.THROTTLE)], ids=str)
def test_p1_a_first_use_that_fails_is_an_outcome_of_many(
    store: Store, counter: str, fault: Fault
) -> None:
    """Each event says for itself whether it was recorded; the read is not repeated for each."""
    recorder = recorder_of(store)
    other = f"other-{counter}"
    client = recorder.sender.namespaces.connection.retrying.client

    with faults(client, at="GetItem", plan=repeat(fault, 4)):
        *failed, recorded = recorder.record_many(
            [Event(counter, 1), Event(counter, 2), Event(other, 7)]
        )

    assert [isinstance(one, CountledgerError) for one in failed] == [True, True]
    assert getattr(recorded, "status", None) == "recorded"
    expect_sum(store, counter, [])
    expect_sum(store, other, [7])
