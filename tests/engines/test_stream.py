"""What the stream shows of the ledger, and what the filter lets through."""

from countledger.ledger import keys
from countledger.ledger.entry import Entry
from countledger.ledger.operations import Delete, Put
from countledger.producers.event import Event
from countledger.producers.sender import ledgers_of
from tests.engines.differences import Difference
from tests.engines.store import Record, Store


def _all_of(found: object) -> list[Record]:
    assert isinstance(found, dict)
    return [record for records in found.values() for record in records]


def _names(records: list[Record]) -> list[str]:
    return [record["eventName"] for record in records]


def _before_a_mark(store: Store, counter: str) -> list[Record]:
    """The counter's records so far: those before an entry that is written now."""
    mark = store.recorder().record(Event(counter, 1000)).id

    def is_mark(record: Record) -> bool:
        return bool(record["dynamodb"]["Keys"]["entry"]["S"] == keys.entry_key(mark, 1))

    store.stream_records(is_mark, 1)
    return [record for record in _all_of(store.records(counter, 1)) if not is_mark(record)]


def test_an_identical_put_makes_no_record(store: Store, counter: str) -> None:
    """So a batch that is sent again changes no total; where one is made it adds nothing."""
    recorder = store.recorder()
    entry = Entry(
        counter=counter,
        id=recorder.record(Event(counter, 5, "key", note={"a": "b", "c": "d"})).id,
        delta=5,
        at_ms=recorder.connection.clock.now_ms(),
        origin=store.region,
        key="key",
        note={"c": "d", "a": "b"},
    )

    namespaces, _ = ledgers_of([counter], recorder.sender.namespaces, ())

    assert recorder.sender.send_batch([entry], namespaces) == {}
    records = _before_a_mark(store, counter)
    if store.engine.has(Difference.NO_OP_PUT_WRITES_A_RECORD):
        assert _names(records) == ["INSERT", "MODIFY"]
    else:
        assert _names(records) == ["INSERT"]
    for shard, batch in store.records(counter, 1).items():
        store.materializer().apply(batch, shard)
    total = store.totals().read(counter)
    assert (total.value, total.events, total.entries) == (1005, 2, 2)


def test_a_refused_put_makes_no_record(store: Store, counter: str) -> None:
    recorder = store.recorder()
    recorder.record(Event(counter, 5, "key"))
    recorder.record(Event(counter, 5, "key"))

    assert _names(_before_a_mark(store, counter)) == ["INSERT"]


def test_only_entries_pass_the_filter(store: Store, counter: str) -> None:
    store.recorder().record(Event(counter, 5, "key"))
    head = {**keys.head_key(counter), "generation": 1}
    store.dynamo().put(Put(store.ledger, head))
    (item,) = store.entry_items(counter)
    store.dynamo().delete(Delete(store.ledger, {"counter": counter, "entry": item["entry"]}))

    records = _before_a_mark(store, counter)

    assert _names(records) == ["INSERT"]
    assert records[0]["dynamodb"]["NewImage"]["delta"] == {"N": "5"}
    namespace = keys.NAMESPACE_PREFIX + keys.namespace_of(counter)
    assert _all_of(store.records(namespace, 0)) == []


def test_records_of_a_counter_are_in_order(store: Store, counter: str) -> None:
    recorder = store.recorder()
    for delta in range(1, 21):
        recorder.record(Event(counter, delta))

    deltas: list[str] = []
    for records in store.records(counter, 20).values():
        numbers = [int(record["dynamodb"]["SequenceNumber"]) for record in records]
        assert numbers == sorted(set(numbers))
        deltas += [record["dynamodb"]["NewImage"]["delta"]["N"] for record in records]
    assert sorted(deltas, key=int) == [str(delta) for delta in range(1, 21)]
