"""P8: a record that can never be applied blocks nothing, and is never dropped in silence."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from countledger.consumers import materializer as materializer_module
from countledger.consumers.record import EntryChange, ShardName, sequence_of
from countledger.consumers.total_writer import TotalWriter
from countledger.ledger import keys
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import ServiceFailed
from countledger.ledger.ids import new_id
from countledger.ledger.operations import Put
from countledger.producers.event import Event, make_entry
from tests.engines.store import KeptRecords, Record, Store
from tests.faults.canary import Rule, judged
from tests.faults.delivery import deliver, expect_total, written
from tests.faults.injection import GARBLED, Fault, Kind, Request, faults
from tests.faults.queue import Queue, new_queue
from tests.faults.recording import recorder_of

# ---- rules to switch off ----


def quarantine_passed_by(patch: pytest.MonkeyPatch) -> None:
    """A change that can never be written is passed without being quarantined."""

    def writer(
        dynamo: DynamoClient,
        table: str,
        shard: str,
        _quarantine: Callable[[EntryChange, str], None],
        now_ms: int,
        *rest: Any,  # noqa: ANN401 - handed on
    ) -> TotalWriter:
        return TotalWriter(dynamo, table, shard, lambda _change, _reason: None, now_ms, *rest)

    patch.setattr(materializer_module, "TotalWriter", writer)


def test_p8_a_batch_of_malformed_records_is_handled(store: Store, counter: str) -> None:
    shard, records = written(store, counter, each=3)
    shard = ShardName(shard.stream, f"{shard.id}-{counter}")
    quarantine = KeptRecords()
    malformed = [{**record, "eventName": "UPSERT"} for record in records]

    assert deliver(store.materializer(quarantine=quarantine), malformed, shard) == 1

    assert len(quarantine.kept) == 3
    assert store.totals().read(counter).version == 0
    (progress,) = store.totals().progress([str(shard)]).values()
    assert progress.sequence == records[-1]["dynamodb"]["SequenceNumber"]


# ---- changes that can never be written ----


def _corrupt_total(store: Store, counter: str) -> None:
    """Somebody edited the total by hand: it is a text now."""
    item = {**keys.total_key(counter), "total": 0, "events": "0", "entries": 0, "version": 0}
    store.dynamo().put(Put(store.counters, item))


def _mend_total(store: Store, counter: str) -> None:
    item = store.item(store.counters, keys.total_key(counter)) or {}
    store.dynamo().put(Put(store.counters, {**item, "events": 0}))


@judged(quarantine_passed_by)
def test_p8_a_total_that_takes_nothing_blocks_nobody(
    rule: Rule, store: Store, counter: str
) -> None:
    with rule.watched():
        other = f"{counter}/other"
        shard, records = written(store, counter, other, each=5)
        quarantine = KeptRecords()
        materializer = store.materializer(quarantine=quarantine)
        _corrupt_total(store, counter)

        assert deliver(materializer, records[:8], shard) == 1
        _mend_total(store, counter)
        assert deliver(materializer, records[8:], shard) == 1

        expect_total(store, other)
        expect_total(store, counter, [record for record, _, _ in quarantine.kept])
        assert len(quarantine.kept) == 4
        assert re.search("ValidationException|is not a number", quarantine.reasons()[0])


@judged(quarantine_passed_by)
@pytest.mark.parametrize(
    ("deltas", "aside"),
    [
        ([10**38 - 1, 2, 5], {2, 5}),
        ([10**38 - 1, 2, -5, 3], {2}),
        ([6 * 10**37, 6 * 10**37, 1, 10**38 - 7], {10**38 - 7, 1}),
        ([5, 10**38 - 1, 7], {10**38 - 1}),
    ],
    ids=str,
)
def test_p8_a_sum_past_38_digits_is_set_aside(
    rule: Rule, store: Store, counter: str, deltas: list[int], aside: set[int]
) -> None:
    """Only the change that does not fit; what fits before and after it is in the total."""
    with rule.watched():
        _write_by_hand(store, counter, deltas)
        ((shard, records),) = store.records(counter, len(deltas)).items()
        quarantine = KeptRecords()
        materializer = store.materializer(quarantine=quarantine)

        for record in records:
            assert deliver(materializer, [record], shard) == 1

        expect_total(store, counter, [record for record, _, _ in quarantine.kept])
        assert {_delta(record) for record, _, _ in quarantine.kept} == aside


def test_p8_folded_changes_that_fit_together_are_applied(store: Store, counter: str) -> None:
    """In one batch only the sum has to fit, and what was halved is applied in its order."""
    deltas = [10**38 - 1, 2, -5]
    _write_by_hand(store, counter, deltas)
    ((shard, records),) = store.records(counter, 3).items()
    quarantine = KeptRecords()

    deliver(store.materializer(quarantine=quarantine), records, shard)

    assert quarantine.kept == []
    expect_total(store, counter)


def _write_by_hand(store: Store, counter: str, deltas: list[int]) -> None:
    """Entries that are larger than a producer takes, as another program may write them."""
    recorder = recorder_of(store)
    for delta in deltas:
        entry = make_entry(
            Event(counter, 1),
            now_ms=recorder.connection.clock.now_ms(),
            origin="by hand",
            new_id=new_id,
        )
        recorder.resend(replace(entry, delta=delta))


def _delta(record: Record) -> int:
    return int(record["dynamodb"]["NewImage"]["delta"]["N"])


# ---- calls that go wrong ----


SDK_ATTEMPTS = 4


def _total(request: Request) -> bool:
    body = request.body
    return isinstance(body, bytes) and b"updated_at" in body


@pytest.fixture
def queue(store: Store) -> Iterator[Queue]:
    """A quarantine queue of the test's own."""
    with new_queue(store) as made:
        yield made


@pytest.mark.parametrize(
    "faults_at_the_queue",
    [[Fault(Kind.SERVER_ERROR)] * SDK_ATTEMPTS, [GARBLED[0]]],
    ids=["no answer", "an answer that is not the queue's"],
)
def test_p8_nothing_is_applied_where_the_quarantine_refuses(
    store: Store, counter: str, queue: Queue, faults_at_the_queue: list[Fault]
) -> None:
    """A record that nobody understands and nobody keeps holds its counter, and comes again."""
    shard, records = written(store, counter, each=4)
    malformed = {**records[1], "eventName": "UNKNOWN"}
    batch = [records[0], malformed, *records[2:]]
    materializer = replace(store.materializer(), quarantine=queue.quarantine)

    with (
        faults(queue.client, plan=faults_at_the_queue),
        faults(materializer.connection.retrying.client, only=_total) as writes,
    ):
        outcome = materializer.apply(batch, shard)
    assert len(writes) == 0
    assert outcome.retry_from == sequence_of(batch[0])
    assert outcome.failed
    assert all(isinstance(error, ServiceFailed) for error in outcome.failed.values())
    assert store.totals().read(counter).version == 0

    deliver(materializer, batch, shard)
    expect_total(store, counter, queue.records())
