"""The table and the stream of the simulation behave as those of the engines do.

The simulation runs the product against a table of its own. Random operations of every kind that the
product uses are carried out on both: each must be answered alike, and leave the same items and the
same records. Where an engine differs from DynamoDB, the difference has its name.
"""

from collections.abc import Mapping
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from countledger.ledger import keys
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import (
    ConditionFailed,
    RequestRejected,
    TokenMismatch,
    TransactionCancelled,
    Unclear,
)
from countledger.ledger.operations import (
    Absent,
    Add,
    AllOf,
    AnyOf,
    Assign,
    BeginsWith,
    Between,
    Check,
    Clause,
    Compare,
    Condition,
    Delete,
    Drop,
    Lacks,
    Put,
    Query,
    SizeAtMost,
    Update,
    Write,
)
from tests.engines.differences import Difference
from tests.engines.store import Store
from tests.simulation.calm import calm_world
from tests.simulation.shape import COUNTERS, LEDGER
from tests.simulation.world import World

_IDS = ["00000000-0000-7000-8000-00000000000" + digit for digit in "12345"]
_OPERATORS = ("=", "<", "<=", ">", ">=")


def _both(store: Store) -> tuple[World, DynamoClient]:
    """A simulated world whose tables bear the names of the engine's, and its client."""
    world = calm_world(watched=False)
    for tables in (world.copies["home"], world.transactions["home"].tables):
        tables[store.ledger], tables[store.counters] = tables[LEDGER], tables[COUNTERS]
    return world, world.dynamo(world.process("home", "contract"), retries=False)


def _condition(random: Random, store: Store) -> Condition | None:
    small = random.randint(0, 4)
    compare = Compare("total", random.choice(_OPERATORS), small)  # type: ignore[arg-type]
    choices: list[Condition | None] = [
        None,
        Absent("part"),
        Absent("mark"),
        compare,
        AnyOf(Absent("total"), compare),
        AllOf(Compare("part", "=", "total"), compare),
        Compare("mark", "<", bytes([small, 0])),
        Compare("incarnation", "<>", "a"),
        Lacks("tokens", f"t{small}"),
        SizeAtMost("tokens", small),
        Between("total", small, small + 1),
    ]
    chosen = random.choice(choices)
    if isinstance(chosen, SizeAtMost) and store.engine.has(Difference.SIZE_FAILS_ON_ABSENT):
        return None
    return chosen


def _update(random: Random, store: Store, key: dict[str, str], *, answered: bool) -> Update:
    clauses: list[Clause] = [
        Add("total", random.choice([1, -2, Decimal("0.5")])),
        Assign("mark", bytes([random.randint(0, 4), 1])),
        Assign("incarnation", random.choice("ab")),
        Add("tokens", {f"t{random.randint(0, 3)}"}),
        Drop("gone"),
        Assign("gone", [1, {"a": "b"}]),
    ]
    chosen = (random.choice(clauses), Add("version", 1))
    returning = "ALL_NEW" if answered else "NONE"
    return Update(store.counters, key, chosen, _condition(random, store), returning)  # type: ignore[arg-type]


def _write(random: Random, store: Store, name: str, *, answered: bool = True) -> Write:
    """A write of some item, of either table."""
    if random.random() < 0.4:
        entry = {"counter": name, "entry": f"e#{random.choice(_IDS)}"}
        item = {**entry, "delta": random.choice([1, 2]), "at": 5, "origin": "here"}
        kind = random.random()
        if kind < 0.5:
            return Put(store.ledger, item, Absent("entry"))
        if kind < 0.7:
            return Put(store.ledger, item)
        return Delete(store.ledger, entry, Compare("delta", "=", random.choice([1, 2])))
    key = keys.total_key(f"{name}{random.choice('xy')}")
    kind = random.random()
    if kind < 0.7:
        return _update(random, store, key, answered=answered)
    if kind < 0.85:
        item = {**key, "total": random.randint(0, 4), "none": None, "tokens": {"t1", "t2"}}
        return Put(store.counters, item, _condition(random, store))
    return Delete(store.counters, key, _condition(random, store))


def _plain(dynamo: DynamoClient, write: Write) -> object:
    if isinstance(write, Update):
        return dynamo.update(write)
    if isinstance(write, Put):
        dynamo.put(write)
        return None
    if isinstance(write, Delete):
        dynamo.delete(write)
        return None
    raise TypeError(f"{write!r} is sent in transactions only")


def _transaction(random: Random, store: Store, name: str) -> list[Write]:
    found: dict[tuple[str, ...], Write] = {}
    for _ in range(random.randint(1, 3)):
        write = _write(random, store, name, answered=False)
        item = write.item if isinstance(write, Put) else write.key
        place = (write.table, item["counter"], str(item.get("entry", item.get("part"))))
        found[place] = write
    head = keys.head_key(name)
    check = Check(store.ledger, head, Absent("entry"))
    return [*found.values(), check]


