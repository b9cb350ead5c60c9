"""The first use of a namespace goes wrong: the producer says so, and nothing counts twice."""

from itertools import repeat

import pytest

from countledger.ledger.errors import CountledgerError
from countledger.producers.event import Event
from tests.engines.store import Store
from tests.faults.injection import Fault, Kind, faults
from tests.faults.numbers import expect_sum
from tests.faults.product import recorder_of

SDK_ATTEMPTS = 4


@pytest.mark.parametrize("fault", [Fault(Kind.TIMEOUT), Fault(Kind.THROTTLE)], ids=str)
def test_p1_a_first_use_that_fails_is_an_outcome_of_many(
    store: Store, counter: str, fault: Fault
) -> None:
    """Each event says for itself whether it was recorded; the read is not repeated for each."""
    recorder = recorder_of(store)
    other = f"other-{counter}"
    client = recorder.sender.namespaces.connection.retrying.client

    with faults(client, at="GetItem", plan=repeat(fault, SDK_ATTEMPTS)):
        *failed, recorded = recorder.record_many(
            [Event(counter, 1), Event(counter, 2), Event(other, 7)]
        )

    assert [isinstance(one, CountledgerError) for one in failed] == [True, True]
    assert getattr(recorded, "status", None) == "recorded"
    expect_sum(store, counter, [])
    expect_sum(store, other, [7])
