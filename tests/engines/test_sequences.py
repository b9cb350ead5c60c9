"""Sequences on every engine: what is drawn, what it costs, and thirty-two threads at once."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from countledger.ledger.attributes import Item
from countledger.ledger.clock import SystemClock
from countledger.ledger.errors import (
    SequenceExhausted,
    SequenceExists,
    Throttled,
    WrongKind,
)
from countledger.ledger.limits import SEQUENCE_LAST
from countledger.ledger.namespace import Kind
from countledger.producers.event import Event
from countledger.producers.sequences.sequence import Collection
from countledger.producers.sequences.sequences import Sequences
from tests.engines.differences import Difference
from tests.engines.numbering import all_items, at_once, own_table, sequences_of, units
from tests.engines.store import Store

THREADS = 32


@pytest.fixture
def sequence(counter: str) -> str:
    """A sequence that nobody has used."""
    return counter


@pytest.fixture
def sequences(store: Store) -> Sequences:
    """A process that draws."""
    return sequences_of(store)


@pytest.fixture(params=["N", "S"])
def collection(store: Store, request: pytest.FixtureRequest) -> Iterator[Collection]:
    """An empty collection in a table of an app's own, numbered by numbers or by text."""
    with own_table(store, request.param) as table:
        prefix = None if request.param == "N" else "comment#"
        yield Collection(table, ("post", "p-1"), "place", prefix=prefix, digits=4)


def _threads_are_told(store: Store) -> None:
    if store.engine.has(Difference.LOSES_UPDATES_UNDER_THREADS):
        pytest.skip(Difference.LOSES_UPDATES_UNDER_THREADS.value)


def test_draws_that_follow_each_other_grow_by_one(sequences: Sequences, sequence: str) -> None:
    """From 1, one at a time or in blocks, by whatever way each is drawn."""
    drawn = [sequences.draw(sequence), sequences.draw(sequence)]
    drawn += sequences.draw_block(sequence, 3)
    drawn += [sequences.draw_expected(sequence), sequences.draw_expected(sequence, known=6)]
    lease = sequences.lease(sequence, 2)
    drawn += [lease.draw() for _ in range(3)]
    drawn.append(sequences.draw(sequence))

    assert drawn == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]  # 11 is left in the lease


def test_a_sequence_can_begin_anywhere(sequences: Sequences, namespace: str) -> None:
    """At 0 and behind numbers that were given out elsewhere; it is made once."""
    for name, first in ((f"{namespace}:zero", 0), (f"{namespace}:moved", 70_001)):
        assert sequences.create(name, first=first).last == first - 1
        with pytest.raises(SequenceExists, match=f"last number is {first - 1}"):
            sequences.create(name)
        assert [sequences.draw(name), sequences.draw_expected(name)] == [first, first + 1]


@pytest.mark.parametrize("draw", [Sequences.draw, Sequences.draw_expected])
def test_a_sequence_ends_at_the_last_number(
    sequences: Sequences, sequence: str, draw: Callable[[Sequences, str], int]
) -> None:
    """It says so, and never begins again; nor does a block reach over the end."""
    sequences.create(sequence, first=SEQUENCE_LAST)

    with pytest.raises(SequenceExhausted):
        sequences.draw_block(sequence, 2)
    assert draw(sequences, sequence) == SEQUENCE_LAST
    with pytest.raises(SequenceExhausted, match=f"last number is {SEQUENCE_LAST}"):
        draw(sequences, sequence)
    assert sequences.show(sequence).last == SEQUENCE_LAST


def test_what_was_known_may_be_old_or_wrong(sequences: Sequences, sequence: str) -> None:
    sequences.draw_block(sequence, 5)

    assert sequences.draw_expected(sequence, known=2) == 6
    assert sequences.draw_expected(sequence, known=10**9) == 7
    assert sequences.draw_expected(sequence, known=SEQUENCE_LAST) == 8


def test_each_draw_moves_the_version_by_one(
    store: Store, sequences: Sequences, sequence: str
) -> None:
    """Rules on totals judge it as they judge any counter's, and one read path shows it."""
    assert sequences.draw(sequence) == 1
    sequences.draw_block(sequence, 9)
    sequences.draw_expected(sequence)

    shown = sequences.show(sequence)
    total = store.totals().read(sequence)
    assert (shown.last, shown.version) == (11, 3)
    assert (total.value, total.version, total.method) == (11, 3, "sequence")
    assert total.updated_at == shown.updated_at


