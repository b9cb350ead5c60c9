"""How strict counters are shown, and what a person is told of them."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from countledger.infra.cli.strict_answers import document, row, warnings
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
    assert row(shown)["remembers"] == memory


def test_a_document_has_every_fact_once() -> None:
    facts = document(COUNTER)

    names = (*StrictCounter.__slots__, "available")
    assert facts == {name: getattr(COUNTER, name) for name in names}
    assert type(facts["method"]) is str


def test_a_counter_inside_its_bounds_is_nothing_to_warn_of() -> None:
    assert warnings(COUNTER) == []
    assert warnings(replace(COUNTER, value=0, upper=0)) == []
    assert warnings(replace(COUNTER, lower=None)) == []


def test_a_value_outside_of_a_forced_bound_is_said() -> None:
    assert warnings(replace(COUNTER, upper=400)) == [
        (
            "the value 498 is above the upper bound 400: changes up are refused until it is "
            "back inside"
        ),
    ]
    assert warnings(replace(COUNTER, lower=500)) == [
        (
            "the value 498 is below the lower bound 500: changes down are refused until it is "
            "back inside"
        ),
    ]


def test_a_new_set_says_what_it_will_cost() -> None:
    assert warnings(SET) == [
        "a change writes the whole set: write units now 1, about 20 when it holds its 500 keys"
    ]
    assert warnings(replace(SET, remembered=9)) == []