def _read(random: Random, dynamo: DynamoClient, store: Store, name: str) -> object:
    prefix = Compare("counter", "=", name)
    ranges: list[Condition] = [
        AllOf(prefix, BeginsWith("entry", "e#")),
        AllOf(prefix, Between("entry", f"e#{_IDS[1]}", f"e#{_IDS[3]}")),
        prefix,
    ]
    query = Query(
        store.ledger,
        random.choice(ranges),
        consistent=True,
        forward=random.random() < 0.7,
        page_size=random.choice([None, 1, 2]),
    )
    return [item for page in dynamo.pages(query) for item in page]


def _act(random: Random, dynamo: DynamoClient, store: Store, name: str) -> object:
    """One operation; the same random numbers make the same one."""
    kind = random.random()
    totals = [keys.total_key(f"{name}{letter}") for letter in "xyz"]
    if kind < 0.55:
        return _plain(dynamo, _write(random, store, name))
    if kind < 0.75:
        writes = _transaction(random, store, name)
        return dynamo.transact(writes, f"{name[-8:]}{random.getrandbits(64)}")
    if kind < 0.85:
        return _read(random, dynamo, store, name)
    if kind < 0.9:
        found = dynamo.get_many(store.counters, totals, consistent=True)
        return sorted(found, key=lambda item: str(item["counter"]))
    if kind < 0.95:
        return dynamo.transact_get(store.counters, totals)
    items = [{"counter": name, "entry": f"e#{one}", "delta": 7, "at": 5} for one in _IDS[:2]]
    return dynamo.put_batch(store.ledger, items)


def _answer(random: Random, dynamo: DynamoClient, store: Store, name: str) -> tuple[str, object]:
    try:
        return "done", _act(random, dynamo, store, name)
    except ConditionFailed as failed:
        return "refused", failed.item
    except TransactionCancelled as cancelled:
        return "cancelled", [(one.code, one.item) for one in cancelled.reasons]
    except RequestRejected:
        return "rejected", None


def test_both_tables_give_the_same_answers(store: Store, counter: str) -> None:
    world, simulated = _both(store)
    engine = store.dynamo()
    answers = []

    for number in range(200):
        seed = f"{number}"
        expected = _answer(Random(seed), engine, store, counter)  # noqa: S311 - a course of events
        assert _answer(Random(seed), simulated, store, counter) == expected, number  # noqa: S311
        answers.append(expected[0])
        world.schedule.pass_time(1_000)

    assert all(answers.count(one) > 10 for one in ("done", "refused", "cancelled"))
    table = world.copies["home"][LEDGER]
    assert [table.items[key] for key in sorted(table.items)] == store.entry_items(counter)
    _expect_the_same_records(store, world, counter)


def _expect_the_same_records(store: Store, world: World, counter: str) -> None:
    """Per item, in its order; the mapping's filter leaves out removals."""
    made: dict[str, list[Any]] = {}
    for log in world.streams["home"].shards.values():
        for one in (record.made() for record in log.records):
            if one["eventName"] != "REMOVE":
                entry = one["dynamodb"]["Keys"]["entry"]["S"]
                made.setdefault(entry, []).append((one["eventName"], one["dynamodb"]["NewImage"]))
    shown: dict[str, list[Any]] = {}
    for batch in store.records(counter, sum(map(len, made.values()))).values():
        for shown_one in batch:
            images: Mapping[str, Any] = shown_one["dynamodb"]
            silent = store.engine.has(Difference.NO_OP_PUT_WRITES_A_RECORD)
            if silent and images.get("OldImage") == images["NewImage"]:
                continue
            entry = images["Keys"]["entry"]["S"]
            shown.setdefault(entry, []).append((shown_one["eventName"], images["NewImage"]))
    assert shown == made


def test_a_size_that_is_not_there_holds_of_nothing(store: Store, counter: str) -> None:
    """No condition on it holds, and nothing breaks; where it does the difference has its name."""
    _, simulated = _both(store)
    small = Put(store.counters, {**keys.total_key(counter), "a": 1}, SizeAtMost("tokens", 3))
    for dynamo in (simulated, store.dynamo()):
        refused: type[Exception] = ConditionFailed
        if dynamo is not simulated and store.engine.has(Difference.SIZE_FAILS_ON_ABSENT):
            refused = Unclear  # whatever breaks after the request may have left
        with pytest.raises(refused):
            dynamo.put(small)


def test_a_token_counts_once_for_ten_minutes(store: Store, counter: str) -> None:
    world, simulated = _both(store)
    token = counter[-36:]
    key = keys.total_key(counter)
    add: list[Write] = [Update(store.counters, key, (Add("total", 1),))]
    other: list[Write] = [Update(store.counters, key, (Add("total", 2),))]

    def ask(dynamo: DynamoClient) -> list[object]:
        answers: list[object] = [
            dynamo.transact(add, counter[-36:]),
            dynamo.transact(add, counter[-36:]),
        ]
        try:
            answers.append(dynamo.transact(other, counter[-36:]))
        except TokenMismatch:
            answers.append("mismatch")
        return answers

    assert ask(simulated) == [True, False, "mismatch"]
    world.schedule.pass_time(601_000)
    assert simulated.transact(other, token)
    if not store.engine.has(Difference.IGNORES_TOKENS):
        assert ask(store.dynamo()) == [True, False, "mismatch"]
