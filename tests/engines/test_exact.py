"""The exact sum: every entry visible when the read began, none twice; also across pages."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

import pytest

from countledger.compaction.report import CompactionStep, Verb
from countledger.ledger.attributes import Item
from countledger.ledger.dynamo import DynamoClient
from countledger.ledger.exact import ExactAccumulator, ExactReader, ExactSum, Head
from countledger.ledger.operations import Delete, Query, Scan
from countledger.producers.event import Event
from tests.engines.compacting import compactor
from tests.engines.store import Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import Crash, before_call, calls

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


def covers_are_added_again(patch: pytest.MonkeyPatch) -> None:
    """What the second head covers stays in the sum of the entries."""

    def nothing(_seen: ExactAccumulator, _second: Head) -> None:
        pass

    patch.setattr(ExactAccumulator, "leave_out", nothing)


def the_head_is_read_once(patch: pytest.MonkeyPatch) -> None:
    """What was merged while the entries were read is in no sum."""
    real, first = ExactReader._head, list[Head]()

    def head(reader: ExactReader, dynamo: DynamoClient, counter: str) -> Head:
        first.extend([] if first else [real(reader, dynamo, counter)])
        return first[0]

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
        in_memory = store.engine.name == "memory"  # its pages end after a thousand items
        count = 1_001 if in_memory else 520
        _fill(store, counter, count, big=not in_memory)
        reader = store.exact()
        with calls(reader.connection.retrying.client) as made:
            exact = reader.read(counter)
        _expect(exact, count)
        assert made.count("Query") > 1
        assert made[0] == made[-1] == "GetItem"
        assert exact.entries_read == count


def _merge_and_die(store: Store, counter: str) -> None:
    """A compactor publishes a head over all entries, and dies when it has deleted one of them."""

    def die(step: CompactionStep) -> None:
        if step.verb is Verb.RETIRE and step.merged:
            raise Crash

    with suppress(Crash):
        compactor(store).compact(counter, on_step=die)
    first = store.entry_items(counter)[0]
    key = {name: str(first[name]) for name in ("counter", "entry")}
    store.dynamo().delete(Delete(store.ledger, key))


@judged(covers_are_added_again, the_head_is_read_once)
def test_p4_a_sum_beside_a_compaction_is_exact(rule: Rule, store: Store, counter: str) -> None:
    """After the first head was read: one merged entry is gone by then, the others are read."""
    with rule.watched():
        _fill(store, counter, 4)
        reader = store.exact()
        client = reader.connection.retrying.client
        with before_call(client, "Query", lambda: _merge_and_die(store, counter)):
            exact = reader.read(counter)
        _expect(exact, 4)
        assert (exact.generation, exact.entries_read) == (1, 3)
