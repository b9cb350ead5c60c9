"""One event goes into the ledger by one conditional put; what stands there already decides."""

from datetime import UTC, datetime

import pytest

from countledger.ledger import keys
from countledger.ledger.entry import decode_entry, encode_entry
from countledger.ledger.errors import (
    ConditionFailed,
    TableNotFound,
)
from countledger.ledger.operations import Absent, Add, Assign, Compare, Put, Update
from countledger.producers.event import Event, Status, make_entry
from tests.engines.store import Store


def test_a_failed_put_brings_the_item_that_stands_in_its_way(store: Store, counter: str) -> None:
    """The condition's failure carries all of the old item: no second read is needed."""
    item = {"counter": counter, "entry": "e#1", "delta": 5, "raw": b"\x00\xff", "map": {"a": "b"}}
    dynamo = store.dynamo()
    dynamo.put(Put(store.ledger, item, Absent("entry")))

    with pytest.raises(ConditionFailed) as failed:
        dynamo.put(Put(store.ledger, {**item, "delta": 6}, Absent("entry")))

    assert failed.value.item == item
    assert store.item(store.ledger, {"counter": counter, "entry": "e#1"}) == item


def test_a_failed_update_brings_the_item_and_changes_nothing(store: Store, counter: str) -> None:
    """So does an update's; an update that goes through brings the item as it is now."""
    key = keys.total_key(counter)
    dynamo = store.dynamo()
    made = dynamo.update(
        Update(store.counters, key, (Add("total", 2), Assign("w", b"\x01")), returning="ALL_NEW")
    )
    assert made == {**key, "total": 2, "w": b"\x01"}

    with pytest.raises(ConditionFailed) as failed:
        dynamo.update(Update(store.counters, key, (Add("total", 1),), Compare("w", "<", b"\x01")))

    assert failed.value.item == made
    assert store.item(store.counters, key) == made


def test_a_failed_condition_without_an_item_says_so(store: Store, counter: str) -> None:
    with pytest.raises(ConditionFailed) as failed:
        store.dynamo().update(
            Update(
                store.counters, keys.total_key(counter), (Add("total", 1),), Compare("v", "=", 2)
            )
        )

    assert failed.value.item is None


def test_the_same_key_and_delta_is_a_duplicate(store: Store, counter: str) -> None:
    first = store.recorder().record(Event(counter, 3, "key"))
    again = store.recorder().record(Event(counter, 3, "key"))
    abroad = store.recorder(region="eu-far-1").record(Event(counter, 3, "key"))

    assert [first.status, again.status, abroad.status] == [
        Status.RECORDED,
        Status.DUPLICATE,
        Status.DUPLICATE,
    ]
    assert first.id == again.id == abroad.id
    assert store.exact().read(counter).value == 3
    assert store.exact().read(counter).entries == 1


def test_an_entry_comes_back_as_it_was_made(store: Store, counter: str) -> None:
    """Every attribute survives, and those that were not given are absent."""
    recorder = store.recorder()
    note = {"who": "Zoë", "empty": ""}
    occurred_at = datetime(1931, 5, 4, 3, 2, 1, tzinfo=UTC)
    event = Event(counter, -7, "key \N{SNOWMAN}", occurred_at=occurred_at, note=note)
    made = make_entry(
        event, now_ms=recorder.connection.clock.now_ms(), origin=store.region, new_id=str
    )

    recorder.resend(made)

    (item,) = store.entry_items(counter)
    assert decode_entry(item) == made
    assert item == {n: v for n, v in encode_entry(made, spread=1).items() if v is not None}
    assert (made.occurred_at, made.note, made.key) == (occurred_at, note, "key \N{SNOWMAN}")


def test_a_table_that_is_not_there_is_named(store: Store, counter: str) -> None:
    item = {"counter": counter, "entry": "e#1"}
    with pytest.raises(TableNotFound, match="no-such-table"):
        store.dynamo().put(Put("no-such-table", item))
