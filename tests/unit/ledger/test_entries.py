"""Entries as columns are these entries."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.entry import Entry, EntryColumns, counters_of, ids_of, times_ms_of

_PLAIN = st.builds(
    Entry,
    counter=st.text(min_size=1),
    id=st.text(),
    delta=st.integers() | st.decimals(allow_nan=False, allow_infinity=False),
    message_id=st.none() | st.text(),
    at_ms=st.integers(0),
    origin=st.just("here"),
    events=st.integers(1),
)


@given(st.lists(_PLAIN), st.slices(5))
def test_columns_are_the_entries_that_they_were_made_of(entries: list[Entry], some: slice) -> None:
    """Read one by one, in order, or as a part."""
    columns = EntryColumns.of(entries)

    assert columns is not None
    # The id of its message is no part of what is stored, or compared.
    assert [*columns] == entries == [columns[n] for n in range(len(columns))]
    assert [*columns[some]] == entries[some]
    assert EntryColumns.of(columns) is columns
    for facts in (counters_of, ids_of, times_ms_of):
        assert [*facts(columns)] == facts(entries)


@pytest.mark.parametrize(
    "more",
    [
        {"key": "k"},
        {"note": {}},
        {"occurred_at_ms": 0},
        {"origin": "elsewhere"},
    ],
    ids=lambda more: next(iter(more)),
)
def test_an_entry_with_more_than_columns_hold_stays_an_entry(more: dict[str, Any]) -> None:
    plain = Entry(counter="a", id="b", delta=1, at_ms=2, origin="here")

    assert EntryColumns.of([plain, replace(plain, **more)]) is None
