"""Which region's total is the number over regions, and which regions it lacks."""

from __future__ import annotations

import pytest

from countledger.consumers.over_regions import RegionAnswer, TotalOverRegions, most_complete
from countledger.consumers.totals import Freshness
from countledger.ledger.total import Total


def _total(value: int = 7, *, entries: int = 3, version: int = 1) -> Total:
    return Total("a:b", value, events=3, entries=entries, version=version)


def _answer(region: str, total: Total, handled_ms: int = 1) -> RegionAnswer:
    return RegionAnswer(region, {"a:b": total}, Freshness((), handled_ms, ()))


LOST = RegionAnswer("lost", problem="no answer within 5 s")


def _over(*answers: RegionAnswer) -> TotalOverRegions:
    best = most_complete("a:b", answers)
    return TotalOverRegions(best.totals["a:b"], best.region, answers, 1.0)


def test_a_region_without_an_answer_is_named_with_its_reason() -> None:
    found = _over(LOST, _answer("home", _total()), _answer("east", _total()))

    assert found.included == ("home", "east")
    assert found.missing == {"lost": "no answer within 5 s"}
    assert found.by_region == {"home": _total(), "east": _total()}
    assert not found.agree


@pytest.mark.parametrize(
    "other",
    [_total(8), _total(entries=4), Total("a:b", 7, events=4, entries=3, version=1)],
    ids=str,
)
def test_regions_agree_on_the_sum_of_as_many_entries(other: Total) -> None:
    assert _over(_answer("home", _total()), _answer("east", _total(version=9))).agree
    assert not _over(_answer("home", _total()), _answer("east", other)).agree


def test_the_most_entries_win_then_the_latest_record_then_the_first_region() -> None:
    more, less = _total(entries=4), _total(entries=3, version=9)

    assert _over(_answer("home", less, 9), _answer("east", more, 1)).region == "east"
    assert _over(_answer("home", less, 1), _answer("east", less, 9)).region == "east"
    assert _over(_answer("home", less, 9), _answer("east", less, 9)).region == "home"


def test_a_region_without_a_total_is_never_chosen_before_one_that_has_it() -> None:
    """A strict counter counts no entries."""
    absent, there = _total(0, entries=0, version=0), _total(5, entries=0, version=1)

    assert _over(_answer("east", absent, 9), _answer("home", there, 1)).region == "home"
