"""Every operation that writes x every fault: what is said, what is stored, and the same again."""

from collections.abc import Iterator
from itertools import chain, count, repeat

import pytest

from countledger.producers.strict.definition import Method
from tests.engines.store import Store
from tests.faults.injection import Crash, Fault, Kind, faults, held_back
from tests.faults.matrix import (
    ENDLESS,
    FEW,
    HIDDEN,
    ONCE,
    OTHERS,
    ROWS,
    TROUBLES,
    Row,
    Trouble,
    expected,
    expected_among_eight,
)
from tests.faults.operations import OPERATIONS
from tests.faults.play import Operation, World, fresh, said, told_by
from tests.faults.strict.sellers import client_of, others_change, seller_of, write_of


def troubles_of(operation: Operation) -> tuple[Trouble, ...]:
    """What may happen to an operation."""
    always = FEW if operation.few else (*ONCE, *ENDLESS)
    return (*always, *(HIDDEN if operation.hides else ()))


CELLS = [
    (operation, trouble)
    for operation in OPERATIONS
    for trouble in troubles_of(operation)
    if not (operation.threads and trouble.fault.kind is Kind.CRASH)
]

# Without memory each request that lands counts, of a draw as a gap; a body for S3 is read once.
_LANDS_ONCE = {
    "archive",
    "atomic (under)",
    "atomic (over)",
    "atomic split over bins",
    "acquire (under)",
    "acquire (over)",
    "draw",
    "draw a block",
}


@pytest.fixture(scope="module")
def world(store: Store) -> Iterator[World]:
    """One connection for all cells."""
    made = World(store)
    with made.stack:
        yield made


@pytest.mark.parametrize(("operation", "trouble"), CELLS, ids=str)
def test_p1_an_operation_says_what_it_can_know_and_is_safe_again(
    world: World, operation: Operation, trouble: Trouble
) -> None:
    """The outcome and the number of effects are those of the table, before and after a retry."""
    play_cell(world, operation, trouble)


def play_cell(world: World, operation: Operation, trouble: Trouble) -> None:
    """Let a trouble happen to an operation, and compare what comes of it with the table."""
    play = operation.begin(world, fresh(), "standard" if trouble.hidden else "none")
    wanted = expected(str(operation), operation.words, trouble)

    with faults(
        *play.clients, at=operation.at, plan=chain(repeat(None, operation.after), trouble.plan)
    ) as attempts:
        told = told_by(play.act)

    assert attempts.made[operation.after :][:1] == [trouble.fault]
    assert (said(told), play.effect()) == (wanted.outcome, wanted.counted)
    again = play.again(told)
    if again is not None:
        words = operation.words
        words_again = wanted.again or (words.again if wanted.counted else words.done)
        assert (said(told_by(again)), play.effect()) == (words_again, wanted.after)


@pytest.mark.parametrize(
    "operation", [one for one in OPERATIONS if one.name not in _LANDS_ONCE], ids=str
)
def test_p1_a_request_that_lands_twice_counts_once(world: World, operation: Operation) -> None:
    """Its sender heard nothing and made the call all the same; then the network delivers it."""
    play = operation.begin(world, fresh(), "none")

    with held_back(*play.clients, at=operation.at) as late:
        told = told_by(play.act)
    late.land()
    late.land()

    assert (said(told), play.effect()) == (operation.words.done, 1)


@pytest.mark.parametrize("applied", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.several], ids=str)
def test_p1_a_process_that_dies_at_any_request_is_taken_up_by_the_same_call(
    world: World,
    operation: Operation,
    applied: bool,  # noqa: FBT001 - a case
) -> None:
    """Whichever request was its last one; no number is wrong in between."""
    for number in count():
        play = operation.begin(world, fresh(), "none")
        plan = chain(repeat(None, number), [Fault(Kind.CRASH, applied)], repeat(Fault(Kind.CRASH)))
        with faults(*play.clients, plan=plan):
            told = told_by(play.act)
        play.effect()

        again = play.again(told) if isinstance(told, Crash) else None
        if again is None:
            assert (said(told), play.effect()) == (operation.words.done, 1)
            assert number > 1
            break
        told_by(again)
        assert play.effect() == 1


@pytest.mark.parametrize("trouble", TROUBLES, ids=str)
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_p6_among_eight_writers_each_method_says_what_it_can_know(
    store: Store, counter: str, row: Row, trouble: Trouble
) -> None:
    """Seven others change the counter before the answer, or none, comes: the guide's table."""
    victim = seller_of(store, retries="standard" if trouble.hidden else "none")
    victim.create(counter, method=row.method, lower=0, upper=100, opening=10)
    others = [seller_of(store) for _ in range(OTHERS)]
    client, at = client_of(victim), write_of(row.method)
    key = None if row.method is Method.ATOMIC else "order-1"

    with faults(client, at=at, plan=trouble.plan, then=lambda: others_change(others, counter)):
        outcome = victim.change(counter, 1, key=key, prefer=row.prefer)

    counted = int(victim.show(counter).value) - 10 - OTHERS
    wanted = expected_among_eight(row, trouble)
    assert (said(outcome), counted) == (wanted.outcome, wanted.counted)