def test_a_sequence_is_no_other_kind_of_counter(
    store: Store, sequences: Sequences, counter: str, namespace: str
) -> None:
    recorder = store.recorder()
    recorder.record(Event(counter, 1))
    sequences.draw(f"{namespace}s:a")

    with pytest.raises(WrongKind, match="of kind ledger"):
        sequences.draw(counter)
    with pytest.raises(WrongKind, match="of kind sequence"):
        recorder.record(Event(f"{namespace}s:a", 1))


def test_an_item_gets_the_next_number_of_its_collection(
    store: Store, sequences: Sequences, collection: Collection
) -> None:
    """It is the app's own item, with its number as the key; other collections count themselves."""
    put = [sequences.append(collection, {"text": text, "stars": 5}) for text in ("a", "b", "c")]
    other = Collection(
        collection.table, ("post", "p-2"), "place", prefix=collection.prefix, digits=4
    )

    assert [one.number for one in put] == [1, 2, 3]
    assert put[1].item.items() >= {"post": "p-1", "text": "b", "stars": 5}.items()
    assert sequences.append(other, {"text": "d"}).number == 1
    stored = all_items(store, collection.table)
    assert sorted(item["text"] for item in stored) == ["a", "b", "c", "d"]
    assert all(item["place"] for item in stored)


def test_p9_a_thousand_draws_from_blocks_of_a_hundred_cost_ten_units(
    sequences: Sequences, sequence: str
) -> None:
    """A lease writes once for each block."""
    sequences.namespaces.for_use(sequence, Kind.SEQUENCE)
    lease, before = sequences.lease(sequence, 100), units(sequences)

    assert [lease.draw() for _ in range(1_000)] == list(range(1, 1_001))
    assert units(sequences) == (before[0] + 10, before[1])


@pytest.mark.parametrize("overtaken", [1, 2, 3])
def test_p9_others_who_were_faster_cost_a_write_each(
    store: Store, sequence: str, overtaken: int
) -> None:
    """And a read: always for an append, from the second time on for a draw by expectation."""
    slow, fast = sequences_of(store), sequences_of(store)
    slow.draw(sequence)
    with own_table(store, "N") as table:
        collection = Collection(table, ("post", "p"), "place")
        ways: list[tuple[str, Callable[[Sequences], object], int]] = [
            ("UpdateItem", lambda one: one.draw_expected(sequence), overtaken),
            ("PutItem", lambda one: one.append(collection, {}), overtaken + 1),
        ]
        for operation, way, reads in ways:
            left, before = [way] * overtaken, units(slow)

            def overtake(left: list[Callable[[Sequences], object]] = left, **_: object) -> None:
                if left:
                    left.pop()(fast)

            slow.connection.unretried.client.meta.events.register(
                f"before-call.*.{operation}", overtake
            )
            way(slow)
            spent = tuple(now - then for now, then in zip(units(slow), before, strict=True))
            assert spent == (overtaken + 1, reads)


def test_thirty_two_threads_share_a_lease(store: Store, sequence: str) -> None:
    """No number twice, and one write for each block."""
    _threads_are_told(store)
    lease = sequences_of(store).lease(sequence, 50)
    drawn = at_once([lambda: [lease.draw() for _ in range(100)]] * THREADS)

    assert sorted(n for numbers in drawn for n in numbers) == list(range(1, 3_201))
    assert all(numbers == sorted(numbers) for numbers in drawn)


def test_thirty_two_threads_leave_no_gap_in_a_collection(
    store: Store, collection: Collection
) -> None:
    _threads_are_told(store)

    def put(sequences: Sequences, text: str) -> tuple[int, str]:
        append = partial(sequences.append, collection, {"text": text})
        return _patiently(lambda: append().number), text

    drawers = [sequences_of(store, clock=SystemClock()) for _ in range(THREADS)]
    told: dict[int, str] = {}
    for turn in range(2):
        told.update(at_once([partial(put, d, f"{n}.{turn}") for n, d in enumerate(drawers)]))

    assert sorted(told) == list(range(1, 2 * THREADS + 1))
    items = all_items(store, collection.table)
    assert {_place(item, collection): item["text"] for item in items} == told


def _place(item: Item, collection: Collection) -> int:
    return int(str(item["place"]).removeprefix(collection.prefix or ""))


def _patiently(call: Callable[[], int]) -> int:
    """Call again where others were always faster: nothing was written then."""
    while True:
        try:
            return call()
        except Throttled:
            pass
