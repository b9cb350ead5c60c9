"""The exact sum: its five steps against a compactor that works while it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countledger.ledger import keys
from countledger.ledger.entry import Entry, encode_entry
from countledger.ledger.errors import BadCounterName, CorruptItem, ServiceFailed
from countledger.ledger.exact import ExactAccumulator, ExactReader, moved_too_far
from countledger.ledger.head import Covered, Head, decode_head
from countledger.ledger.ids import id_of_key
from countledger.ledger.operations import Put, Query, Scan
from tests.unit.ledger.clocks import NOW_MS
from tests.unit.ledger.memory import MemoryClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from countledger.ledger.attributes import Item, Key

TABLE = "ledger"
COUNTER = "a:b"


def _head(text: str) -> Head:
    """Generation, run and incarnation."""
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
def test_a_read_stands_if_one_generation_at_most_was_published(
    first: str, second: str, *, far: bool
) -> None:
    """Between two, entries may have been covered and deleted unseen; and in a deletion all are."""
    assert moved_too_far(_head(first), _head(second)) is far


@given(
    seen=st.dictionaries(st.integers(0, 9).map(str), st.integers(-9, 9), max_size=10),
    first=st.sets(st.integers(0, 9).map(str)),
    second=st.sets(st.integers(0, 9).map(str)),
)
def test_the_sum_is_the_second_head_and_what_neither_covers(
    seen: dict[str, int], first: set[str], second: set[str]
) -> None:
    """As a loop over all entries says it."""
    heads = [
        Head(generation=g, covers=dict.fromkeys(c, Covered(0)))
        for g, c in ((1, first), (2, second))
    ]
    read = ExactAccumulator(heads[0])
    for key, delta in seen.items():
        read.note(key, Entry(counter=COUNTER, id=key, delta=delta, at_ms=1, origin="r", events=2))

    read.leave_out(heads[1])

    kept = [d for k, d in seen.items() if k not in first and k not in second]
    assert (read.sum, read.events, read.entries) == (sum(kept), 2 * len(kept), len(kept))
    assert read.read == len(seen)


def _entry_item(number: int, delta: int, events: int = 1) -> Item:
    entry = Entry(
        counter=COUNTER,
        id=id_of_key(str(number)),
        delta=delta,
        at_ms=NOW_MS,
        origin="r",
        events=events,
    )
    item = encode_entry(entry, 1)
    return {name: value for name, value in item.items() if value is not None}


@dataclass(frozen=True, slots=True)
class BusyClient(MemoryClient):
    """A client behind which somebody works between any two calls and any two items."""

    work: list[Callable[[], None]] = field(default_factory=list)

    def _step(self) -> None:
        if self.work:
            self.work.pop(0)()

    def get(self, table: str, key: Key, *, consistent: bool = False) -> Item | None:
        """One item; strongly consistent, or the five steps prove nothing."""
        assert consistent
        self._step()
        return MemoryClient.get(self, table, key, consistent=consistent)

    def pages(self, read: Query | Scan) -> Iterator[list[Item]]:
        """No snapshot: item after item, as it is when its turn comes."""
        assert isinstance(read, Query)
        assert read.consistent
        self.calls.append("query")
        reached = ""
        while True:
            self._step()
            left = [i for i in self.items(TABLE) if reached < i["entry"] < "f"]
            if not left:
                return
            reached = left[0]["entry"]
            yield [left[0]]


@dataclass(slots=True)
class Compactor:
    """The verbs of a run, each a step that can be put anywhere."""

    dynamo: MemoryClient
    take: int = 2

    def head(self) -> Head:
        """As it stands."""
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


@settings(max_examples=150, deadline=None)
@given(
    deltas=st.lists(st.integers(-9, 9).filter(bool), max_size=6),
    steps=st.lists(st.sampled_from(["publish", "retire", "rest"]), max_size=30),
)
def test_the_sum_is_exact_whatever_a_compactor_does_meanwhile(
    deltas: list[int], steps: list[str]
) -> None:
    """Between any two calls and any two items."""
    dynamo = BusyClient()
    dynamo.put_batch(TABLE, [_entry_item(n, d) for n, d in enumerate(deltas)])
    compactor = Compactor(dynamo)
    verbs = {"publish": compactor.publish, "retire": compactor.retire, "rest": lambda: None}
    dynamo.work.extend(verbs[step] for step in steps)

    found = ExactReader(dynamo, TABLE).read(COUNTER)

    assert (found.sum, found.events, found.entries) == (sum(deltas), len(deltas), len(deltas))


def _switched_off(dynamo: BusyClient, rule: str) -> int:
    """The read with one rule left out."""
    reader = ExactReader(dynamo, TABLE)
    first = reader._head(dynamo, COUNTER)
    if rule == "covers of the first head":
        first = Head(generation=first.generation)
    seen = reader._entries(dynamo, COUNTER, first)
    second = reader._head(dynamo, COUNTER)
    if rule == "second head":
        second = first
    seen.leave_out(second)
    return int(second.sum) + int(seen.sum)


@pytest.mark.parametrize(
    ("rule", "steps"),
    [
        ("second head", ["rest", "publish", "retire"]),
        ("covers of the first head", ["publish", "rest", "rest", "retire", "retire", "publish"]),
        (
            "generation check",
            ["rest", "publish", "retire", "retire", "publish", "retire", "retire"],
        ),
    ],
)
def test_without_one_of_its_rules_the_sum_goes_wrong(rule: str, steps: list[str]) -> None:
    """Each is needed: the same steps, read by the whole rule, are exact."""
    results = []
    for whole in (True, False):
        dynamo = BusyClient()
        dynamo.put_batch(TABLE, [_entry_item(n, 10**n) for n in range(5)])
        compactor = Compactor(dynamo)
        verbs = {"publish": compactor.publish, "retire": compactor.retire, "rest": lambda: None}
        dynamo.work.extend(verbs[step] for step in steps)
        read = (
            ExactReader(dynamo, TABLE).read(COUNTER).sum if whole else _switched_off(dynamo, rule)
        )
        results.append(read == 11111)

    assert results == [True, False]


def test_a_read_that_is_overtaken_starts_over_and_gives_up_in_the_end() -> None:
    """Twenty times: then somebody publishes without end."""
    dynamo = BusyClient()
    dynamo.put_batch(TABLE, [_entry_item(1, 5)])
    compactor = Compactor(dynamo, take=0)
    for _ in range(200):
        dynamo.work.extend([lambda: None, compactor.publish, compactor.publish])

    with pytest.raises(ServiceFailed, match="overtook 20 exact reads"):
        ExactReader(dynamo, TABLE).read(COUNTER)


def test_a_sum_says_what_it_cost_and_counts_events() -> None:
    """Two heads, and the pages of the query."""
    dynamo = MemoryClient()
    dynamo.put_batch(TABLE, [_entry_item(1, 5, events=3), _entry_item(2, -1)])

    found = ExactReader(dynamo, TABLE).read(COUNTER)

    assert (found.sum, found.events, found.entries, found.entries_read) == (4, 4, 2, 2)
    assert (found.generation, found.read_units) == (0, 2.0)
    assert dynamo.meter.read_units == found.read_units


def test_what_cannot_be_read_is_never_left_out_of_a_sum() -> None:
    """A malformed entry, a malformed head, a bad name."""
    dynamo = MemoryClient()
    dynamo.put_batch(TABLE, [{**_entry_item(1, 5), "delta": "5"}])
    reader = ExactReader(dynamo, TABLE)

    with pytest.raises(CorruptItem):
        reader.read(COUNTER)
    dynamo.put(Put(TABLE, {**keys.head_key("a:c"), "generation": 1}))
    with pytest.raises(CorruptItem):
        reader.read("a:c")
    with pytest.raises(BadCounterName):
        reader.read("a#b")
