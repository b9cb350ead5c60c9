"""A sequence that was deleted and drawn from again is another one."""

from functools import partial

import pytest

from countledger.infra.memory.tables import COUNTERS
from countledger.testing import MemoryStack

NAME = "q:orders"


@pytest.fixture
def stack() -> MemoryStack:
    """A stack with a sequence that was drawn from."""
    made = MemoryStack()
    made.ledger.sequences.draw(NAME)
    return made


@pytest.mark.parametrize("how", ["draw", "draw_expected", "create"])
def test_a_deletion_that_is_repeated_leaves_the_next_sequence_as_it_is(
    stack: MemoryStack, how: str
) -> None:
    """Its numbers would be given out a second time."""
    sequences = stack.ledger.sequences
    begin = {"first": 7} if how == "create" else {}
    begins_again = partial(getattr(sequences, how), NAME, **begin)
    stack.before_next_request(stack.lose_next_answer, skip=1)  # after its read
    stack.before_next_request(begins_again)

    sequences.delete(NAME)

    assert stack.planned_faults == 0
    assert sequences.draw(NAME) == (7 if how == "create" else 2)


def test_a_sequence_keeps_its_incarnation_while_it_exists(stack: MemoryStack) -> None:
    sequences = stack.ledger.sequences

    def stored() -> object:
        (item,) = (one for one in stack.items(COUNTERS) if one["counter"] == NAME)
        return item["incarnation"]

    first = {stored()}
    for draw in (sequences.draw_expected, sequences.draw, sequences.draw_expected):
        draw(NAME)
        first.add(stored())
    sequences.delete(NAME)
    sequences.draw(NAME)

    assert len(first) == 1
    assert stored() not in first
