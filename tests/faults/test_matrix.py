"""Every operation that writes x every fault: what is said, what is stored, and the same again.

All of it in memory; on the embedded engine one of ten, so chosen that each operation and each fault
is among them.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, count, repeat
from typing import Any, Final

import pytest
from _pytest.mark.structures import ParameterSet

from countledger.producers.strict.definition import Method
from tests.engines.store import Store
from tests.faults.injection import Crash, Fault, Kind, faults, held_back
from tests.faults.matrix import (
    ENDLESS,
    HIDDEN,
    OF_THE_WIRE,
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
from tests.faults.play import EMBEDDED, MEMORY, Operation, World, fresh, said, told_by
from tests.faults.sellers import client_of, others_change, seller_of, write_of

# One cell of so many is played on the embedded engine as well: in `make test` those of one row of
# twenty.
_TENTH: Final = 10
_HANDFUL: Final = 20


def troubles_of(operation: Operation) -> tuple[Trouble, ...]:
    """What may happen to an operation."""
    return (*ONCE, *ENDLESS, *(HIDDEN if operation.hides else ()))


def tenth_of(rows: Sequence[Any], columns: Sequence[Sequence[Any]], first: int = 0) -> list[Any]:
    """A tenth of a table: of each row and of each column some, from another one in each row."""
    return [
        (row, column)
        for number, row in enumerate(rows)
        for place, column in enumerate(columns[number])
        if (number + place) % _TENTH == first
    ]


def cells(rows: Sequence[Any], columns: Sequence[Sequence[Any]]) -> list[ParameterSet]:
    """Each row with its columns in memory, and with a tenth of them on the embedded engine."""
    in_memory = [[one for one in of if one.fault.kind not in OF_THE_WIRE] for of in columns]
    tenth = tenth_of(rows, columns)
    on_engine = [[column for other, column in tenth if other is row] for row in rows]
    return [
        *(
            pytest.param(MEMORY, row, of, id=f"{MEMORY}-{row}")
            for row, of in zip(rows, in_memory, strict=True)
        ),
        *(
            pytest.param(
                EMBEDDED,
                row,
                of,
                id=f"{EMBEDDED}-{row}",
                marks=pytest.mark.thorough if number % _HANDFUL else (),
            )
            for number, (row, of) in enumerate(zip(rows, on_engine, strict=True))
            if of
        ),
    ]


OF_ALL: Final = [troubles_of(operation) for operation in OPERATIONS]

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
def worlds() -> Iterator[dict[str, World]]:
    """Of each store one, made at first use."""
    made: dict[str, World] = {}
    yield made
    for one in made.values():
        one.stack.close()


@pytest.fixture
def world(store: Store, worlds: dict[str, World]) -> World:
    """One connection for all cells of a store."""
    name = store.engine.name
    return worlds[name] if name in worlds else worlds.setdefault(name, World.begun(store))


def test_the_tenth_has_each_operation_and_each_fault() -> None:
    """Else a difference between the tables in memory and the engine could stay unseen."""
    tenth = tenth_of(OPERATIONS, OF_ALL)

    assert {one for one, _ in tenth} == set(OPERATIONS)
    assert {one for _, one in tenth} == {*ONCE, *ENDLESS, *HIDDEN}


@pytest.mark.parametrize(
    ("store", "operation", "troubles"), cells(OPERATIONS, OF_ALL), indirect=["store"]
)
def test_p1_an_operation_says_what_it_can_know_and_is_safe_again(
    world: World, operation: Operation, troubles: Sequence[Trouble], subtests: pytest.Subtests
) -> None:
    """The outcome and the number of effects are those of the table, before and after a retry."""
    for trouble in troubles:
        with subtests.test(str(trouble)):
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
@pytest.mark.parametrize("store", [MEMORY], indirect=True)
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


@pytest.mark.parametrize(
    ("store", "row", "troubles"), cells(ROWS, [TROUBLES] * len(ROWS)), indirect=["store"]
)
def test_p6_among_eight_writers_each_method_says_what_it_can_know(
    store: Store, row: Row, troubles: Sequence[Trouble], subtests: pytest.Subtests
) -> None:
    """Seven others change the counter before the answer, or none, comes: the guide's table."""
    for trouble in troubles:
        with subtests.test(str(trouble)):
            _play_among_eight(store, row, trouble)


def _play_among_eight(store: Store, row: Row, trouble: Trouble) -> None:
    counter, key = f"e{fresh()}:c", None if row.method is Method.ATOMIC else "order-1"
    victim = seller_of(store, retries="standard" if trouble.hidden else "none")
    victim.create(counter, method=row.method, lower=0, upper=100, opening=10)
    others = [seller_of(store) for _ in range(OTHERS)]
    client, at = client_of(victim), write_of(row.method)

    with faults(client, at=at, plan=trouble.plan, then=lambda: others_change(others, counter)):
        outcome = victim.change(counter, 1, key=key, prefer=row.prefer)

    counted = int(victim.show(counter).value) - 10 - OTHERS
    wanted = expected_among_eight(row, trouble)
    assert (said(outcome), counted) == (wanted.outcome, wanted.counted)
