"""Totals: written by one update with their watermark, read by one GetItem."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from countledger.consumers import progress, total_writer
from countledger.consumers.progress import ShardProgress, advance_of, opening_of
from countledger.consumers.record import EntryChange, ShardName
from countledger.consumers.total_writer import CounterChanges, FoldedChange, TotalWriter, update_of
from countledger.ledger import keys
from countledger.ledger.errors import (
    ConditionFailed,
    CorruptItem,
    NewerFormat,
    RequestRejected,
)
from countledger.ledger.limits import MINUTE_MS, WATERMARK_LIFE_MS
from countledger.ledger.operations import Put, Update
from countledger.ledger.total import Total
from countledger.producers.event import Event
from tests.engines.clock import HandClock
from tests.engines.differences import Difference
from tests.engines.store import Record, Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import before_call, calls


def _one_shard(store: Store, counter: str, count: int) -> tuple[ShardName, list[Record]]:
    """A counter's records; on an engine whose stream has one shard."""
    ((shard, records),) = store.records(counter, count).items()
    return shard, records


def test_p3_a_total_is_exact_and_read_by_one_get(store: Store, counter: str) -> None:
    """Whatever the number of entries: one GetItem, sum, events, entries and when."""
    clock = HandClock()
    list(store.recorder().record_many(Event(counter, delta) for delta in range(-10, 31) if delta))
    for shard, records in store.records(counter, 40).items():
        store.materializer(clock=clock).apply(records, shard)
    reader = store.totals()

    with calls(reader.connection.retrying.client) as made:
        total = reader.read(counter)

    assert made == ["GetItem"]
    assert total == Total(counter, 410, 40, 40, total.version, clock.now_ms())
    assert total.value == store.exact().read(counter).value
    assert total.updated_at == datetime.fromtimestamp(clock.now_ms() / 1000, UTC)


def test_a_total_never_made_is_zero(store: Store, counter: str) -> None:
    """Zeros, version 0 and no time; and nothing is made by reading."""
    assert store.totals().read(counter) == Total(counter, 0, 0, 0, 0, None)
    assert store.totals().read_many([counter]) == {counter: Total(counter)}
    assert store.item(store.counters, keys.total_key(counter)) is None


def test_many_totals_are_read_together(store: Store, counter: str) -> None:
    names = [f"{counter}/{number}" for number in range(120)]
    dynamo = store.dynamo()
    for number, name in enumerate(names[:60]):
        dynamo.update(update_of(store.counters, name, FoldedChange(1, 1, number + 1, 1, 1), "s", 7))

    totals = store.totals().read_many([*names, names[0]])

    assert list(totals) == names
    assert [t.value for t in totals.values()] == [*range(1, 61), *[0] * 60]


def test_effect_and_watermark_are_one_write(store: Store, counter: str) -> None:
    dynamo = store.dynamo()

    def update(first: int, last: int, shard: str = "shard") -> Update:
        return update_of(store.counters, counter, FoldedChange(first, last, 10, 2, 1), shard, 1_000)

    dynamo.update(update(5, 9))
    for first, last in ((5, 9), (1, 4), (9, 9), (9, 12), (6, 30)):
        with pytest.raises(ConditionFailed) as failed:
            dynamo.update(update(first, last))
        assert progress.sequence_in(failed.value.item, "shard") == 9
    dynamo.update(update(10, 10**39))
    dynamo.update(update(1, 1, "another shard"))

    item = store.item(store.counters, keys.total_key(counter))
    assert item is not None
    assert (item["total"], item["events"], item["entries"], item["version"]) == (30, 6, 3, 3)
    assert progress.sequence_in(item, "shard") == 10**39
    assert progress.sequence_in(item, "another shard") == 1


def test_a_total_of_a_later_release_is_left_alone(store: Store, counter: str) -> None:
    """What carries a higher format is neither changed nor read as if it were known."""
    item = {**keys.total_key(counter), "v": 2, "total": 1}
    store.dynamo().put(Put(store.counters, item))

    with pytest.raises(ConditionFailed):
        store.dynamo().update(
            update_of(store.counters, counter, FoldedChange(1, 1, 5, 1, 1), "s", 1)
        )
    with pytest.raises(NewerFormat):
        store.totals().read(counter)
    assert store.item(store.counters, keys.total_key(counter)) == item


@pytest.mark.parametrize("corrupt", [{"entries": "5"}, {"events": None}, {"version": "x"}], ids=str)
def test_a_corrupt_total_is_an_error(
    store: Store, counter: str, corrupt: dict[str, object]
) -> None:
    """A total edited by hand is named, and nothing can be added to what is no number."""
    item = {**keys.total_key(counter), "total": 5, "events": 1, "entries": 1, "version": 1}
    store.dynamo().put(Put(store.counters, {**item, **corrupt}))

    with pytest.raises(CorruptItem, match=counter):
        store.totals().read(counter)
    if "events" not in corrupt:
        with pytest.raises(RequestRejected):
            store.dynamo().update(
                update_of(store.counters, counter, FoldedChange(1, 1, 5, 1, 1), "s", 1)
            )


