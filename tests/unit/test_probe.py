"""The probe on tables in memory: what it records and measures, and that its counter stays small."""

from dataclasses import dataclass, field

import pytest

from countledger import probe
from countledger.compaction.report import Retire
from countledger.consumers.totals import TotalsReader
from countledger.ledger import keys
from countledger.ledger.errors import BadPayload, NamespaceConflict
from countledger.ledger.exact import ExactReader, decode_head
from countledger.ledger.limits import HOUR_MS, MINUTE_MS, SECOND_MS
from countledger.ledger.operations import Put
from countledger.probe import ProbeOutcome
from countledger.producers.recorder import Recorder
from tests.unit.compaction.parts import COUNTERS, LEDGER
from tests.unit.compaction.world import World
from tests.unit.connections import connection_on

TIMEOUT_MS = 43 * SECOND_MS


@dataclass
class Probed(World):
    """A stack with a probe, whose totals follow after some time, or not at all.

    Attributes:
        lag_ms: how long an entry takes to its total; None: totals do not change.
        put_at: when each entry was seen.
        known: how many of them the total includes.
    """

    lag_ms: int | None = 1_500
    put_at: list[int] = field(default_factory=list)
    known: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.clock.at_ms -= self.clock.at_ms % HOUR_MS
        self.clock.on_sleep = self._materialize
        self.probe = probe.Probe(
            self.namespaces,
            Recorder(self.recording),
            ExactReader(connection_on(self.dynamo, self.clock)),
            TotalsReader(connection_on(self.dynamo, self.clock)),
            self.compactor(retire=Retire.DELETE),
            self.clock,
        )
        self.probe.prepare()

    def _materialize(self, now_ms: int) -> None:
        """As the stream shows it: each entry once, in order, after the lag."""
        if self.lag_ms is None:
            return
        # Between two runs of the compactor its head covers nothing.
        head = decode_head(self.dynamo.get(LEDGER, keys.head_key(probe.COUNTER)))
        lag_ms, entries = self.lag_ms, head.entries + len(self.entries())
        self.put_at += [now_ms] * (entries - len(self.put_at))
        due = sum(at + lag_ms <= now_ms for at in self.put_at)
        if due > self.known:
            self.known = due
            numbers = dict.fromkeys(("total", "events", "entries", "version"), due)
            key = keys.total_key(probe.COUNTER)
            self.dynamo.put(Put(COUNTERS, {**key, **numbers, "updated_at": now_ms}))

    def exact_entries(self) -> int:
        return ExactReader(connection_on(self.dynamo, self.clock)).read(probe.COUNTER).entries

    def run(self, *, scheduled_ms: int | None = None) -> ProbeOutcome:
        """A run at its minute."""
        now_ms = self.clock.at_ms
        outcome = self.probe.run(scheduled_ms or now_ms, now_ms + TIMEOUT_MS)
        if outcome.crowded:
            self.probe.compact()
        return outcome

    def next_minute(self, minutes: int = 1) -> None:
        begin = self.clock.at_ms - self.clock.at_ms % MINUTE_MS
        self.clock.sleep_ms(begin + minutes * MINUTE_MS - self.clock.at_ms)


@pytest.fixture
def world() -> Probed:
    return Probed()


def test_it_measures_from_the_put_until_the_total_includes_the_entry(world: Probed) -> None:
    """The first run as well, when there is no total."""
    for _ in range(3):
        outcome = world.run()

        assert outcome.recorded
        assert outcome.missing == 0
        assert outcome.lag_ms is not None
        assert 1_500 <= outcome.lag_ms <= 2_000
        world.next_minute()
    assert world.exact_entries() == 3


def test_a_run_that_is_repeated_counts_once_and_measures_nothing(world: Probed) -> None:
    first, again = world.run(), world.run(scheduled_ms=world.clock.at_ms - SECOND_MS)

    assert first.recorded
    assert (again.recorded, again.lag_ms, again.missing) == (False, None, 0)
    assert world.exact_entries() == 1


def test_while_totals_do_not_change_the_lag_grows_from_run_to_run(world: Probed) -> None:
    """No run waits for longer than its time, and no run takes another entry for its own."""
    world.run()
    world.next_minute()
    world.lag_ms = None
    lags = []
    for _ in range(4):
        lags.append(world.run().lag_ms)
        world.next_minute()

    assert lags == [43_000, 103_000, 163_000, 223_000]


def test_an_older_entry_that_arrives_is_not_taken_for_the_new_one(world: Probed) -> None:
    """Totals are three minutes late: each run sees one entry more, and three are missing."""
    world.lag_ms = 3 * MINUTE_MS
    lags = []
    for _ in range(8):
        lags.append(world.run().lag_ms or 0)
        world.next_minute()

    assert all(lag >= 2 * MINUTE_MS for lag in lags[4:])


def test_a_missed_run_and_a_late_one_change_no_measure(world: Probed) -> None:
    world.run()
    world.next_minute(7)
    late = world.run(scheduled_ms=world.clock.at_ms - 6 * MINUTE_MS)
    outcome = world.run()

    assert (late.recorded, late.lag_ms) == (False, None)
    assert outcome.recorded
    assert outcome.lag_ms is not None
    assert outcome.lag_ms <= 2_000
    assert world.exact_entries() == 2


def test_the_counter_of_the_probe_stays_small(world: Probed) -> None:
    """For eight hours, with every tenth run missing; it is compacted several times meanwhile."""
    runs = most = 0
    for minute in range(8 * HOUR_MS // MINUTE_MS):
        if minute % 10 != 7:
            runs += 1
            assert world.run().missing == 0
        most = max(most, len(world.dynamo.items(LEDGER)))
        world.next_minute()

    assert world.exact_entries() == runs > 2 * probe.COMPACT_FROM_ENTRIES
    assert most <= probe.COMPACT_FROM_ENTRIES + 5
    assert len(world.dynamo.items(COUNTERS)) == 1


def test_a_namespace_of_that_name_with_other_settings_is_refused(world: Probed) -> None:
    other = World()
    other.namespaces.create(probe.NAMESPACE, spread=16)
    taken = probe.Probe(
        other.namespaces,
        world.probe.recorder,
        world.probe.exact,
        world.probe.totals,
        world.probe.compactor,
    )

    with pytest.raises(NamespaceConflict, match=probe.NAMESPACE):
        taken.prepare()


@pytest.mark.parametrize("time", [None, "yesterday", "<aws.scheduler.scheduled-time>"])
def test_an_event_without_its_time_is_refused(time: object) -> None:
    """Without it a repeated run would be another entry."""
    with pytest.raises(BadPayload, match="scheduled time"):
        probe._scheduled_ms({"time": time})
