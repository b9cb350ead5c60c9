"""Any sequence of lost, refused and unsent writes: no number twice, no gap, no item twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.errors import Throttled, Unclear, Unnumbered
from countledger.producers.sequences import drawing
from countledger.producers.sequences.appending import Appending, PendingAppend
from countledger.producers.sequences.collection import Collection
from countledger.producers.sequences.expecting import ExpectedDraw
from tests.unit.ledger.memory import Fault, MemoryClient
from tests.unit.strict.contexts import context_on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from countledger.producers.strict.context import MethodContext

COURSES: Final = st.lists(
    st.sampled_from(
        [
            None,
            Fault(Unclear("lost"), applied=True),
            Fault(Unclear("not sent")),
            Fault(Throttled("busy")),
        ]
    ),
    max_size=90,
)
COLLECTION: Final = Collection("posts", ("counter", "p-1"), "part", prefix="c#", digits=3)


def _means(course: Iterable[Fault | None]) -> MethodContext:
    return context_on(MemoryClient(faults=list(course)))


@given(COURSES, st.lists(st.sampled_from(["one", "block", "expected"]), max_size=9))
def test_no_number_is_given_out_twice(course: list[Fault | None], ways: list[str]) -> None:
    context = _means(course)
    drawn: list[int] = []
    for way in ways:
        try:
            if way == "expected":
                drawn.append(ExpectedDraw.begin(context, "n:a").draw(None))
            else:
                drawn += drawing.draw(context, "n:a", 1 if way == "one" else 4)
        except (Unclear, Throttled):
            pass

    assert drawn == sorted(set(drawn))


@given(COURSES)
def test_expectation_loses_no_number_where_nobody_else_draws(course: list[Fault | None]) -> None:
    context = _means(course[:20])  # fewer than the attempts of one call

    assert [ExpectedDraw.begin(context, "n:a").draw(None) for _ in range(3)] == [1, 2, 3]


@given(COURSES, st.integers(1, 5))
def test_every_item_is_put_once_and_without_a_gap(course: list[Fault | None], items: int) -> None:
    context = _means(course)
    left = [PendingAppend(COLLECTION, {"text": n}, f"tag-{n}") for n in range(items)]
    told: dict[int, int] = {}
    while left:
        pending = left.pop(0)
        try:
            put = Appending.begin(context, pending).resume()
            told[put.number] = put.item["text"]
        except Unnumbered as unclear:
            left.append(unclear.pending)
        except Throttled:
            left.append(pending)

    assert sorted(told) == list(range(1, items + 1))
    assert sorted(told.values()) == list(range(items))
    stored = MemoryClient.items(context.dynamo, "posts")  # type: ignore[arg-type]
    assert {COLLECTION.number_of(item): item["text"] for item in stored} == told


def test_a_page_without_items_is_not_the_end_of_a_collection() -> None:
    """The service may answer with one although more follow: the highest number is behind it."""
    context = context_on(MemoryClient(hesitant=True))

    put = [
        Appending.begin(context, PendingAppend(COLLECTION, {}, f"tag-{n}")).carry_out()
        for n in (1, 2)
    ]

    assert [one.number for one in put] == [1, 2]