def test_progress_moves_on_and_never_back(store: Store, namespace: str) -> None:
    """A late one changes nothing; the numbers of those that move it are added up."""
    shard = f"{namespace}/shardId-1"

    def progress(sequence: str, at_ms: int) -> ShardProgress:
        return ShardProgress(shard, sequence, at_ms, at_ms + 500, 10, 3, 4.0)

    dynamo = store.dynamo()
    dynamo.update(opening_of(store.counters, shard, 500))
    dynamo.update(advance_of(store.counters, progress("99", 1_000)))
    dynamo.update(
        advance_of(store.counters, progress("100000000000000000000000000000000001", 2_000))
    )
    for late in ("99", "100", "100000000000000000000000000000000001"):
        with pytest.raises(ConditionFailed):
            dynamo.update(advance_of(store.counters, progress(late, 9_000)))

    found = store.totals().progress([shard, f"{shard}-none"])
    assert found == {
        shard: ShardProgress(shard, "100000000000000000000000000000000001", 2_000, 2_500, 20, 6, 8)
    }
    stored = store.item(store.counters, keys.progress_key(shard))
    assert stored is not None
    assert stored["expires_at"] == 2 + 7 * 24 * 3_600


def test_freshness_is_the_progress_of_the_stream(store: Store, counter: str) -> None:
    """Before a shard has been handled it is idle; afterwards its progress is what was handled."""
    store.recorder().record(Event(counter, 1))
    shard, records = _one_shard(store, counter, 1)
    clock = HandClock()
    store.materializer(clock=clock).apply(records, shard)

    freshness = store.totals().freshness()

    (progress,) = (one for one in freshness.shards if one.shard == str(shard))
    assert progress.sequence == records[-1]["dynamodb"]["SequenceNumber"]
    if store.engine.has(Difference.SHARDS_LOOK_CLOSED):
        assert freshness.handled_through is None
    else:
        assert freshness.handled_through == progress.handled_through
    age_ms = clock.now_ms() - progress.handled_through_ms
    assert -2_000 <= age_ms <= 60_000


def clean_ups_name_no_value(patch: pytest.MonkeyPatch) -> None:
    """A clean-up removes a watermark also if it has moved since it was read."""
    patch.setattr(
        total_writer, "clean_up_of", lambda *given: replace(_clean_up(*given), condition=None)
    )


_clean_up = total_writer.clean_up_of


@judged(clean_ups_name_no_value)
def test_what_moves_a_stale_watermark_beside_its_clean_up_counts_once(
    rule: Rule, store: Store, counter: str
) -> None:
    """Delivered while the clean-up is under way, and once more after it; later ones go on."""
    now_ms = HandClock().now_ms()
    old_ms = now_ms - WATERMARK_LIFE_MS - 2 * MINUTE_MS
    dynamo = store.dynamo()

    def deliver(shard: str, sequence: int, at_ms: int = now_ms) -> None:
        writer = TotalWriter(dynamo, store.counters, shard, unexpected, at_ms)
        assert (
            writer.write(counter, CounterChanges(counter, [(sequence, 1, 1, 1, {})])).error is None
        )

    def unexpected(_change: EntryChange, reason: str) -> None:
        raise AssertionError(reason)

    with rule.watched():
        for number in range(progress.STALE_ENOUGH):
            deliver(f"old {number}", 1, old_ms)
        # The update of the total is the first one, the clean-up the second.
        with before_call(dynamo.client, "UpdateItem", lambda: deliver("old 0", 2), number=2):
            deliver("new", 1)
        deliver("old 0", 2)
        deliver("old 0", 1)

        total = store.totals().read(counter, consistent=True)
        if total.value != progress.STALE_ENOUGH + 2:
            raise WrongNumber(f"{total.value} of {progress.STALE_ENOUGH + 2} entries")


def test_updates_at_the_same_time_are_all_in_the_total(store: Store, counter: str) -> None:
    """Invocations of several shards at one total: none undoes another."""
    if store.engine.has(Difference.LOSES_UPDATES_UNDER_THREADS):
        pytest.skip(Difference.LOSES_UPDATES_UNDER_THREADS.value)
    dynamo = store.dynamo()

    def update(number: int) -> None:
        shard, step = f"shard {number % 8}", FoldedChange(number, number, number, 1, 1)
        dynamo.update(update_of(store.counters, counter, step, shard, 0))

    with ThreadPoolExecutor(8) as pool:
        for round_ in range(10):
            list(pool.map(update, range(8 * round_, 8 * round_ + 8)))

    total = store.totals().read(counter)
    assert (total.value, total.version) == (sum(range(80)), 80)
