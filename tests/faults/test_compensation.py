"""Setting a ledger counter, and reading a snapshot, under faults."""

import pytest

from countledger.consumers.totals import SnapshotReader
from countledger.ledger.errors import RequestRejected, Throttled
from tests.engines.store import Store
from tests.faults.injection import Fault, Kind, faults
from tests.faults.sellers import seller_of


def test_a_snapshot_waits_until_writes_are_out_of_its_way(store: Store, counter: str) -> None:
    seller_of(store).create(counter, method="atomic", opening=5)
    reader = SnapshotReader(store.process(dynamo=store.connection.dynamo("none")))
    client = reader.connection.retrying.client

    with faults(client, at="TransactGetItems", plan=[Fault(Kind.CONFLICT)] * 3):
        assert reader.read([counter]).totals[counter].value == 5
    throttles = [Fault(Kind.THROTTLE), Fault(Kind.TIMEOUT)] * 2
    with faults(client, at="TransactGetItems", plan=throttles):
        assert reader.read([counter]).totals[counter].value == 5
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
