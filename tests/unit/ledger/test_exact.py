"""The exact sum: its five steps against a compactor that works while it reads."""

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.infra.memory.tables import key_of
from countledger.ledger import amount, keys
from countledger.ledger.attributes import Item
from countledger.ledger.entry import Entry, encode_entry
from countledger.ledger.errors import BadCounterName, CorruptItem, ServiceFailed
from countledger.ledger.exact import (
    NO_HEAD,
    Covered,
    ExactAccumulator,
    ExactReader,
    Head,
    decode_head,
    moved_too_far,
)
from countledger.ledger.ids import id_of_key
from countledger.ledger.operations import Put, Query
from tests.unit.connections import connection_on
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import Get, MemoryClient, at

TABLE = "ledger"
COUNTER = "a:b"


def _head(text: str) -> Head:
    generation, run, incarnation = text.split() if text else ("0", "", "")
    return Head(generation=int(generation), run=run, incarnation=incarnation)


@pytest.mark.parametrize(
    ("first", "second", "far"),
    [
        ("", "", False),
        ("", "1 r a", False),
        ("3 r a", "3 r a", False),
        ("3 r a", "4 q a", False),
        ("", "2 r a", True),
        ("3 r a", "9 r a", True),
        ("3 r a", "2 r a", True),
        ("3 r a", "", True),
        ("1 r a", "", True),
        ("3 r a", "3 q b", True),
        ("3 r a", "4 q b", True),
    ],
)
def test_a_read_is_valid_if_one_generation_at_most_was_published(
    first: str, second: str, *, far: bool
) -> None:
    """Between two, entries may have been covered and deleted unseen; and in a deletion all are."""
    assert moved_too_far(_head(first), _head(second)) is far


_AMOUNTS = st.one_of(
    st.integers(-(10**37), 10**37),
    st.decimals(allow_nan=False, allow_infinity=False, places=18, min_value=-(10**19)),
).filter(lambda value: value != 0 and amount.fits(value))
_ENTRIES = st.lists(st.tuples(_AMOUNTS, st.integers(1, 9), st.sampled_from(["", "1", "2", "12"])))


def _entry(delta: int | Decimal, events: int = 1, at_ms: int = 7) -> Entry:
    value = amount.canonical(delta)
    return Entry(counter=COUNTER, id="i", delta=value, at_ms=at_ms, origin="here", events=events)


@given(_ENTRIES)
def test_what_a_head_covers_is_left_out(drawn: list[tuple[int | Decimal, int, str]]) -> None:
    entries = {f"e#{n}": _entry(delta, events) for n, (delta, events, _) in enumerate(drawn)}
    covered = {
        number: {
            key: Covered(entry.delta)
            for (key, entry), (_, _, heads) in zip(entries.items(), drawn, strict=True)
            if number in heads
        }
        for number in ("1", "2")
    }
    seen = ExactAccumulator(Head(generation=1, covers=covered["1"]))
    for key, entry in entries.items():
        seen.note(key, entry)

    seen.leave_out(Head(generation=2, covers=covered["2"]))

    left = [e for k, e in entries.items() if k not in covered["1"] and k not in covered["2"]]
    assert seen.sum == amount.total_of(entry.delta for entry in left)
    assert (seen.events, seen.entries) == (sum(entry.events for entry in left), len(left))
    assert seen.read == len(entries)


def test_under_a_bare_key_only_the_entry_of_that_time_is_left_out() -> None:
    for at_ms, left in ((7, 0), (8, 1)):
        seen = ExactAccumulator(NO_HEAD)
        seen.note("e#k", _entry(5, at_ms=at_ms))

        seen.leave_out(Head(generation=1, covers={"e#k": Covered(5, at_ms=7)}))

        assert seen.entries == left


def test_an_entry_takes_less_than_a_hundred_bytes() -> None:
    seen, count = ExactAccumulator(NO_HEAD), 20_000
    entry = _entry(5)
    tracemalloc.start()
    for number in range(count):
        seen.note(f"e#01a3185c-5007-7000-8000-{number:012x}", entry)
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept_bytes < 100 * count


def _entry_item(number: int, delta: int, events: int = 1) -> Item:
    entry = replace(_entry(delta, events, NOW_MS), id=id_of_key(str(number)))
    item = encode_entry(entry, 1)
    return {name: value for name, value in item.items() if value is not None}


