"""Every schedule of the small worlds that `make test` has time for; `make explore` runs all."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.exploring.__main__ import main
from tests.exploring.report import report_of
from tests.exploring.scope import Capability, Case, Linearity
from tests.exploring.scopes import CAPABILITIES

_DOCS: Final = Path(__file__).parents[2] / "docs"
# One case of so many is part of `make test`, and of `make test-all`; and how many at the most.
_PART: Final = 24
_MOST: Final = 3
_THOROUGH_PART: Final = 3
_THOROUGH_MOST: Final = 12


def _part(cases: list[Case], of: int, most: int) -> list[Case]:
    return cases[:: max(of, -(-len(cases) // most))]


def _cases(capability: Capability) -> list[Case]:
    return [*capability.cases()]


def _assert_right(case: Case) -> None:
    found = case.run()
    assert found.violation is None, report_of(case, found.violation)
    assert found.complete


@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda one: one.name)
def test_no_schedule_breaks_a_capability(capability: Capability) -> None:
    for case in _part(_cases(capability), _PART, _MOST):
        _assert_right(case)


@pytest.mark.thorough
@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda one: one.name)
def test_no_schedule_of_more_cases_breaks_a_capability(capability: Capability) -> None:
    for case in _part(_cases(capability)[1:], _THOROUGH_PART, _THOROUGH_MOST):
        _assert_right(case)


@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda one: one.name)
def test_each_case_is_found_by_what_is_printed_of_it(capability: Capability) -> None:
    for case in _cases(capability):
        assert Case.parse(capability, str(case), case.bounds) == case


def test_the_table_adds_up_what_was_explored(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["marks", "namespaces", "--faults", "0", "--workers", "2"]) == 0

    cases, _, table = capsys.readouterr().out.partition("\n\n")
    rows = {row[0]: row[1:] for row in map(str.split, table.splitlines()[1:4])}
    assert [*rows] == ["marks", "namespaces", "all"]
    printed = Counter(line.split()[0] for line in cases.splitlines())
    assert {name: int(row[0]) for name, row in rows.items()} == {**printed, "all": printed.total()}
    assert {row[-1] for row in rows.values()} == {"0"}


@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda one: one.name)
def test_each_mask_is_documented(capability: Capability) -> None:
    for masked in capability.masks:
        text = re.sub(r"\s+", " ", (_DOCS / masked.document).read_text())
        assert masked.sentence in text, masked


@pytest.mark.long
@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda one: one.name)
def test_each_mask_is_needed(capability: Capability) -> None:
    left = set(capability.masks)
    for case in _cases(capability):
        if not left:
            break
        search, first = case.search()
        judged = Linearity(case)
        search.run(first, judged.judge, count=False)
        left -= judged.needed
    assert left == set()
