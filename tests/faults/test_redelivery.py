"""P1, on the way to the total: whatever is delivered again, late, split or crosswise, counts once.

The records come from the real stream; where a real one cannot show a case (a second shard), they
are delivered under the names of several shards. What is at or below a shard's progress is dropped
before all else; here no invocation has seen any, as none has whose writes land late: watermarks
alone refuse what was applied before.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from countledger.consumers import materializer as materializer_module
from countledger.consumers import record as record_module
from countledger.consumers import total_writer, watermark
from countledger.consumers.fold import FoldedChange
from countledger.consumers.record import EntryChange
from countledger.consumers.stream import ShardName
from countledger.consumers.watermark import PassedShards
from countledger.ledger.attributes import Item
from countledger.ledger.clock import SystemClock
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.expressions import Absent
from countledger.ledger.limits import HOUR_MS
from countledger.ledger.operations import Update
from tests.engines.clock import HandClock
from tests.engines.store import KeptRecords, Record, Store
from tests.faults.canary import Rule, judged
from tests.faults.delivery import deliver, written
from tests.faults.injection import before_call
from tests.faults.numbers import expect_total


@pytest.fixture(autouse=True)
def _no_progress_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_age(
        _passed: PassedShards, _dynamo: DynamoClient, _table: str, total: Item, *at: int
    ) -> dict[str, bytes]:
        stale = watermark.stale(total, at[1])
        return stale if len(stale) >= watermark.STALE_ENOUGH else {}

    monkeypatch.setattr(materializer_module, "above", lambda records, _position: records)
    monkeypatch.setattr(materializer_module, "next_attempt", lambda *_: None)
    monkeypatch.setattr(PassedShards, "removable", by_age)


# ---- rules to switch off ----


def watermark_left_out_of_the_condition(patch: pytest.MonkeyPatch) -> None:
    """An update is made whatever its shard's watermark says."""
    real = total_writer.update_of

    def update_of(table: str, counter: str, step: FoldedChange, shard: str, now_ms: int) -> Update:
        return replace(real(table, counter, step, shard, now_ms), condition=Absent("v"))

    patch.setattr(total_writer, "update_of", update_of)


def one_watermark_for_all_shards(patch: pytest.MonkeyPatch) -> None:
    """A total has one watermark, whichever shard its records come from."""
    patch.setattr(watermark, "attribute", lambda _shard: f"{watermark.PREFIX}all")


def nothing_dropped_after_a_refusal(patch: pytest.MonkeyPatch) -> None:
    """What the watermark has passed is tried again with the rest."""

    def after(changes: list[EntryChange], _watermark: int | None) -> list[EntryChange]:
        return changes

    patch.setattr(total_writer, "after", after)


def all_dropped_after_a_refusal(patch: pytest.MonkeyPatch) -> None:
    """A batch of which the watermark has passed a part is taken for applied."""
    patch.setattr(total_writer, "after", lambda _changes, _watermark: [])


def age_of_records_not_asked(patch: pytest.MonkeyPatch) -> None:
    """A record is applied however old it is."""
    patch.setattr(record_module, "STREAM_RECORD_MAX_AGE_MS", 10**15)


def watermarks_removed_too_early(patch: pytest.MonkeyPatch) -> None:
    """A watermark goes although records that it would refuse may still come."""
    progress_not_seen(patch)
    patch.setattr(PassedShards, "removable", lambda *seen: watermark.marks_in(seen[3]))


def progress_not_seen(patch: pytest.MonkeyPatch) -> None:
    """As invocations have it that began before the progress of any other was there."""
    patch.setattr(materializer_module, "above", lambda records, _position: records)


# A law of what comes much later: the progress drops it by then, and the watermark may be gone.
_MUCH_LATER = "outlives_the_records"


