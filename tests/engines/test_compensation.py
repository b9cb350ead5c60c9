"""A ledger counter set to a value: one compensating entry, once, and nobody's entry is lost."""

from decimal import Decimal

import pytest

from countledger import Correction
from countledger.ledger import keys
from countledger.ledger.errors import BadDelta, BadKey, BadNote, IdempotencyKeyReused, WrongKind
from countledger.ledger.namespace import Kind
from countledger.producers.event import Event
from countledger.producers.recorder import Became, Compensator
from tests.engines.store import Store
from tests.faults.injection import before_call
from tests.faults.sellers import metered


def _compensator(store: Store) -> Compensator:
    return Compensator(store.recorder(), store.exact())


def test_a_counter_is_set_by_what_its_sum_lacks(store: Store, counter: str) -> None:
    """One entry that says so; the total follows as of any entry."""
    compensator = _compensator(store)
    list(compensator.recorder.record_many(Event(counter, delta) for delta in (3, 4, -9)))

    done = compensator.set_value(counter, Decimal("10.5"), "stock-taking", {"by": "ann"})

    assert done == Correction(counter, Decimal("10.5"), Decimal("12.5"), Became.RECORDED)
    assert store.exact().read(counter).value == Decimal("10.5")
    (entry,) = (item for item in store.entry_items(counter) if "note" in item)
    assert (entry["key"], entry["note"]) == ("stock-taking", {"by": "ann", "set": "10.5"})
    materializer = store.materializer()
    for shard, records in store.records(counter, 4).items():
        materializer.apply(records, shard)
    assert store.totals().read(counter).value == Decimal("10.5")


def test_a_retry_sets_nothing_again(store: Store, counter: str) -> None:
    """Though the sum has moved since: what others recorded stands."""
    compensator = _compensator(store)
    compensator.set_value(counter, 5, "k", None)
    compensator.recorder.record(Event(counter, 2))

    again = _compensator(store).set_value(counter, 5, "k", None)

    assert again == Correction(counter, 5, 5, Became.DUPLICATE)
    assert store.exact().read(counter).value == 7
    with pytest.raises(IdempotencyKeyReused, match="setting it to 5"):
        compensator.set_value(counter, 6, "k", None)
    compensator.recorder.record(Event(counter, 1, "plain"))
    with pytest.raises(IdempotencyKeyReused, match="another entry"):
        compensator.set_value(counter, 1, "plain", None)


def test_entries_that_arrive_meanwhile_are_kept(store: Store, counter: str) -> None:
    """One comes between the reading and the write: it counts on top, and is not compensated."""
    compensator, other = _compensator(store), store.recorder()
    compensator.recorder.record(Event(counter, 1))
    client = compensator.recorder.sender.dynamo.client

    def meanwhile() -> None:
        other.record(Event(counter, 30))

    with before_call(client, "PutItem", meanwhile):
        done = compensator.set_value(counter, 10, "k", None)

    assert done.delta == 9
    assert store.exact().read(counter).value == 40


def test_of_two_with_one_key_one_sets_it(store: Store, counter: str) -> None:
    slow, fast = _compensator(store), _compensator(store)
    slow.recorder.record(Event(counter, 1))
    client = slow.recorder.sender.dynamo.client

    def first() -> None:
        fast.recorder.record(Event(counter, 5))
        fast.set_value(counter, 10, "k", None)

    with before_call(client, "PutItem", first):
        done = slow.set_value(counter, 10, "k", None)

    assert done == Correction(counter, 10, 4, Became.DUPLICATE)
    assert store.exact().read(counter).value == 10


def test_a_counter_that_is_there_already_gets_no_entry(store: Store, counter: str) -> None:
    compensator = _compensator(store)

    done = compensator.set_value(counter, 0, "k", None)

    assert done == Correction(counter, 0, 0, Became.UNCHANGED)
    assert store.entry_items(counter) == []


def test_a_difference_that_no_entry_may_have_is_refused(store: Store, counter: str) -> None:
    """A sum may be larger than an entry; nothing is written, and what to do is said."""
    compensator = _compensator(store)
    list(compensator.recorder.record_many(Event(counter, 10**20 - 1) for _ in range(3)))

    with pytest.raises(BadDelta, match="record it as several changes"):
        compensator.set_value(counter, 0, "k", None)
    assert compensator.exact.read(counter).value == 3 * (10**20 - 1)


def test_p8_what_no_counter_can_be_set_to_is_refused(store: Store, counter: str) -> None:
    compensator = _compensator(store)
    for value in (True, 1.5, Decimal("NaN"), 10**20, Decimal("1E-10")):
        with pytest.raises(BadDelta):
            compensator.set_value(counter, value, "k", None)  # type: ignore[arg-type]
    with pytest.raises(BadKey):
        compensator.set_value(counter, 1, "", None)
    with pytest.raises(BadNote, match="'set'"):
        compensator.set_value(counter, 1, "k", {"set": "x"})
    assert metered(compensator.exact.connection.retrying) == (0, 0)
    store.namespaces().create(keys.namespace_of(f"s{counter}"), kind=Kind.STRICT)
    with pytest.raises(WrongKind, match="strict"):
        compensator.set_value(f"s{counter}", 1, "k", None)
