"""Repairs on every engine: their conditions, and what they cost."""

from collections import deque

import pytest

from countledger.consumers.audit import Walker, start
from countledger.consumers.progress import ShardDirectory, ShardProgress, advance_of
from countledger.consumers.record import LedgerStream
from countledger.consumers.verify import Judgement, Remedy, Repairer, Verifier, plan_of
from countledger.ledger import keys
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.limits import HOUR_MS
from countledger.ledger.operations import Add, Delete, Update
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.differences import Difference
from tests.engines.store import Store, fresh_store
from tests.faults.injection import before_call


def _verifier(store: Store, clock: HandClock | None = None) -> Verifier:
    return Verifier(store.process(clock), readers=1)


def _filled(store: Store, counter: str) -> None:
    """Three entries in their total; all else in the stream counts as handled."""
    recorder = store.recorder()
    for delta in (5, 7, -2):
        recorder.record(Event(counter, delta))
    for shard, records in store.records(counter, 3).items():
        store.materializer().apply(records, shard)
    _pass_over_others(store)


def _pass_over_others(store: Store) -> None:
    """Other tests of this session leave records that nobody handles."""
    stream = LedgerStream(store.process())
    for one in stream.shards():
        for last in deque(stream.after(one.shard, None), maxlen=1):
            sequence = last["dynamodb"]["SequenceNumber"]
            progress = ShardProgress(str(one.shard), sequence, 1, 1, 1, 1, 1)
            ShardDirectory().open(store.dynamo(), store.counters, one.shard, 1)
            try:
                store.dynamo().update(advance_of(store.counters, progress))
            except ConditionFailed:
                continue


def _alter(store: Store, counter: str) -> None:
    store.dynamo().update(Update(store.counters, keys.total_key(counter), (Add("total", 1),)))


def test_a_drift_is_repaired_once(store: Store, counter: str) -> None:
    """The plan holds for the version that it was made for, and for no later one."""
    _filled(store, counter)
    _alter(store, counter)
    verifier = _verifier(store)
    (finding,) = verifier.compare([counter])
    assert (finding.verdict.verdict, finding.verdict.drift) == (Judgement.DRIFT, 1)

    (repair,) = Repairer(verifier).repair([counter])

    assert repair.remedy is Remedy.REPAIRED
    total = store.totals().read(counter, consistent=True)
    assert (total.value, total.events, total.entries) == (10, 3, 3)
    late = plan_of(store.counters, finding, 1)
    assert not isinstance(late, str)
    with pytest.raises(ConditionFailed):
        store.dynamo().update(late)
    for shard, records in store.records(counter, 3).items():
        assert store.materializer().apply(records, shard).duplicates == len(records)
    assert store.totals().read(counter, consistent=True) == total


def test_a_missing_total_is_made_once(store: Store, counter: str) -> None:
    """On condition that there is still none; what is delivered again finds its watermark."""
    _filled(store, counter)
    before = store.item(store.counters, keys.total_key(counter))
    store.dynamo().delete(Delete(store.counters, keys.total_key(counter)))
    verifier = _verifier(store)
    (finding,) = verifier.compare([counter])

    (repair,) = Repairer(verifier).repair([counter])

    assert repair.remedy is Remedy.MADE
    made = store.item(store.counters, keys.total_key(counter))
    assert before
    assert made
    assert len({before["incarnation"], made["incarnation"]}) == 2
    plan = plan_of(store.counters, finding, 1)
    assert not isinstance(plan, str)
    with pytest.raises(ConditionFailed):
        store.dynamo().update(plan)
    for shard, records in store.records(counter, 3).items():
        store.materializer().apply(records, shard)
    total = store.totals().read(counter, consistent=True)
    assert (total.value, total.version) == (10, 1)


def test_p9_a_verdict_costs_two_reads_and_an_exact_read(store: Store, counter: str) -> None:
    """A drift is looked at twice, and its head once more; its repair is one write unit."""
    _filled(store, counter)
    verifier = _verifier(store)
    dynamo = verifier.connection.retrying

    next(verifier.verify([counter]))
    spent = dynamo.meter.read_units

    blind = store.engine.has(Difference.NO_UNITS_FOR_BATCH_GET)
    progress = 0 if blind else len(LedgerStream(verifier.connection).shards()) / 2
    assert spent == 2 + 3 + progress
    assert dynamo.meter.write_units == 0
    _alter(store, counter)
    next(Repairer(verifier).repair([counter]))
    assert dynamo.meter.write_units == 1
    schedule = 0.5
    assert dynamo.meter.read_units == spent + 2 * (2 + 3 + progress) + 1 + schedule


@pytest.mark.parametrize("segments", [1, 3])
def test_a_walk_finds_every_counter_in_segments(
    store: Store, namespace: str, segments: int
) -> None:
    """From the start, and from behind any of its rounds; on tables that nothing else was left in.

    (moto lets a sum of 39 digits into a table, and then cannot scan that table any more.)
    """
    with fresh_store(store.engine) as own:
        _walk_all(own, namespace, segments)


def _walk_all(store: Store, namespace: str, segments: int) -> None:
    names = {f"{namespace}:{number}" for number in range(30)}
    recorder = store.recorder()
    list(recorder.record_many(Event(name, 1) for name in names))
    for name in sorted(names)[:20]:
        for shard, records in store.records(name, 1).items():
            store.materializer().apply(records, shard)
    walker = Walker(store.process(), page_size=5)

    rounds = list(walker.rounds(start(segments)))

    found = [name for one in rounds for name in one.counters if name in names]
    assert set(found) == names
    assert rounds[-1].bookmark.done
    middle = len(rounds) // 2
    before = {name for one in rounds[:middle] for name in one.counters}
    rest = {name for one in walker.rounds(rounds[middle - 1].bookmark) for name in one.counters}
    assert names <= before | rest


@pytest.mark.parametrize(
    ("asleep_ms", "remedy"), [(11 * HOUR_MS, Remedy.REPAIRED), (13 * HOUR_MS, Remedy.SKIPPED)]
)
def test_a_repair_that_slept_for_half_a_day_writes_nothing(
    store: Store, counter: str, asleep_ms: int, remedy: Remedy
) -> None:
    """By then the counter may have been deleted and created again, with the same version."""
    _filled(store, counter)
    _alter(store, counter)
    clock = HandClock()
    verifier = _verifier(store, clock)

    with before_call(
        verifier.connection.retrying.client, "UpdateItem", lambda: clock.move_ms(asleep_ms)
    ):
        (repair,) = Repairer(verifier).repair([counter])

    assert repair.remedy is remedy
    expected = 10 if remedy is Remedy.REPAIRED else 11
    assert store.totals().read(counter, consistent=True).value == expected
