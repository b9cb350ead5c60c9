"""The guide's tables are those that the tests hold the product to."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from countledger.producers.strict.definition import Method
from tests.faults.matrix import ROWS, TROUBLES
from tools.guide import promises
from tools.guide.marked import with_tables
from tools.guide.missing import TESTING_YOUR_APP, missing_tables
from tools.guide.promises import promises_of
from tools.guide.tables import GUIDE, HOLDS, QUOTAS, hold_tables, quota_tables, tables


@pytest.mark.parametrize(
    ("page", "made"),
    [
        (GUIDE, tables),
        (QUOTAS, quota_tables),
        (HOLDS, hold_tables),
        (TESTING_YOUR_APP, missing_tables),
        (promises.TESTING, promises.tables),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_page_has_its_tables_as_they_should_be(
    page: Path, made: Callable[[], dict[str, str]]
) -> None:
    """After a change of what is expected, `make docs` writes them again."""
    text = page.read_text()

    assert text == with_tables(text, made())
    assert all(table in text for table in made().values())


def test_tables_say_what_their_guides_rest_on() -> None:
    assert "not counted" in quota_tables()["failures"]
    assert "twice" not in hold_tables()["failures"]
    assert "`KINESIS`" in missing_tables()["missing"]


def test_a_stale_table_is_replaced_and_nothing_else() -> None:
    text = GUIDE.read_text()
    stale = text.replace("counted twice", "counted three times")

    assert stale != text
    assert with_tables(stale, tables()) == text


def test_a_guide_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="no one place for the table 'failures'"):
        with_tables("# Which method when\n", tables())


def test_a_test_names_the_promises_that_it_holds() -> None:
    assert promises_of("test_p1_is_so") == {1}
    assert promises_of("test_p4_p5_are_so") == {4, 5}
    assert promises_of("test_p1_to_p8_hold") == {1, 2, 3, 4, 5, 6, 7, 8}
    assert promises_of("test_something_p3_else") == set()


def test_each_method_and_each_trouble_has_its_cell() -> None:
    made = tables()
    columns = 0
    for name in ("failures", "sdk"):
        head, _, *rows = made[name].splitlines()
        columns += head.count("|") - 2
        assert len(rows) == len(ROWS)
        assert {line.count("|") for line in rows} == {head.count("|")}

    assert columns == len(TROUBLES)
    assert re.findall(r"^\| `(\w+)` \|", made["costs"], re.MULTILINE) == list(Method)
