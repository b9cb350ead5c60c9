"""What becomes of a batch of records when a call of the materializer goes wrong."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from countledger.consumers.record import sequence_of
from countledger.ledger.errors import ServiceFailed
from tests.engines.store import Store
from tests.faults.delivery import deliver, written
from tests.faults.injection import GARBLED, Fault, Kind, Request, faults
from tests.faults.numbers import expect_total
from tests.faults.queue import Queue, new_queue

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
