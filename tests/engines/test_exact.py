"""The exact sum: every entry visible when the read began, none twice; also across pages."""

from collections.abc import Iterator
from itertools import islice

import pytest

from countledger.ledger import keys
from countledger.ledger.attributes import Item
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.errors import CorruptItem, NewerFormat
from countledger.ledger.exact import ExactReader, ExactSum
from countledger.ledger.head import Head
from countledger.ledger.operations import Put, Query, Scan
from countledger.producers.event import Event
from tests.engines.store import Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import before_call, calls

# Two KB each: 520 of them are more than the megabyte of one page.
BIG_NOTE = {"n": "v" * 1_000}
BIG_KEY = "k" * 1_000


def _fill(store: Store, counter: str, count: int, *, big: bool = False) -> None:
    events = (
        Event(counter, 1, f"{BIG_KEY}{number}" if big else None, note=BIG_NOTE if big else None)
        for number in range(count)
    )
    outcomes = store.recorder().record_many(events)
    assert all(getattr(outcome, "status", None) == "recorded" for outcome in outcomes)


def _expect(exact: ExactSum, count: int) -> None:
    """So many entries of 1."""
    found = exact.value, exact.events, exact.entries
    if found != (count, count, count):
        raise WrongNumber(f"{found} instead of {count}")


def test_a_counter_never_recorded_is_zero(store: Store, counter: str) -> None:
    """Zero, no entry, generation 0; and nothing is made by reading."""
    exact = store.exact().read(counter)

    assert (exact.value, exact.events, exact.entries, exact.generation) == (0, 0, 0, 0)
    assert store.entry_items(counter) == []


# ---- rules to switch off ----


def only_the_first_page_read(patch: pytest.MonkeyPatch) -> None:
    """One page is taken for all of them."""
    real = DynamoClient.pages

    def pages(dynamo: DynamoClient, read: Query | Scan) -> Iterator[list[Item]]:
        return islice(real(dynamo, read), 1)

    patch.setattr(DynamoClient, "pages", pages)


def covers_not_skipped(patch: pytest.MonkeyPatch) -> None:
    """What the head stands for is added once more where it is still seen."""

    def nothing(_head: Head, _key: str, _at_ms: int) -> bool:
        return False

    patch.setattr(Head, "has_merged", nothing)


def second_head_not_read(patch: pytest.MonkeyPatch) -> None:
    """What was taken in while the entries were read goes unnoticed."""
    real = ExactReader._head
    first: dict[str, Head] = {}

    def head(reader: ExactReader, dynamo: DynamoClient, counter: str) -> Head:
        return first.setdefault(counter, real(reader, dynamo, counter))

    patch.setattr(ExactReader, "_head", head)


# ---- laws ----


@pytest.mark.parametrize("spread", [1, 16, 256])
def test_the_sum_does_not_depend_on_the_spread(store: Store, namespace: str, spread: int) -> None:
    store.namespaces().create(namespace, spread=spread)
    counter = f"{namespace}:counter"
    recorder = store.recorder()
    for number in range(1, 41):
        recorder.record(Event(counter, number, f"key {number}" if number % 2 else None))

    exact = store.exact().read(counter)

    assert (exact.value, exact.entries, exact.events) == (820, 40, 40)
    digits = {1: 0, 16: 1, 256: 2}[spread]
    prefixes = {item["entry"].removeprefix("e#")[:digits] for item in store.entry_items(counter)}
    assert len(prefixes) > 1 or spread == 1


@judged(only_the_first_page_read)
def test_p4_a_sum_over_many_pages_is_exact(rule: Rule, store: Store, counter: str) -> None:
    with rule.watched():
        _fill(store, counter, 520, big=True)
        reader = store.exact()
        with calls(reader.dynamo.client) as made:
            exact = reader.read(counter)
        _expect(exact, 520)
        assert made.count("Query") > 1
        assert made[0] == made[-1] == "GetItem"
        assert exact.entries_read == 520


def _head(counter: str, generation: int, total: int, covers: dict[str, int]) -> dict[str, object]:
    return {
        **keys.head_key(counter),
        "generation": generation,
        "run": f"by hand {generation}",
        "incarnation": "by hand",
        "sum": total,
        "events": total,
        "entries": total,
        "covers": covers,
    }


@judged(covers_not_skipped)
def test_p4_what_a_head_covers_is_skipped(rule: Rule, store: Store, counter: str) -> None:
    with rule.watched():
        _fill(store, counter, 3)
        covered = store.entry_items(counter)[0]["entry"]
        store.dynamo().put(Put(store.ledger, _head(counter, 1, 2, {covered: 1, "e#gone": 1})))

        exact = store.exact().read(counter)

        _expect(exact, 4)
        assert (exact.generation, exact.entries_read) == (1, 3)


@judged(second_head_not_read)
def test_p4_an_entry_taken_in_before_it_is_seen_is_in_the_sum(
    rule: Rule, store: Store, counter: str
) -> None:
    with rule.watched():
        _fill(store, counter, 4)
        (gone, *_) = store.entry_items(counter)
        reader = store.exact()

        def compact() -> None:
            store.dynamo().put(Put(store.ledger, _head(counter, 1, 1, {gone["entry"]: 1})))
            key = {"counter": {"S": counter}, "entry": {"S": gone["entry"]}}
            store.client().delete_item(TableName=store.ledger, Key=key)

        with before_call(reader.dynamo.client, "Query", compact):
            _expect(reader.read(counter), 4)


@pytest.mark.parametrize(("generation", "heads_read"), [(1, 2), (2, 4)])
def test_p4_a_head_that_moves_meanwhile_is_followed(
    store: Store, counter: str, generation: int, heads_read: int
) -> None:
    """One generation on: both heads' covers are skipped. Two or more: the read starts over."""
    _fill(store, counter, 4)
    covered = store.entry_items(counter)[0]["entry"]
    reader = store.exact()

    def publish() -> None:
        store.dynamo().put(Put(store.ledger, _head(counter, generation, 1, {covered: 1})))

    with before_call(reader.dynamo.client, "Query", publish), calls(reader.dynamo.client) as made:
        exact = reader.read(counter)

    assert made.count("GetItem") == heads_read
    _expect(exact, 4)
    assert exact.generation == generation


@pytest.mark.parametrize(
    ("corrupt", "error"),
    [
        ({"delta": "1"}, CorruptItem),
        ({"delta": None}, CorruptItem),
        ({"v": 2}, NewerFormat),
        ({"entry": "e#no-id"}, CorruptItem),
    ],
    ids=str,
)
def test_an_entry_that_cannot_be_read_is_an_error(
    store: Store, counter: str, corrupt: dict[str, object], error: type[Exception]
) -> None:
    """A sum that leaves out what it cannot read would be a wrong number."""
    _fill(store, counter, 2)
    item = store.entry_items(counter)[0]
    store.dynamo().put(Put(store.ledger, {**item, **corrupt}))

    with pytest.raises(error, match=counter):
        store.exact().read(counter)
