"""P8: what is quarantined is kept once and told of, whatever goes wrong between the two."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from countledger.consumers.materializer import Materializer
from countledger.consumers.quarantine import StoredQuarantine
from countledger.consumers.stream import ShardName
from countledger.ledger import keys
from countledger.ledger.errors import ServiceFailed
from countledger.ledger.operations import Put
from countledger.ledger.quarantine_record import QuarantineSource
from countledger.ledger.quarantine_store import QuarantineStore
from tests.engines.store import Record, Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.delivery import deliver, written
from tests.faults.injection import Fault, Kind, faults
from tests.faults.numbers import expect_total
from tests.faults.queue import Queue, new_queue

SDK_ATTEMPTS = 4


@pytest.fixture
def queue(store: Store) -> Iterator[Queue]:
    """A quarantine queue of the test's own."""
    with new_queue(store) as made:
        yield made


def kept_under_a_new_name_each_time(patch: pytest.MonkeyPatch) -> None:
    """The key of a copy tells of its delivery, and not of its record."""
    numbers = count()
    patch.setattr(
        keys,
        "quarantine_place",
        lambda at_ms, _identity: f"{at_ms:013d}-{next(numbers):016x}",
    )


def _keeping(store: Store, queue: Queue) -> Materializer:
    return replace(store.materializer(), quarantine=queue.quarantine)


def _copies(store: Store, counter: str) -> list[str]:
    found = QuarantineStore(store.dynamo(), store.counters).newest(QuarantineSource.LEDGER)
    return [copy.id for copy in found if copy.counter == counter]


def _batch(store: Store, counter: str) -> tuple[ShardName, list[Record]]:
    """Four records, the second and third of them malformed."""
    shard, records = written(store, counter, each=4)
    malformed = [{**record, "eventName": "UPSERT"} for record in records[1:3]]
    return shard, [records[0], *malformed, records[3]]


def _clients(materializer: Materializer, queue: Queue) -> list[object]:
    kept = materializer.quarantine
    assert isinstance(kept, StoredQuarantine)
    return [materializer.dynamo.client, kept.store.dynamo.client, queue.client]


def _expect_two(store: Store, counter: str, rung: list[str], *, more: int = 0) -> None:
    """Two copies, each with a message, and no more than so many messages beside them."""
    kept = _copies(store, counter)
    if len(kept) != 2 or set(rung) != set(kept) or len(rung) > 2 + more:
        raise WrongNumber(f"copies {kept}, messages {rung}")


@judged(kept_under_a_new_name_each_time)
def test_p8_a_batch_that_comes_again_is_quarantined_once(
    rule: Rule, store: Store, queue: Queue, counter: str
) -> None:
    """However it is cut, and whatever progress it read: no second copy, no second message."""
    with rule.watched():
        shard, batch = _batch(store, counter)
        materializer = _keeping(store, queue)
        deliver(materializer, batch[:1], shard)
        early = store.item(store.counters, keys.progress_key(str(shard)))
        assert early is not None
        deliver(materializer, batch, shard)
        for piece in (batch, batch[:2], batch[2:], batch[1:3]):
            # As an invocation that read the progress before another one moved it.
            store.dynamo().put(Put(store.counters, early))
            deliver(materializer, piece, shard)

        _expect_two(store, counter, [one["quarantine_id"] for one in queue.messages()])
        expect_total(store, counter, batch[1:3])


def test_p8_a_table_that_refuses_a_copy_for_good_blocks_nothing(
    store: Store, queue: Queue, counter: str
) -> None:
    """The queue alone has it then, and the stream goes on."""
    shard, batch = _batch(store, counter)
    materializer = _keeping(store, queue)
    _, client, _ = _clients(materializer, queue)

    with faults(client, at="PutItem", plan=[Fault(Kind.REJECT)] * 2):
        assert deliver(materializer, batch, shard) == 1

    assert _copies(store, counter) == []
    assert len(queue.records()) == 2
    expect_total(store, counter, batch[1:3])


def test_p8_what_is_not_kept_is_not_passed(store: Store, queue: Queue, counter: str) -> None:
    """A table that fails for now: nothing is applied, nothing in a queue, and all comes again."""
    shard, batch = _batch(store, counter)
    materializer = _keeping(store, queue)
    _, client, _ = _clients(materializer, queue)

    with (
        faults(client, at="PutItem", plan=[Fault(Kind.SERVER_ERROR)] * SDK_ATTEMPTS),
        pytest.raises(ServiceFailed),
    ):
        materializer.apply(batch, shard)
    assert queue.messages() == []
    assert store.totals().read(counter).version == 0
    assert deliver(materializer, batch, shard) == 1

    _expect_two(store, counter, [one["quarantine_id"] for one in queue.messages()])
    expect_total(store, counter, batch[1:3])