@dataclass(slots=True)
class Compactor:
    """The verbs of a run, each a step that can be put anywhere."""

    dynamo: MemoryClient
    take: int = 2

    def head(self) -> Head:
        return decode_head(self.dynamo.tables[TABLE].get((COUNTER, keys.HEAD)))

    def publish(self) -> None:
        """The next generation takes in some entries, once those of the last are gone."""
        head = self.head()
        there = [i for i in self.dynamo.items(TABLE) if i["entry"].startswith(keys.ENTRY_PREFIX)]
        if any(i["entry"] in head.covers for i in there):
            return
        taken = there[: self.take]
        self.dynamo.tables[TABLE][COUNTER, keys.HEAD] = {
            **keys.head_key(COUNTER),
            "generation": head.generation + 1,
            "run": "r",
            "incarnation": "r",
            "sum": int(head.sum) + sum(i["delta"] for i in taken),
            "events": head.events + len(taken),
            "entries": head.entries + len(taken),
            "covers": {i["entry"]: [i["delta"], i["at"]] for i in taken},
        }

    def retire(self) -> None:
        """Delete one covered entry, the last one first."""
        for key in reversed(list(self.head().covers)):
            if self.dynamo.tables[TABLE].pop((COUNTER, key), None) is not None:
                return


def _busy(deltas: Sequence[int], steps: Sequence[str], take: int = 2) -> MemoryClient:
    """A compactor takes one of the steps before each request; a page has one item."""
    items = [_entry_item(number, delta) for number, delta in enumerate(deltas)]
    dynamo = MemoryClient(tables={TABLE: {key_of(item): item for item in items}}, page_items=1)
    compactor, left = Compactor(dynamo, take), list(steps)

    def step(_kind: str, read: Get | Query, request: Callable[[], Any]) -> Any:  # noqa: ANN401
        assert read.consistent, "an eventual read proves nothing"
        for verb in left.pop(0).split() if left else []:
            getattr(compactor, verb)()
        return request()

    dynamo.plans.append(at(step, "get", "query"))
    return dynamo


@settings(max_examples=150, deadline=None)
@given(
    deltas=st.lists(st.integers(-9, 9).filter(bool), max_size=6),
    steps=st.lists(st.sampled_from(["publish", "retire", ""]), max_size=30),
)
def test_the_sum_is_exact_whatever_a_compactor_does_meanwhile(
    deltas: list[int], steps: list[str]
) -> None:
    found = ExactReader(connection_on(_busy(deltas, steps), ledger_table=TABLE)).read(COUNTER)

    assert (found.value, found.events, found.entries) == (sum(deltas), len(deltas), len(deltas))


def _switched_off(dynamo: MemoryClient, rule: str) -> int:
    """The read with one rule left out."""
    reader = ExactReader(connection_on(dynamo, ledger_table=TABLE))
    first = reader._head(dynamo, COUNTER)
    if rule == "covers of the first head":
        first = Head(generation=first.generation)
    seen = reader._entries(dynamo, COUNTER, first)
    second = first if rule == "second head" else reader._head(dynamo, COUNTER)
    seen.leave_out(second)
    return int(second.sum) + int(seen.sum)


@pytest.mark.parametrize(
    ("rule", "steps"),
    [
        ("second head", ["", "publish", "retire"]),
        ("covers of the first head", ["publish", "", "", "retire", "retire", "publish"]),
        ("generation check", ["", "publish", "retire", "retire", "publish", "retire", "retire"]),
    ],
)
def test_without_one_of_its_rules_the_sum_goes_wrong(rule: str, steps: list[str]) -> None:
    deltas = [10**n for n in range(5)]

    assert (
        ExactReader(connection_on(_busy(deltas, steps), ledger_table=TABLE)).read(COUNTER).value
        == 11111
    )
    assert _switched_off(_busy(deltas, steps), rule) != 11111


def test_a_read_that_is_overtaken_starts_over_twenty_times() -> None:
    dynamo = _busy([5], ["", "publish publish"] * 200, take=0)

    with pytest.raises(ServiceFailed, match="overtook 20 exact reads"):
        ExactReader(connection_on(dynamo, ledger_table=TABLE)).read(COUNTER)


def test_a_sum_says_what_it_cost_and_counts_events() -> None:
    dynamo = MemoryClient()
    dynamo.put_batch(TABLE, [_entry_item(1, 5, events=3), _entry_item(2, -1)])

    found = ExactReader(connection_on(dynamo, ledger_table=TABLE)).read(COUNTER)

    assert (found.value, found.events, found.entries, found.entries_read) == (4, 4, 2, 2)
    assert (found.generation, found.read_units) == (0, 2.0)
    assert dynamo.meter.read_units == found.read_units


@pytest.mark.parametrize(
    ("item", "counter", "error"),
    [
        ({**_entry_item(1, 5), "delta": "5"}, COUNTER, CorruptItem),
        ({**keys.head_key("a:c"), "generation": 1}, "a:c", CorruptItem),
        (_entry_item(1, 5), "a#b", BadCounterName),
    ],
    ids=["malformed entry", "malformed head", "bad name"],
)
def test_what_cannot_be_read_is_never_left_out_of_a_sum(
    item: Item, counter: str, error: type[Exception]
) -> None:
    dynamo = MemoryClient()
    dynamo.put(Put(TABLE, item))

    with pytest.raises(error):
        ExactReader(connection_on(dynamo, ledger_table=TABLE)).read(counter)
