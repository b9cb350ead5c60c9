"""The limits of the table are those that a simulation meets, in the same order."""

from typing import Final

import pytest

from countledger.compaction.report import Retire
from countledger.infra.scaling import Load, Setup, Way, first_limit, needs, settings_for, settled
from tools.guide.marked import with_tables
from tools.guide.scaling import COUNTERS, RATES, SCALING, scaling_tables
from tools.scaling.simulation import first_saturated

_SIMULATED: Final = {
    "a new table of the ledger": "ledger",
    "the quota of the table of the ledger": "ledger",
    "a new table of the totals": "totals",
    "the quota of the table of the totals": "totals",
    "one partition for each counter": "key range",
    "spread of the counters": "key range",
    "the materializer of a shard": "materializer",
    "the account's concurrency": "concurrency",
    "the stream of Kinesis": "kinesis",
}
# The last step of the ramp, and chance.
_TOLERANCE: Final = 0.25


def _agree(load: Load, setup: Setup) -> Setup | None:
    """The setup with the first limit passed; None where there is none."""
    expected, found = first_limit(load, setup), first_saturated(load, setup)
    if expected is None:
        assert found is None, (load, setup, found)
        return None
    assert found is not None, (load, setup, expected)
    saturated, events_s = found
    assert _SIMULATED[expected.what] in saturated, (load, expected, found)
    assert events_s == pytest.approx(expected.events_s, rel=_TOLERANCE), (expected, found)
    return expected.passed


@pytest.mark.parametrize("events_s", RATES)
@pytest.mark.parametrize("counters", COUNTERS, ids=["hot", "wide"])
@pytest.mark.parametrize("way", list(Way), ids=str)
def test_the_simulation_meets_the_limits_of_the_model(
    way: Way, counters: int | None, events_s: int
) -> None:
    setup: Setup | None = Setup()
    while setup is not None:
        setup = _agree(Load(events_s, counters, way), setup)


@pytest.mark.parametrize(
    ("load", "setup", "what"),
    [
        (Load(600, None), Setup(update_ms=3.0), "the materializer of a shard"),
        (Load(20_000, 1), Setup(ledger_units=10**6), "one partition for each counter"),
        (Load(20_000, 1, Way.COALESCED), Setup(), None),
    ],
    ids=["a slow materializer", "one counter", "one counter, coalesced"],
)
def test_a_setting_moves_the_limit(load: Load, setup: Setup, what: str | None) -> None:
    limit = first_limit(load, setup)

    assert (limit and limit.what) == what
    _agree(load, setup)


def test_no_setup_passes_what_the_widest_spread_of_a_counter_takes() -> None:
    """256 ranges of 485 entries/s: 124,000/s, which is said instead of overloaded partitions."""
    load = Load(1_000_000, 1)

    limits = list(settings_for(load, Setup()))

    assert limits[-1].what == "spread of the counters"
    assert limits[-1].events_s == pytest.approx(256 * 485, rel=0.01)
    assert limits[-1].passed is None
    assert "coalesce" in limits[-1].setting
    setup = settled(load, Setup())
    assert setup.spread == 256
    assert _agree(load, setup) is None
    assert needs(Load(100_000, 1), setup).partitions == 256


def test_a_batch_has_an_entry_at_least() -> None:
    """So an event takes at most four units: its entry, its merge, its total, and the progress."""
    assert needs(Load(0.001, 64), Setup()).units_event == pytest.approx(4.06)


@pytest.mark.parametrize(
    ("retire", "entries_s"), [(None, 1_000), (Retire.DELETE, 485), (Retire.TRANSACTION, 327)]
)
def test_compaction_has_its_share_of_a_partition(retire: Retire | None, entries_s: int) -> None:
    limit = first_limit(Load(2_000, 1), Setup(retire=retire, ledger_units=10**6))

    assert limit is not None
    assert limit.what == "one partition for each counter"
    assert limit.events_s == pytest.approx(entries_s, rel=0.01)


@pytest.mark.parametrize("way", list(Way), ids=str)
@pytest.mark.parametrize("counters", COUNTERS, ids=["hot", "wide"])
def test_with_every_setting_that_is_named_nothing_limits_the_load(
    way: Way, counters: int | None
) -> None:
    load, setup = Load(1_000_000, counters, way), Setup()
    for limit in settings_for(load, setup):
        assert limit.passed is not None
        setup = limit.passed

    assert first_limit(load, setup) is None


def test_the_page_has_the_table_as_it_should_be() -> None:
    """After a change of the model, `make docs` writes it again."""
    text = SCALING.read_text()

    assert text == with_tables(text, scaling_tables())
