"""P1: the materializer dies at any call, and is started again from the checkpoint."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, count, repeat
from uuid import uuid4

import pytest

from countledger.consumers.materializer import Materializer
from countledger.consumers.stream import ShardName
from countledger.ledger import keys
from countledger.ledger.operations import Put
from tests.engines.store import Record, Store
from tests.faults.canary import Rule, judged
from tests.faults.delivery import deliver, written
from tests.faults.injection import Crash, Fault, Kind, faults
from tests.faults.numbers import expect_total
from tests.faults.queue import Queue, new_queue
from tests.faults.test_malformed import quarantine_passed_by
from tests.faults.test_redelivery import watermark_left_out_of_the_condition


@pytest.fixture
def queue(store: Store) -> Iterator[Queue]:
    """A quarantine queue of the test's own."""
    with new_queue(store) as made:
        yield made


def _batch(store: Store, name: str) -> tuple[ShardName, list[Record], list[str]]:
    """Two sound counters, one whose total takes nothing, and a malformed record."""
    counters = [f"{name}:{rest}" for rest in ("well", "corrupt", "also-well")]
    shard, records = written(store, *counters, each=3)
    item = {**keys.total_key(counters[1]), "total": 0, "events": "0", "entries": 0, "version": 0}
    store.dynamo().put(Put(store.counters, item))
    malformed = {**records[3], "eventName": "UPSERT"}
    return (
        ShardName(shard.stream, f"{shard.id}-{name}"),
        [*records[:3], malformed, *records[4:]],
        counters,
    )


def _crash(
    parts: tuple[Materializer, Queue], batch: list[Record], shard: ShardName, crash: Fault, k: int
) -> bool:
    """Deliver once, and die at the k-th attempt of any kind; whether it came to that."""
    materializer, queue = parts
    dead = chain(repeat(None, k), [crash], repeat(Fault(Kind.CRASH)))
    try:
        with faults(materializer.dynamo.client, queue.client, plan=dead):
            materializer.apply(batch, shard)
    except Crash:
        return True
    return False


def _expect_all(store: Store, queue: Queue, counters: list[str]) -> None:
    item = store.item(store.counters, keys.total_key(counters[1])) or {}
    store.dynamo().put(Put(store.counters, {**item, "events": 0}))
    aside = queue.records()
    for counter in counters:
        mine = [r for r in aside if r["dynamodb"]["Keys"]["counter"]["S"] == counter]
        expect_total(store, counter, mine)


@judged(watermark_left_out_of_the_condition, quarantine_passed_by)
def test_p1_a_crash_at_any_call_loses_and_doubles_nothing(
    rule: Rule, store: Store, queue: Queue
) -> None:
    """Before the call or right after it, then delivered again: every number is right."""
    with rule.watched():
        for applied in (False, True):
            for k in count():
                shard, batch, counters = _batch(store, f"n{uuid4().hex[:8]}")
                materializer = replace(store.materializer(), quarantine=queue.quarantine)
                crash = Fault(Kind.CRASH, applied)
                died = _crash((materializer, queue), batch, shard, crash, k)
                if died:
                    deliver(materializer, batch, shard)
                _expect_all(store, queue, counters)
                if not died:
                    assert k > 10  # three totals, five halvings, four records aside, the progress
                    break


@judged(watermark_left_out_of_the_condition)
def test_p1_a_crash_then_half_a_batch_then_the_rest(rule: Rule, store: Store, queue: Queue) -> None:
    """After a failure the service may deliver halves: they fit what the dead one left behind."""
    with rule.watched():
        for k in (1, 2, 4, 6, 8):
            shard, batch, counters = _batch(store, f"n{uuid4().hex[:8]}")
            materializer = replace(store.materializer(), quarantine=queue.quarantine)
            crash = Fault(Kind.CRASH, applied=True)
            assert _crash((materializer, queue), batch, shard, crash, k)
            for half in (batch[:4], batch[4:]):
                deliver(materializer, half, shard)
            _expect_all(store, queue, counters)