@pytest.fixture(autouse=True)
def _watermarks_alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is delivered again soon is also dropped by progress; here watermarks have to do it."""
    if _MUCH_LATER not in request.node.name:
        progress_not_seen(monkeypatch)


# ---- laws ----

Schedule = Callable[[list[Record]], list[list[Record]]]

SCHEDULES: dict[str, Schedule] = {
    "the same batch again": lambda r: [r, r, r],
    "a batch split in two": lambda r: [r, r[:6], r[6:]],
    "split first, whole after": lambda r: [r[:5], r[5:], r],
    "overlapping batches": lambda r: [r[:5], r[3:9], r[1:], r],
    "one by one, then all": lambda r: [*([one] for one in r), r],
    "grown from the start": lambda r: [r[:end] for end in range(1, len(r) + 1)],
}


@judged(watermark_left_out_of_the_condition)
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_p1_records_delivered_again_change_nothing(
    rule: Rule, store: Store, counter: str, schedule: Schedule
) -> None:
    """Whole, split, overlapping: each record is in the total once."""
    with rule.watched():
        shard, records = written(store, counter)
        materializer = store.materializer()
        for batch in schedule(records):
            deliver(materializer, batch, shard)
        expect_total(store, counter)


@judged(watermark_left_out_of_the_condition)
@pytest.mark.parametrize(("zombie_has", "handled"), [(8, 12), (8, 8), (8, 5), (12, 1), (1, 12)])
def test_p1_a_zombies_late_update_changes_nothing(
    rule: Rule, store: Store, counter: str, zombie_has: int, handled: int
) -> None:
    """An invocation given up wakes when its records were delivered again: once, in part, beyond."""
    with rule.watched():
        shard, records = written(store, counter)
        materializer, zombie = store.materializer(), store.materializer()

        def meanwhile() -> None:
            deliver(materializer, records[:handled], shard)

        with before_call(zombie.dynamo.client, "UpdateItem", meanwhile):
            zombie.apply(records[:zombie_has], shard)
        deliver(materializer, records[handled:], shard)
        expect_total(store, counter)


@judged(one_watermark_for_all_shards)
@pytest.mark.parametrize("order", ["XY", "YX", "XYXY", "YXYX", "YYXX"])
def test_p1_two_shards_of_one_counter_do_not_hide_each_other(
    rule: Rule, store: Store, counter: str, order: str
) -> None:
    """Their sequence numbers lie crosswise; each shard has its own watermark."""
    with rule.watched():
        _, records = written(store, counter)
        shards = {
            "X": (ShardName("label", f"{counter}-x"), records[::2]),
            "Y": (ShardName("label", f"{counter}-y"), records[1::2]),
        }
        for turn, name in enumerate(order, 1):
            shard, mine = shards[name]
            end = len(mine) * order[:turn].count(name) // order.count(name)
            deliver(store.materializer(), mine[:end], shard)
        for shard, mine in shards.values():
            deliver(store.materializer(), mine, shard)
        expect_total(store, counter)


@judged(one_watermark_for_all_shards)
def test_a_recreated_stream_numbers_anew(rule: Rule, store: Store, counter: str) -> None:
    with rule.watched():
        _, records = written(store, counter)
        deliver(store.materializer(), records[6:], ShardName("old label", "shardId-1"))
        deliver(store.materializer(), records[:6], ShardName("new label", "shardId-1"))
        expect_total(store, counter)


@judged(age_of_records_not_asked)
def test_p1_a_record_older_than_its_watermark_lives_is_never_applied(
    rule: Rule, store: Store, counter: str
) -> None:
    """Its watermark may be gone, so it could count again: it goes to the quarantine instead."""
    with rule.watched():
        _, records = written(store, counter, each=6)
        now_ms = SystemClock().now_ms()
        for number, record in enumerate(records[:5]):
            shard = ShardName("label", f"{counter}-{number}")
            deliver(store.materializer(clock=HandClock(now_ms)), [record], shard)
        much_later = HandClock(now_ms + 49 * HOUR_MS)
        fresh = _made_at(records[5], much_later.now_ms())
        deliver(store.materializer(clock=much_later), [fresh], ShardName("label", f"{counter}-5"))

        quarantine = KeptRecords()
        late = store.materializer(clock=much_later, quarantine=quarantine)
        deliver(late, [records[0]], ShardName("label", f"{counter}-0"))

        expect_total(store, counter)
        assert quarantine.reasons() == [
            "the record is older than the stream's retention of 24 hours"
        ]


@judged(watermarks_removed_too_early)
def test_p1_a_watermark_outlives_the_records_that_it_refuses(
    rule: Rule, store: Store, counter: str
) -> None:
    """A day later a record of the first hour is delivered again: it is still refused."""
    with rule.watched():
        _, records = written(store, counter, each=6)
        now_ms = SystemClock().now_ms()
        for number, record in enumerate(records):
            shard = ShardName("label", f"{counter}-{number}")
            later = HandClock(now_ms + 4 * number * HOUR_MS)
            deliver(store.materializer(clock=later), [record], shard)
        deliver(store.materializer(), records[:1], ShardName("label", f"{counter}-0"))
        expect_total(store, counter)


def _made_at(record: Record, at_ms: int) -> Record:
    inner = {**record["dynamodb"], "ApproximateCreationDateTime": at_ms // 1_000}
    return {**record, "dynamodb": inner}


@judged(nothing_dropped_after_a_refusal, all_dropped_after_a_refusal)
def test_p1_of_an_overlap_only_the_news_counts(rule: Rule, store: Store, counter: str) -> None:
    """What the watermark has passed is dropped, and what lies behind it is not."""
    with rule.watched():
        shard, records = written(store, counter)
        materializer = store.materializer()
        deliver(materializer, records[:5], shard)
        deliver(materializer, records[3:], shard)
        expect_total(store, counter)
