"""How strict counters are shown, and what a person is told of them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from countledger.infra.calls.strict import StrictView
from countledger.producers.strict.definition import Method
from countledger.producers.strict.reader import StrictCounter

COUNTER = StrictCounter(
    counter="tickets:hall",
    method=Method.MARKER,
    value=498,
    lower=0,
    upper=None,
    version=7,
    bins=1,
    history=None,
    max_tokens=None,
    remembered=0,
    window_ms=86_400_000,
    updated_at=datetime(2026, 1, 31, tzinfo=UTC),
    write_units=4,
)
SET = replace(
    COUNTER, method=Method.SET, window_ms=None, max_tokens=500, remembered=0, write_units=1
)


@pytest.mark.parametrize(
    ("shown", "memory"),
    [
        (replace(COUNTER, method=Method.ATOMIC), None),
        (replace(COUNTER, method=Method.OCC), "1 change"),
        (replace(COUNTER, method=Method.HISTORY, history=20), "20 changes"),
        (replace(COUNTER, method=Method.REQUEST_TOKEN), "10 min"),
        (COUNTER, "24 h"),
        (replace(SET, remembered=3), "3 of 500 keys"),
    ],
)
def test_a_row_says_for_how_long_a_key_is_remembered(
    shown: StrictCounter, memory: str | None
) -> None:
    assert StrictView.model_validate(shown).row()["remembers"] == memory


def test_a_row_has_the_same_columns_for_every_method() -> None:
    """Rows of a list have the columns of the first one."""
    rows = [StrictView.model_validate(replace(SET, method=one)).row() for one in Method]

    assert len({tuple(one) for one in rows}) == 1
    assert [one["held"] for one in rows if one["held"] is not None] == [0]


def test_a_document_has_every_fact_once() -> None:
    facts = StrictView.model_validate(COUNTER).document()

    assert {*facts} == {*StrictCounter.__slots__, "available"}
    assert (facts["method"], facts["value"], facts["available"]) == ("marker", "498", "498")
    assert facts["updated_at"] == "2026-01-31T00:00:00.000Z"


def _notices(shown: StrictCounter) -> list[str]:
    return [*StrictView.model_validate(shown).notices()]


def test_a_counter_inside_its_bounds_is_nothing_to_warn_of() -> None:
    assert _notices(COUNTER) == []
    assert _notices(replace(COUNTER, value=0, upper=0)) == []
    assert _notices(replace(COUNTER, lower=None)) == []


def test_a_value_outside_of_a_forced_bound_is_said() -> None:
    assert _notices(replace(COUNTER, upper=400)) == [
        (
            "the value 498 is above the upper bound 400: changes up are refused until it is "
            "back inside"
        ),
    ]
    assert _notices(replace(COUNTER, lower=500)) == [
        (
            "the value 498 is below the lower bound 500: changes down are refused until it is "
            "back inside"
        ),
    ]


def test_a_new_set_says_what_it_will_cost() -> None:
    assert _notices(SET) == [
        "a change writes the whole set: write units now 1, about 20 when it holds its 500 keys"
    ]
    assert _notices(replace(SET, remembered=9)) == []
