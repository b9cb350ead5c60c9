"""P1, on the way to the total: what is delivered again, late or in part, counts once.

The simulation delivers again in every other way. What is at or below a shard's progress is dropped
before all else; here no invocation has seen any, as none has whose writes land late: watermarks
alone refuse what was applied before.
"""

from dataclasses import replace

import pytest

from countledger.consumers import materializer as materializer_module
from countledger.consumers import record as record_module
from countledger.consumers import total_writer
from countledger.consumers.fold import FoldedChange
from countledger.consumers.record import EntryChange
from countledger.consumers.stream import ShardName
from countledger.ledger.clock import SystemClock
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
    monkeypatch.setattr(materializer_module, "above", lambda records, _position: records)
    monkeypatch.setattr(materializer_module, "next_attempt", lambda *_: None)


# ---- rules to switch off ----


def watermark_left_out_of_the_condition(patch: pytest.MonkeyPatch) -> None:
    """An update is made whatever its shard's watermark says."""
    real = total_writer.update_of

    def update_of(table: str, counter: str, step: FoldedChange, shard: str, now_ms: int) -> Update:
        return replace(real(table, counter, step, shard, now_ms), condition=Absent("v"))

    patch.setattr(total_writer, "update_of", update_of)


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


# ---- laws ----


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
