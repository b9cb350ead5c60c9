"""Mutants are drawn by a seed, and the list of survivors names them without line numbers."""

import pytest

from tools.mutation.guards import guards
from tools.mutation.mutants import BadList, Name, draw, outdated, read_allowed

MODULES = {
    "ledger/a.py": guards("def f(x):\n    return 1 if x < 2 and x else 0\n"),
    "ledger/b.py": guards("if x:\n    pass\nif y:\n    pass\n"),
}
ENTRY = """
[[survivor]]
module = "ledger/b.py"
within = ""
guard = "x"
change = "negate"
reason = "it only changes a log line"
"""
NAME = Name("ledger/b.py", "", "x", "negate")


def test_the_same_seed_draws_the_same() -> None:
    first = draw(MODULES, seed=3, count=3)

    assert first == draw(MODULES, seed=3, count=3)
    assert any(draw(MODULES, seed=seed, count=3) != first for seed in range(9))


def test_a_draw_takes_each_guard_once() -> None:
    drawn = draw(MODULES, seed=1, count=99)

    places = [(one.module, one.index) for one in drawn]
    assert sorted(places) == [(m, n) for m, found in MODULES.items() for n in range(len(found))]
    assert all(one.change in one.guard.changes for one in drawn)


def test_a_draw_of_one_module_takes_no_other() -> None:
    assert {one.module for one in draw(MODULES, seed=1, count=9, only="/b")} == {"ledger/b.py"}


def test_the_list_gives_each_survivor_its_reason() -> None:
    assert read_allowed(ENTRY) == {NAME: "it only changes a log line"}
    assert read_allowed("# none\n") == {}


@pytest.mark.parametrize(
    "text",
    [
        ENTRY.replace("it only changes a log line", " "),
        ENTRY.replace('within = ""\n', ""),
        ENTRY + 'line = "3"\n',
        ENTRY + ENTRY,
        ENTRY.replace('"negate"', "3"),
    ],
    ids=["no reason", "field missing", "field unknown", "twice", "no text"],
)
def test_a_malformed_list_is_refused(text: str) -> None:
    with pytest.raises(BadList):
        read_allowed(text)


def test_an_entry_whose_guard_is_gone_is_reported() -> None:
    """The list does not grow old."""
    gone = NAME._replace(guard="z")

    assert outdated({NAME: "because", gone: "because"}, MODULES) == [gone]
