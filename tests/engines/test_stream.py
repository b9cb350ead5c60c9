"""What the stream shows of the ledger, and what the filter lets through."""

from countledger.ledger import keys
from countledger.ledger.entry import Entry
from countledger.ledger.operations import Put
from countledger.producers.event import Event
from tests.engines.differences import Difference
from tests.engines.store import Record, Store


def _all_of(found: object) -> list[Record]:
    assert isinstance(found, dict)
    return [record for records in found.values() for record in records]


def _names(records: list[Record]) -> list[str]:
    return [record["eventName"] for record in records]


def _settle(store: Store, counter: str) -> list[Record]:
    """The counter's records, read past a mark that was written after them."""
    store.recorder().record(Event(f"{counter}/mark", 1))
    store.records(f"{counter}/mark", 1)
    return _all_of(store.records(counter, 0))


def test_an_identical_put_makes_no_record(store: Store, counter: str) -> None:
    """So a batch that is sent again changes no total; where one is made it adds nothing."""
    recorder = store.recorder()
    entry = Entry(
        counter=counter,
        id=recorder.record(Event(counter, 5, "key", note={"a": "b", "c": "d"})).id,
        delta=5,
        at_ms=recorder.clock.now_ms(),
        origin=store.region,
        key="key",
        note={"c": "d", "a": "b"},
    )

    (outcome,) = recorder.sender.send_batch([entry])

    assert getattr(outcome, "status", None) == "recorded"
    records = _settle(store, counter)
    if store.engine.has(Difference.NO_OP_PUT_WRITES_A_RECORD):
        assert _names(records) == ["INSERT", "MODIFY"]
    else:
        assert _names(records) == ["INSERT"]
    for shard, batch in store.records(counter, 1).items():
        store.materializer().apply(batch, shard)
    total = store.totals().read(counter)
    assert (total.total, total.events, total.entries) == (5, 1, 1)


def test_a_refused_put_makes_no_record(store: Store, counter: str) -> None:
    """A duplicate is no news."""
    recorder = store.recorder()
    recorder.record(Event(counter, 5, "key"))
    recorder.record(Event(counter, 5, "key"))

    assert _names(_settle(store, counter)) == ["INSERT"]


def test_only_entries_pass_the_filter(store: Store, counter: str) -> None:
    """Neither a namespace nor a head nor a removal reaches the materializer."""
    store.recorder().record(Event(counter, 5, "key"))
    head = {**keys.head_key(counter), "generation": 1}
    store.door().put(Put(store.ledger, head))
    (item,) = store.entry_items(counter)
    key = {"counter": {"S": counter}, "entry": {"S": item["entry"]}}
    store.client().delete_item(TableName=store.ledger, Key=key)

    records = _settle(store, counter)

    assert _names(records) == ["INSERT"]
    assert records[0]["dynamodb"]["NewImage"]["delta"] == {"N": "5"}
    namespace = keys.NAMESPACE_PREFIX + keys.namespace_of(counter)
    assert _all_of(store.records(namespace, 0)) == []


def test_records_of_a_counter_are_in_order(store: Store, counter: str) -> None:
    """Sequence numbers rise, in each shard, in the order of the writes."""
    recorder = store.recorder()
    for delta in range(1, 21):
        recorder.record(Event(counter, delta))

    deltas: list[str] = []
    for records in store.records(counter, 20).values():
        numbers = [int(record["dynamodb"]["SequenceNumber"]) for record in records]
        assert numbers == sorted(set(numbers))
        deltas += [record["dynamodb"]["NewImage"]["delta"]["N"] for record in records]
    assert sorted(deltas, key=int) == [str(delta) for delta in range(1, 21)]
