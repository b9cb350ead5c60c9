"""The outcomes of many events are those of a list, although receipts are made as they are read."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countledger.ledger.errors import BadInput, KeyExpired, Unacknowledged
from countledger.producers.event import Receipt, Status
from countledger.producers.sender import Outcome, OutcomeList

_LATE = KeyExpired("too late")
_DUPLICATE = Receipt("a:x", "dup", Status.DUPLICATE)
_SLICES = st.slices(8)


def _recorded(number: int) -> Receipt:
    return Receipt("a:b", str(number), Status.RECORDED)


def _made(others: dict[int, Outcome], count: int) -> tuple[OutcomeList, list[Outcome]]:
    """Some outcomes, and the same as a list."""
    made = OutcomeList(["a:b"] * count, map(str, range(count)), others)
    return made, [others.get(n) or _recorded(n) for n in range(count)]


@given(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)), _SLICES)
def test_it_is_read_as_a_list_is(late: set[int], again: set[int], part: slice) -> None:
    others: dict[int, Outcome] = {**dict.fromkeys(late, _LATE), **dict.fromkeys(again, _DUPLICATE)}
    made, wanted = _made(others, 6)

    assert list(made) == [*made] == wanted
    assert made == wanted
    assert wanted == made
    assert len(made) == 6
    assert [made[n] for n in range(-6, 6)] == [wanted[n] for n in range(-6, 6)]
    assert made[part] == wanted[part]
    assert repr(made) == repr(wanted)
    assert made[0] in made


@pytest.mark.parametrize("number", [6, -7])
def test_there_is_nothing_beyond_its_ends(number: int) -> None:
    with pytest.raises(IndexError):
        _made({}, 6)[0][number]


@pytest.mark.parametrize(
    "other", [_made({0: _LATE}, 3)[1], _made({}, 2)[0], _made({}, 4)[0], "abc", b"abc", 3]
)
def test_it_differs_from_other_outcomes(other: object) -> None:
    assert _made({}, 3)[0] != other


def test_it_cannot_be_hashed_and_can_be_copied() -> None:
    made, wanted = _made({1: _DUPLICATE}, 3)

    assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == wanted  # noqa: S301 - our own
    with pytest.raises(TypeError):
        hash(made)


def test_later_outcomes_follow_the_earlier_ones() -> None:
    made, wanted = _made({1: _LATE}, 3)

    made.extend(_made({0: _DUPLICATE}, 2)[0])
    made.fail(2, _LATE)

    assert made == [*wanted, _DUPLICATE, _recorded(1), _LATE, _LATE]


@pytest.mark.parametrize(
    ("others", "wanted"),
    [
        ({}, True),
        ({0: _LATE}, True),
        ({0: _LATE, 1: _LATE}, False),
        ({0: _LATE, 1: _DUPLICATE}, True),
        ({0: BadInput("no"), 1: Unacknowledged("?", None)}, True),  # type: ignore[arg-type]
    ],
)
def test_it_knows_whether_any_entry_may_be_in(others: dict[int, Outcome], *, wanted: bool) -> None:
    assert _made(others, 2)[0].any_may_be_in is wanted
    assert not OutcomeList().any_may_be_in
