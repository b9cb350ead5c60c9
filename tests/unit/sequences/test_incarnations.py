"""A sequence that was deleted and drawn from again is another one."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

from countledger.ledger.errors import ConditionFailed, Unclear
from countledger.ledger.namespace import Kind, Namespaces
from countledger.producers.sequences.sequences import Sequences
from countledger.producers.strict.context import MethodContext
from tests.unit.ledger.clocks import ManualClock
from tests.unit.ledger.memory import MemoryClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from countledger.ledger.attributes import Item
    from countledger.ledger.operations import Delete, Update

NAME = "q:orders"


@dataclass(frozen=True, slots=True)
class RepeatingClient(MemoryClient):
    """A client whose SDK repeats a deletion, as after a lost answer; and holds an update back.

    Attributes:
        between: what happens between the two requests of the next deletion.
        held: updates that were sent and land later; their answers are lost.
        hold: how many of the next updates are held back.
    """

    between: list[Callable[[], object]] = field(default_factory=list)
    held: list[Update] = field(default_factory=list)
    hold: list[None] = field(default_factory=list)

    def delete(self, write: Delete) -> None:
        """Remove one item, perhaps twice."""
        MemoryClient.delete(self, write)
        if self.between:
            self.between.pop()()
            MemoryClient.delete(self, write)

    def update(self, write: Update) -> Item | None:
        """Change one item, or keep the request back."""
        if self.hold:
            self.hold.pop()
            self.held.append(write)
            raise Unclear("the answer was lost")
        return MemoryClient.update(self, write)

    def land(self) -> bool:
        """The request that was held back arrives; whether its condition held."""
        try:
            MemoryClient.update(self, self.held.pop())
        except ConditionFailed:
            return False
        return True


@pytest.fixture
def dynamo() -> RepeatingClient:
    """One table."""
    return RepeatingClient()


@pytest.fixture
def sequences(dynamo: RepeatingClient) -> Sequences:
    """A process."""
    return _sequences(dynamo)


def _sequences(dynamo: RepeatingClient) -> Sequences:
    numbers = iter(range(10**6))
    random = Random(1)  # noqa: S311 - jitter
    context = MethodContext(
        dynamo, dynamo, "counters", ManualClock(), random, lambda _ms: f"id-{next(numbers)}"
    )
    namespaces = Namespaces(dynamo, "ledger", "eu", "eu")
    namespaces.create("q", kind=Kind.SEQUENCE)
    return Sequences(context, namespaces, "eu", "eu")


@pytest.mark.parametrize("how", ["draw", "expected", "create"])
def test_a_deletion_that_is_repeated_leaves_the_next_sequence_alone(
    dynamo: RepeatingClient, sequences: Sequences, how: str
) -> None:
    """Its numbers would be given out a second time."""
    sequences.draw(NAME)

    def begin() -> None:
        if how == "create":
            sequences.create(NAME, first=7)
        elif how == "expected":
            sequences.draw_expected(NAME)
        else:
            sequences.draw(NAME)

    dynamo.between.append(begin)
    sequences.delete(NAME)

    assert sequences.draw(NAME) == (7 if how == "create" else 2)


def test_a_late_draw_by_expectation_leaves_no_gap_in_the_next_sequence(
    dynamo: RepeatingClient, sequences: Sequences
) -> None:
    """The number that it expects is reached again."""
    sequences.draw_block(NAME, 5)
    dynamo.hold.append(None)
    assert sequences.draw_expected(NAME) == 6
    sequences.delete(NAME)
    sequences.draw_block(NAME, 5)

    assert not dynamo.land()
    assert sequences.draw(NAME) == 6


def test_a_draw_by_expectation_that_lands_before_its_retry_leaves_no_gap() -> None:
    """The retry carries the same tag, so it finds its own number."""

    class LateClient(RepeatingClient):
        def update(self, write: Update) -> Item | None:
            if self.held:
                assert self.land()
            return RepeatingClient.update(self, write)

    dynamo = LateClient()
    sequences = _sequences(dynamo)
    sequences.draw_block(NAME, 5)
    dynamo.hold.append(None)

    assert [sequences.draw_expected(NAME) for _ in range(2)] == [6, 7]


def test_a_sequence_keeps_its_incarnation_while_it_lives(
    dynamo: RepeatingClient, sequences: Sequences
) -> None:
    """However it is drawn from; the next one has another."""

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
