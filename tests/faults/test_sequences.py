"""Numbers under faults: none is given out twice, and a collection has no gap."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

import pytest

from countledger.ledger.errors import Throttled, Unnumbered
from countledger.ledger.operations import Delete
from countledger.producers.sequences.sequence import Collection
from countledger.producers.sequences.sequences import CROWDED, Appending, Sequences
from tests.engines.numbering import all_items, own_table, sequences_of
from tests.engines.store import Store
from tests.faults.canary import Rule, WrongNumber, judged
from tests.faults.injection import (
    Attempts,
    Fault,
    Kind,
    before_call,
    faults,
)

LOST: Final = Fault(Kind.TIMEOUT, applied=True)
NOT_SENT: Final = Fault(Kind.TIMEOUT)


@pytest.fixture
def collection(store: Store) -> Iterator[Collection]:
    """An empty collection in a table of an app's own."""
    with own_table(store, "S") as table:
        yield Collection(table, ("post", "p-1"), "place", prefix="c#", digits=3)


def _nothing() -> None:
    pass


def _meeting(
    sequences: Sequences, at: str, *plan: Fault | None, then: Callable[[], object] = _nothing
) -> AbstractContextManager[Attempts]:
    """Let the coming writes of a process meet faults."""

    def meanwhile() -> None:
        then()

    return faults(sequences.connection.unretried.client, at=at, plan=plan, then=meanwhile)


def _expect_items(store: Store, collection: Collection, texts: dict[int, str]) -> None:
    items = all_items(store, collection.table)
    found = sorted((int(item["place"][2:]), item["text"]) for item in items)
    if found != sorted(texts.items()):
        raise WrongNumber(f"{found} and not {sorted(texts.items())}")


def test_a_lost_number_is_asked_for_again(store: Store, collection: Collection) -> None:
    """And not counted up: behind ten others it takes two attempts, and not eleven."""
    slow, fast = sequences_of(store), sequences_of(store)

    def ten_others() -> None:
        for _ in range(10):
            fast.append(collection, {"text": "fast"})

    client = slow.connection.unretried.client
    with before_call(client, "PutItem", ten_others), _meeting(slow, "PutItem") as attempts:
        assert slow.append(collection, {"text": "slow"}).number == 11
    assert len(attempts) == 2


def without_a_look_behind_the_number_in_doubt(patch: pytest.MonkeyPatch) -> None:
    """Whoever resumes an item looks at the one number alone."""
    patch.setattr(Appending, "resume", Appending.carry_out)


@judged(without_a_look_behind_the_number_in_doubt)
def test_what_was_resumed_already_is_found(
    store: Store, collection: Collection, rule: Rule
) -> None:
    victim, other = sequences_of(store), sequences_of(store)
    with (
        _meeting(victim, "PutItem", *[NOT_SENT] * CROWDED.attempts),
        pytest.raises(Unnumbered) as told,
    ):
        victim.append(collection, {"text": "victim's"})
    other.append(collection, {"text": "other's"})
    victim.resume(told.value.pending)
    other.append(collection, {"text": "last"})

    with rule.watched():
        found = sequences_of(store).resume(told.value.pending)
        _expect_items(store, collection, {1: "other's", 2: "victim's", 3: "last"})
        assert found.number == 2


def test_an_item_that_was_deleted_before_it_could_be_seen_is_not_guessed_about(
    store: Store, collection: Collection
) -> None:
    victim, other = sequences_of(store), sequences_of(store)

    def meanwhile() -> None:
        other.append(collection, {"text": "other's"})
        key = {"post": "p-1", "place": "c#001"}
        store.dynamo().delete(Delete(collection.table, key))

    with (
        _meeting(victim, "PutItem", LOST, then=meanwhile),
        pytest.raises(Unnumbered, match=r"number 1 .* was deleted"),
    ):
        victim.append(collection, {"text": "victim's"})


def test_others_who_are_always_faster_leave_nothing_behind(
    store: Store, collection: Collection
) -> None:
    """The call ends after so many attempts and says that nothing was put."""
    slow, fast = sequences_of(store), sequences_of(store)
    client = slow.connection.unretried.client

    def overtake(**_: object) -> None:
        fast.append(collection, {"text": "fast"})

    client.meta.events.register("before-call.*.PutItem", overtake)
    with pytest.raises(Throttled, match="nothing was written in 24 attempts"):
        slow.append(collection, {"text": "slow"})

    assert {item["text"] for item in all_items(store, collection.table)} == {"fast"}
