"""The client in memory, on which the pure tests rest, judges and changes as the engines do."""

from random import Random

from countledger.consumers.fold import FoldedChange
from countledger.consumers.total_writer import clean_up_of, update_of
from countledger.consumers.watermark import attribute, encode
from countledger.ledger import keys
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import ConditionFailed
from countledger.ledger.expressions import Absent
from countledger.ledger.operations import Put, Update
from tests.engines.store import Store
from tests.unit.ledger.memory import MemoryClient

Answer = tuple[str, object]


def _answer(dynamo: DynamoClient, write: Put | Update) -> Answer:
    try:
        if isinstance(write, Update):
            return "done", dynamo.update(write)
        dynamo.put(write)
    except ConditionFailed as failed:
        return "refused", failed.item
    return "done", None


def _some_write(store: Store, counter: str, random: Random, number: int) -> Put | Update:
    """A write of the product's own, at numbers so small that many are refused."""
    first = random.randint(number // 2, number + 5)
    step = FoldedChange(first, first + random.randint(0, 5), random.randint(-9, 9), 2, 1)
    shard = random.choice(["a", "b", "c"])
    entry = {"counter": counter, "entry": f"e#{random.randint(1, 9)}", "delta": first}
    stale = {attribute(shard): encode(first, 0)}
    writes: list[Put | Update] = [
        update_of(store.counters, counter, step, shard, 0),
        update_of(store.counters, counter, step, shard, 0),
        clean_up_of(store.counters, keys.total_key(counter), stale),
        Put(store.ledger, entry, Absent("entry")),
    ]
    return random.choice(writes)


def test_both_doors_give_the_same_answers(store: Store, counter: str) -> None:
    """A hundred random writes: each refused or done alike, with the same item, to the same end."""
    random = Random(2)  # noqa: S311 - a fixed course of events
    engine, memory = store.dynamo(), MemoryClient()
    refused = 0

    for number in range(100):
        write = _some_write(store, counter, random, number)
        answer = _answer(memory, write)
        assert _answer(engine, write) == answer
        refused += answer[0] == "refused"

    assert 20 < refused < 80
    total = keys.total_key(counter)
    assert store.item(store.counters, total) == memory.get(store.counters, total)
    assert store.entry_items(counter) == memory.items(store.ledger)
