"""What the ledger holds when the ingest's writes go wrong, it dies, or a batch comes again."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Final

import pytest

from countledger.ledger.entry import Entry
from countledger.ledger.ids import new_id
from countledger.ledger.keys import namespace_of
from countledger.ledger.limits import HORIZON_DEFAULT_MS
from countledger.producers.event import Event, make_entry
from countledger.producers.ingest import entries, ingest
from countledger.producers.ingest.entries import EntryWriter
from countledger.producers.ingest.entries import RejectionKind as Why
from countledger.producers.ingest.ingest import Ingest
from countledger.producers.kinesis import message
from countledger.producers.kinesis.aggregate import pack
from tests.engines.clock import HandClock
from tests.engines.store import Store
from tests.faults.canary import Rule, judged
from tests.faults.injection import Fault, Kind, faults
from tests.faults.numbers import expect_sum
from tests.faults.product import recorder_of
from tests.unit.producers.ingest.world import MemoryQuarantine, law_holds
from tests.unit.producers.kinesis.streams import delivered

# ---- rules to switch off ----


def an_id_for_every_delivery(patch: pytest.MonkeyPatch) -> None:
    """The id is made where the record is read, not where the entry was made."""
    real = message.decode

    def decode(data: bytes, *, arrived_ms: int, origin: str) -> Entry:
        entry = real(data, arrived_ms=arrived_ms, origin=origin)
        return replace(entry, id=new_id(entry.at_ms))

    patch.setattr(entries, "decode", decode)


def failures_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A batch is done with, whatever became of its writes."""
    patch.setattr(ingest, "_retry_from", lambda *_: None)


# ---- what is delivered ----

OPERATIONS: Final = pytest.mark.parametrize("operation", ["BatchWriteItem", "PutItem"])


def ingest_of(store: Store, clock: HandClock) -> Ingest:
    """The ingest of a new process."""
    sender = recorder_of(store, clock).sender
    return Ingest(EntryWriter(sender), MemoryQuarantine(), store.region)


def records_of(counter: str, operation: str, clock: HandClock) -> list[dict[str, Any]]:
    """Four records of five entries each, of +7: with ids for batches, with keys for puts."""
    made = [
        message.bound(
            make_entry(
                Event(counter, 7, f"key-{n}" if operation == "PutItem" else None),
                now_ms=clock.now_ms(),
                origin="here",
                new_id=new_id,
            )
        )
        for n in range(20)
    ]
    packed = [next(pack(made[start : start + 5])) for start in range(0, 20, 5)]
    return [
        delivered(one.data, sequence=n, arrived_s=clock.now_ms() / 1_000)
        for n, one in enumerate(packed, start=1)
    ]


def apply(one: Ingest, records: Sequence[dict[str, Any]]) -> ingest.IngestOutcome:
    """Deliver a batch."""
    outcome = one.apply(records, stream="stream", shard="shard")
    assert law_holds(outcome)
    return outcome


def known(one: Ingest, counter: str) -> Ingest:
    """Its namespace is made, so that only entries meet the faults."""
    one.writer.sender.namespaces.create(namespace_of(counter))
    return one


def writer_of(one: Ingest) -> Any:  # noqa: ANN401 - a boto3 client
    """The client that entries go through."""
    return one.writer.sender.dynamo.client


# ---- laws ----


@judged(an_id_for_every_delivery)
@OPERATIONS
def test_p1_a_batch_that_comes_again_counts_once(
    rule: Rule, store: Store, counter: str, operation: str
) -> None:
    """A shard is delivered again after any failure of the function, and from its start by hand."""
    clock = HandClock()
    records = records_of(counter, operation, clock)
    with rule.watched():
        for _ in range(2):
            apply(known(ingest_of(store, clock), counter), records)
        expect_sum(store, counter, [7] * 20)


@judged(failures_forgotten)
@OPERATIONS
def test_p1_what_is_not_reported_is_in_the_ledger(
    rule: Rule, store: Store, counter: str, operation: str
) -> None:
    """Throttled without end: the report says from where to begin again, and nothing is lost."""
    clock = HandClock()
    one = known(ingest_of(store, clock), counter)
    records = records_of(counter, operation, clock)
    with rule.watched():
        with faults(writer_of(one), at=operation, plan=repeat(Fault(Kind.THROTTLE))):
            outcome = apply(one, records)
        left = len(records) if outcome.retry_from is None else outcome.retry_from
        rest = apply(known(ingest_of(store, clock), counter), records[left:])
        assert outcome.payloads + rest.payloads == 20
        expect_sum(store, counter, [7] * 20)


def test_p2_a_backlog_beyond_the_horizon_is_never_written(store: Store, counter: str) -> None:
    """What may have been merged since is not counted again, whoever delivers it."""
    clock = HandClock()
    records = records_of(counter, "BatchWriteItem", clock)
    first = known(ingest_of(store, clock), counter)
    clock.move_ms(HORIZON_DEFAULT_MS + 1)

    outcome = apply(first, records)

    assert outcome.quarantined == {Why.EXPIRED: 20}
    expect_sum(store, counter, [])
