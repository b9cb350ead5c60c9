"""Dealing out and splitting: the shares add up, and no bin gives more than it has."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger import amount, keys
from countledger.ledger.errors import CorruptItem
from countledger.ledger.limits import BINS_MAX
from countledger.producers.strict.change import refusal
from countledger.producers.strict.definition import (
    StrictState,
    deal,
    deal_state,
    decode_definition,
    split,
    whole_of,
)

AMOUNTS = st.one_of(
    st.integers(-(10**30), 10**30),
    st.integers(-(10**6), 10**6).map(lambda n: amount.canonical(Decimal(n) / 100)),
)
BINS = st.integers(1, 98)


@pytest.mark.parametrize("bins", [-1, BINS_MAX + 1])
def test_a_number_of_bins_that_no_counter_has_is_corrupt(bins: int) -> None:
    item = {"counter": "n:c", "method": "atomic", "incarnation": "made", "bins": bins}

    with pytest.raises(CorruptItem, match=f"'bins' is {bins}, no number of bins"):
        decode_definition(item)


@given(value=AMOUNTS, shares=BINS)
def test_shares_add_up_and_are_even(value: amount.Amount, shares: int) -> None:
    dealt = deal(value, shares)

    assert len(dealt) == shares
    assert amount.total_of(dealt) == value
    exponent = min(Decimal(value).as_tuple().exponent, 0)
    assert isinstance(exponent, int)
    assert max(dealt) - min(dealt) <= Decimal(1).scaleb(exponent)


@st.composite
def wholes(draw: st.DrawFn) -> StrictState:
    """A counter inside its bounds, either of which may be absent."""
    total = draw(st.integers(-1_000, 1_000))
    room = st.one_of(st.none(), st.integers(0, 1_000))
    up, down = draw(room), draw(room)
    return StrictState(
        "made",
        1,
        total,
        lower=None if down is None else total - down,
        upper=None if up is None else total + up,
    )


@given(whole=wholes(), bins=BINS)
def test_every_bin_is_inside_its_own_bounds(whole: StrictState, bins: int) -> None:
    dealt = deal_state(whole, bins)

    found = whole_of(dealt)
    assert (found.total, found.lower, found.upper) == (whole.total, whole.lower, whole.upper)
    for state in dealt:
        assert state.lower is None or state.lower <= state.total
        assert state.upper is None or state.total <= state.upper


@given(
    rooms=st.lists(st.integers(-3, 20), min_size=1, max_size=20),
    delta=st.integers(1, 100),
    up=st.booleans(),
)
def test_a_split_takes_what_is_there_and_no_more(rooms: list[int], delta: int, *, up: bool) -> None:
    states = [
        StrictState("made", 1, 0, upper=room) if up else StrictState("made", 1, 0, lower=-room)
        for room in rooms
    ]
    places = [(keys.bin_key("n:c", n), state) for n, state in enumerate(states)]
    signed = delta if up else -delta

    parts = split(places, signed)

    there = sum(room for room in rooms if room > 0)
    if parts is None:
        assert delta > there
        return
    by_key = {key["counter"]: state for key, state in places}
    assert amount.total_of(part.delta for part in parts) == signed
    assert len({part.key["counter"] for part in parts}) == len(parts)
    for part in parts:
        assert refusal("n:c", by_key[part.key["counter"]], part.delta) is None


def test_a_split_is_over_as_few_bins_as_can_take_it() -> None:
    """The fuller ones first: each part costs a write."""
    places = [
        (keys.bin_key("n:c", n), StrictState("made", 1, 0, upper=r))
        for n, r in enumerate([1, 9, 4])
    ]

    parts = split(places, 12)

    assert parts is not None
    assert [(part.key["counter"], part.delta) for part in parts] == [("n:c#01", 9), ("n:c#02", 3)]


def test_an_unbounded_side_is_never_split() -> None:
    parts = split([(keys.bin_key("n:c", 0), StrictState("made", 1, 0))], 10**37)

    assert parts is not None
    assert [part.delta for part in parts] == [10**37]


@pytest.mark.parametrize("long", [Decimal("1." + "1" * 37), 10**38 - 1])
def test_nothing_is_rounded(long: amount.Amount) -> None:
    assert amount.total_of(deal(long, 7)) == long
