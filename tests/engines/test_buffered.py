"""What a buffer's entries cost and come to, on every engine."""

from countledger.ledger import keys
from countledger.ledger.limits import SECOND_MS
from countledger.producers.buffer.producer import BufferedProducer
from countledger.producers.buffer.settings import Buffering
from tests.engines.store import Store

COALESCING = Buffering(linger_ms=30 * SECOND_MS, coalesce=True)


def add_all(
    store: Store, buffering: Buffering, events: list[tuple[str, int]]
) -> tuple[float, float]:
    """Add events through a buffer; the write and read units that its entries took."""
    recorder = store.recorder()
    for name in {keys.namespace_of(counter) for counter, _ in events}:
        recorder.sender.namespaces.create(name)
    with BufferedProducer(recorder.connection, buffering) as producer:
        for counter, delta in events:
            producer.add(counter, delta)
    meter = recorder.sender.dynamo.meter
    return meter.write_units, meter.read_units


def test_p3_totals_and_exact_sums_count_the_events_of_an_entry(store: Store, counter: str) -> None:
    """Also of events that cancel each other out: their sum is nothing, they are not."""
    add_all(store, COALESCING, [(counter, 5), (counter, -2), (counter, -3)])
    add_all(store, COALESCING, [(counter, 4), (counter, 3)])

    for shard, records in store.records(counter, 2).items():
        store.materializer().apply(records, shard)
    total, exact = store.totals().read(counter), store.exact().read(counter)

    assert (total.value, total.events, total.entries) == (7, 5, 2)
    assert (exact.value, exact.events, exact.entries) == (7, 5, 2)
