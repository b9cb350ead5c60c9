"""The grammar of names and keys fits the service up to its bounds."""

from datetime import UTC, datetime

import pytest

from countledger.ledger.ids import IdempotencyKey
from countledger.ledger.limits import COUNTER_NAME_MAX_BYTES, KEY_MAX_BYTES, NOTE_MAX_BYTES
from countledger.producers.event import Event
from tests.engines.store import Store

SNOWMAN = "\N{SNOWMAN}"  # three bytes of UTF-8


def test_names_and_keys_at_their_bounds_count(store: Store, namespace: str) -> None:
    """A name of 512 bytes, a key and a note of 1,024 each: recorded, summed and materialized."""
    start = f"{namespace}:"
    count, rest = divmod(COUNTER_NAME_MAX_BYTES - len(start), 3)
    counter = start + "x" * rest + SNOWMAN * count
    key = SNOWMAN * (KEY_MAX_BYTES // 3) + "k"
    assert (len(counter.encode()), len(key.encode())) == (512, 1024)
    note = {"n" * 24: "v" * (NOTE_MAX_BYTES - 24)}

    receipt = store.recorder().record(Event(counter, 5, key, note=note))
    again = store.recorder().record(Event(counter, 5, key, note=note))

    assert (receipt.status, again.status) == ("recorded", "duplicate")
    assert store.exact().read(counter).value == 5
    for shard, records in store.records(counter, 1).items():
        store.materializer().apply(records, shard)
    assert store.totals().read(counter).value == 5
    assert store.totals().read_many([counter])[counter].value == 5


@pytest.mark.parametrize("spread", [1, 16, 256])
def test_odd_names_and_keys_are_kept_apart(store: Store, namespace: str, spread: int) -> None:
    """Names and keys that differ by one odd character are different counters and entries."""
    store.namespaces().create(namespace, spread=spread)
    recorder, now = store.recorder(), datetime.now(UTC)
    odd = [
        "a",
        "A",
        "a a",
        "a:b",
        "e:",
        "é",
        "e",
        "'\"\\%_*",
        SNOWMAN,
    ]
    for number, text in enumerate(odd, 1):
        recorder.record(Event(f"{namespace}:{text}", number, "one"))
        recorder.record(Event(f"{namespace}:keys", number, text))
        recorder.record(Event(f"{namespace}:keys", number, IdempotencyKey(text, now)))

    sums = [store.exact().read(f"{namespace}:{text}").value for text in odd]
    assert sums == list(range(1, len(odd) + 1))
    together = store.exact().read(f"{namespace}:keys")
    assert (together.value, together.entries) == (2 * sum(sums), 2 * len(odd))
