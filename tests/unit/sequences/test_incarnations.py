"""A sequence that was deleted and drawn from again is another one."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from countledger.ledger.errors import ConditionFailed, SequenceExists, Unclear
from countledger.ledger.namespace import Kind
from countledger.producers.sequences.sequences import Sequences
from countledger.testing import MemoryStack
from tests.unit.connections import connection_on
from tests.unit.ledger.memory import MemoryClient, held_back, meanwhile, sent_twice

NAME = "q:orders"


@pytest.fixture
def sequences(dynamo: MemoryClient) -> Sequences:
    sequences = Sequences(connection_on(dynamo))
    sequences.namespaces.create("q", kind=Kind.SEQUENCE)
    return sequences


@pytest.mark.parametrize("how", ["draw", "draw_expected", "create"])
def test_a_deletion_that_is_repeated_leaves_the_next_sequence_as_it_is(
    dynamo: MemoryClient, sequences: Sequences, how: str
) -> None:
    """Its numbers would be given out a second time."""
    sequences.draw(NAME)
    begin = {"first": 7} if how == "create" else {}
    begins_again = partial(getattr(sequences, how), NAME, **begin)

    dynamo.plans.append(sent_twice("delete", between=begins_again))
    sequences.delete(NAME)

    assert sequences.draw(NAME) == (7 if how == "create" else 2)


@pytest.fixture
def held(dynamo: MemoryClient) -> list[Callable[[], Any]]:
    """The request of the next update but one: it is held back, and its answer is lost."""
    requests: list[Callable[[], Any]] = []

    def hold() -> None:
        dynamo.plans[:] = [held_back(requests, "update")]

    dynamo.plans.append(meanwhile(hold, "update"))
    return requests


def test_a_late_draw_by_expectation_leaves_no_gap_in_the_next_sequence(
    held: list[Callable[[], Any]], sequences: Sequences
) -> None:
    sequences.draw_block(NAME, 5)
    assert sequences.draw_expected(NAME) == 6
    sequences.delete(NAME)
    sequences.draw_block(NAME, 5)

    with pytest.raises(ConditionFailed):
        held.pop()()
    assert sequences.draw(NAME) == 6


def test_a_draw_by_expectation_that_lands_before_its_retry_leaves_no_gap(
    held: list[Callable[[], Any]], sequences: Sequences, dynamo: MemoryClient
) -> None:
    """The retry carries the same tag, so it finds its own number."""

    def lands() -> None:
        if held:
            held.pop()()

    sequences.draw_block(NAME, 5)
    dynamo.plans.insert(0, meanwhile(lands, "update", times=float("inf")))

    assert [sequences.draw_expected(NAME) for _ in range(2)] == [6, 7]
    assert not held


def test_a_sequence_keeps_its_incarnation_while_it_exists(
    dynamo: MemoryClient, sequences: Sequences
) -> None:
    def stored() -> object:
        (item,) = (one for one in dynamo.items("counters") if one["counter"] == NAME)
        return item["incarnation"]

    sequences.draw_expected(NAME)
    first = {stored()}
    for draw in (sequences.draw, sequences.draw_expected, sequences.draw):
        draw(NAME)
        first.add(stored())
    sequences.delete(NAME)
    sequences.draw(NAME)

    assert len(first) == 1
    assert stored() not in first


def test_a_creation_is_not_refused_while_a_request_of_it_may_arrive() -> None:
    """Another sequence had the name; once that is deleted, the late request creates this one."""
    stack = MemoryStack(at=datetime(2026, 3, 1, 12, tzinfo=UTC))
    sequences = stack.ledger.sequences
    sequences.draw("bills:2026")
    stack.delay_next()

    with pytest.raises(Unclear, match="create it again"):
        sequences.create("bills:2026", first=5)
    with pytest.raises(SequenceExists):
        sequences.create("bills:2026", first=5)
    sequences.delete("bills:2026")

    assert stack.land() == [None]
    assert sequences.draw("bills:2026") == 5
