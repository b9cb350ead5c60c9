"""Snapshots, and ledger counters set to a value, on every engine; what each costs."""

from decimal import Decimal

import pytest

from countledger import Snapshot, Total
from countledger.consumers.total_writer import FoldedChange, update_of
from countledger.consumers.totals import SnapshotReader
from countledger.ledger.errors import BadCounterName, RequestRejected, TooManyCounters
from countledger.producers.strict.counters import StrictCounters
from tests.engines.differences import Difference
from tests.engines.store import Store
from tests.faults.sellers import metered, seller_of


def _reader(tables: Store) -> SnapshotReader:
    return SnapshotReader(tables.process())


def _materialized(tables: Store, counter: str, total: int) -> None:
    step = FoldedChange(1, 1, total, 1, 1)
    tables.dynamo().update(update_of(tables.counters, counter, step, "s", 0))


def _mixed(tables: Store, counter: str) -> StrictCounters:
    seller = seller_of(tables)
    seller.create(counter, method="atomic", lower=0, opening=Decimal("2.5"))
    seller.create(f"{counter}-spread", method="marker", lower=0, opening=9, bins=3)
    _materialized(tables, f"l{counter}", 7)
    return seller


def test_a_snapshot_holds_counters_of_every_kind(tables: Store, counter: str) -> None:
    """In the order asked for, each once; bins added up; one never seen is zero, as far as known."""
    _mixed(tables, counter)
    names = [f"{counter}-spread", f"l{counter}", f"l{counter}-none", counter, counter]

    found = _reader(tables).read(iter(names))

    assert list(found.totals) == names[:-1]
    assert [one.value for one in found.totals.values()] == [9, 7, 0, Decimal("2.5")]
    assert found.totals[f"l{counter}-none"] == Total(f"l{counter}-none")
    assert found.as_materialized == (f"l{counter}", f"l{counter}-none")


def test_a_snapshot_takes_up_to_100_counters_bins_counted(tables: Store, counter: str) -> None:
    """More are refused before anything is read, or when their bins are known."""
    reader = _reader(tables)
    names = [f"{counter}-{number}" for number in range(101)]

    with pytest.raises(TooManyCounters, match="101 counters"):
        reader.read(names)
    if tables.engine.has(Difference.TRANSACT_GET_TAKES_25):
        with pytest.raises(RequestRejected):
            reader.read(names[:26])
        return
    assert len(reader.read(names[:100]).totals) == 100
    _mixed(tables, counter)
    with pytest.raises(TooManyCounters, match="101 counters and bins"):
        reader.read([*names[:97], f"{counter}-spread"])
    with pytest.raises(BadCounterName):
        reader.read(["a#b"])
    assert reader.read([]) == Snapshot({}, reader.connection.clock.now_ms())


def test_p9_a_snapshot_costs_two_read_units_for_each_counter(tables: Store, counter: str) -> None:
    _mixed(tables, counter)
    reader = _reader(tables)

    reader.read([counter, f"l{counter}", f"l{counter}-none"])
    assert metered(reader.connection.retrying) == (0, 6)
    reader.read([counter, f"{counter}-spread"])
    assert metered(reader.connection.retrying) == (0, 6 + 2 * 2 + 2 * 5)
