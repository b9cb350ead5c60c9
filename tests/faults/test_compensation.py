"""Setting a ledger counter, and reading a snapshot, under faults."""

import pytest

from countledger.consumers.snapshot import SnapshotReader
from countledger.ledger.errors import RequestRejected, Throttled, Unacknowledged
from countledger.producers.compensation import Became, Compensator
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import LOST_ANSWERS, Fault, Kind, faults
from tests.faults.strict.sellers import seller_of


def without_the_look_for_the_key(patch: pytest.MonkeyPatch) -> None:
    """Add up the ledger at once, whatever lies under the key."""
    patch.setattr(Compensator, "_there", lambda *_: None)


def _compensator(store: Store) -> Compensator:
    return Compensator(store.recorder(), store.exact())


def _expect_sum(store: Store, counter: str, expected: int) -> None:
    found = store.exact().read(counter).sum
    if found != expected:
        raise WrongNumber(f"{counter} is {found} and not {expected}")


@judged(without_the_look_for_the_key)
@pytest.mark.parametrize("fault", LOST_ANSWERS[:1], ids=str)
def test_without_any_answer_the_same_key_tells(
    store: Store, counter: str, fault: Fault, rule: Rule
) -> None:
    """The call fails, its entry is in; the retry must not look at the sum, which is right now."""
    compensator = _compensator(store)

    with (
        faults(compensator.recorder.sender.dynamo.client, at="PutItem", plan=[fault] * 50),
        pytest.raises(Unacknowledged),
    ):
        compensator.set_value(counter, 10, "k", None)

    with rule.watched():
        if compensator.set_value(counter, 10, "k", None).became is not Became.DUPLICATE:
            raise WrongNumber("the entry of the first call was not found")
        _expect_sum(store, counter, 10)


def test_a_snapshot_waits_until_writes_are_out_of_its_way(store: Store, counter: str) -> None:
    seller_of(store).create(counter, method="atomic", opening=5)
    reader = SnapshotReader(store.connection.dynamo("none"), store.counters, HandClock())
    client = reader.dynamo.client

    with faults(client, at="TransactGetItems", plan=[Fault(Kind.CONFLICT)] * 3):
        assert reader.read([counter]).totals[counter].total == 5
    throttles = [Fault(Kind.THROTTLE), Fault(Kind.TIMEOUT)] * 2
    with faults(client, at="TransactGetItems", plan=throttles):
        assert reader.read([counter]).totals[counter].total == 5
    with (
        faults(client, at="TransactGetItems", plan=[Fault(Kind.CONFLICT)] * 99),
        pytest.raises(Throttled, match="in the way"),
    ):
        reader.read([counter])
    with (
        faults(client, at="TransactGetItems", plan=[Fault(Kind.REJECT)]),
        pytest.raises(RequestRejected),
    ):
        reader.read([counter])
