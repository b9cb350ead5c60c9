"""What becomes of a batch of records when a call of the materializer goes wrong."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest

from countledger.consumers import materializer as materializer_module
from countledger.consumers.batch import BatchOutcome, complete_outcome
from countledger.consumers.fold import Fold
from countledger.consumers.stream import ShardName
from countledger.consumers.total_writer import Written
from countledger.ledger.errors import ServiceFailed
from tests.engines.store import Store
from tests.faults.canary import Rule, judged
from tests.faults.delivery import deliver, written
from tests.faults.injection import GARBLED, Fault, Kind, faults
from tests.faults.numbers import expect_total
from tests.faults.queue import Queue, new_queue

SDK_ATTEMPTS = 4


def _progress(request: AWSPreparedRequest) -> bool:
    """The write that moves it, and neither its reading nor its making."""
    body = _body(request)
    return b'"progress"' in body and b'"attempted"' in body


def _total(request: AWSPreparedRequest) -> bool:
    return b'"updated_at"' in _body(request)


def _body(request: AWSPreparedRequest) -> bytes:
    body: Any = request.body
    return body if isinstance(body, bytes) else b""


@pytest.fixture
def queue(store: Store) -> Iterator[Queue]:
    """A quarantine queue of the test's own."""
    with new_queue(store) as made:
        yield made


# ---- rules to switch off ----


def failures_kept_to_itself(patch: pytest.MonkeyPatch) -> None:
    """The batch is said to be handled although a counter could not be written."""

    def forgetful(
        outcome: BatchOutcome, folded: Fold, done: dict[str, Written], now_ms: int
    ) -> None:
        complete_outcome(outcome, folded, done, now_ms)
        outcome.retry_from = None

    patch.setattr(materializer_module, "complete_outcome", forgetful)


# ---- laws ----


@judged(failures_kept_to_itself)
def test_p3_progress_never_passes_what_is_not_in_the_totals(
    rule: Rule, store: Store, counter: str
) -> None:
    """Freshness is what a reader trusts: a batch that failed in part does not move it."""
    with rule.watched():
        shard, records = written(store, counter)
        shard = ShardName(shard.stream, f"{shard.id}-{counter}")
        materializer = store.materializer()
        plan = repeat(Fault(Kind.UNAVAILABLE), SDK_ATTEMPTS)

        with faults(materializer.dynamo.client, plan=plan, only=_total):
            materializer.apply(records, shard)
        if store.totals().progress([str(shard)]):
            expect_total(store, counter)

        deliver(materializer, records, shard)
        (progress,) = store.totals().progress([str(shard)]).values()
        assert progress.sequence == records[-1]["dynamodb"]["SequenceNumber"]
        expect_total(store, counter)


@pytest.mark.parametrize(
    "faults_at_the_queue",
    [[Fault(Kind.SERVER_ERROR)] * SDK_ATTEMPTS, [GARBLED[0]]],
    ids=["no answer", "an answer that is not the queue's"],
)
def test_p8_nothing_is_applied_where_the_quarantine_refuses(
    store: Store, counter: str, queue: Queue, faults_at_the_queue: list[Fault]
) -> None:
    """A record that nobody understands and nobody keeps stops the batch before its first effect."""
    shard, records = written(store, counter, each=4)
    malformed = {**records[1], "eventName": "UNKNOWN"}
    batch = [records[0], malformed, *records[2:]]
    materializer = replace(store.materializer(), quarantine=queue.quarantine)

    with (
        faults(queue.client, plan=faults_at_the_queue),
        faults(materializer.dynamo.client, only=_total) as writes,
        pytest.raises(ServiceFailed, match="SendMessage to the quarantine"),
    ):
        materializer.apply(batch, shard)
    assert len(writes) == 0
    assert store.totals().read(counter).version == 0

    deliver(materializer, batch, shard)
    expect_total(store, counter, queue.records())


@pytest.mark.parametrize("fault", [Fault(Kind.TIMEOUT), Fault(Kind.THROTTLE)], ids=str)
def test_p1_progress_that_cannot_be_written_is_delivered_again(
    store: Store, counter: str, fault: Fault
) -> None:
    """The last record comes again, its total drops it, and the progress gets there."""
    shard, records = written(store, counter)
    shard = ShardName(shard.stream, f"{shard.id}-{counter}")
    materializer = store.materializer()
    last = records[-1]["dynamodb"]["SequenceNumber"]

    with faults(
        materializer.dynamo.client, plan=repeat(fault, SDK_ATTEMPTS), only=_progress
    ) as attempts:
        outcome = materializer.apply(records, shard)
    assert outcome.retry_from == int(last)
    assert list(outcome.failed) == [f"progress of {shard}"]
    assert len(attempts) == SDK_ATTEMPTS

    assert materializer.apply(records[-1:], shard).duplicates == 1
    expect_total(store, counter)
    (progress,) = store.totals().progress([str(shard)]).values()
    assert progress.sequence == last
