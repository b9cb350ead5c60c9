"""What is measured of each test decides which tests a mutant is run against."""

from tools.mutation.copies import ROOT
from tools.mutation.mapping import (
    EXTRA,
    Mapping,
    Reached,
    extra_tests,
    modules,
    numbered,
    read_record,
)


def test_a_record_says_what_each_test_reached_and_took() -> None:
    found = read_record(
        [
            "hit\t7\t",
            "hit\t7\ta.py::one",
            "hit\t9\ta.py::one",
            "passed\t0.5\ta.py::one",
            "passed\t1.5\ta.py::one",
            "skipped\t0.0\ta.py::two",
            "hit\t9\tjoint:3",
            "passed\t0.25\tjoint:3",
        ]
    )

    assert found == {
        "a.py::one": Reached(2.0, True, {7, 9}),
        "a.py::two": Reached(0.0, False, set()),
        "joint:3": Reached(0.25, True, {9}),
    }


MAPPING = Mapping(
    {
        "a.py::slow": Reached(9.0, True, {7}),
        "a.py::fast": Reached(0.5, True, {7, 8}),
        "a.py::failed": Reached(0.1, False, {7}),
        "a.py::other": Reached(0.1, True, {8}),
        "joint:1": Reached(2.0, True, {7}),
        "joint:2": Reached(2.0, True, {7}),
        ":3": Reached(2.0, True, {8}),
    }
)


def test_the_fastest_tests_that_reach_a_guard_come_first() -> None:
    assert MAPPING.tests(7, 60) == ["a.py::fast", "a.py::slow"]
    assert MAPPING.tests(7, 5) == ["a.py::fast"]
    assert MAPPING.tests(1, 60) == []


def test_tests_are_taken_from_every_file_in_turn() -> None:
    """Many fast tests of one file leave room for a slower one of another."""
    mapping = Mapping(
        {f"a.py::{n}": Reached(1.0, True, {7}) for n in range(50)}
        | {"b.py::slow": Reached(3.0, True, {7})}
    )

    assert mapping.tests(7, 6) == ["a.py::0", "a.py::1", "a.py::2", "b.py::slow"]


def test_one_test_is_run_whatever_it_takes() -> None:
    """A guard that only a slow test reaches has that test."""
    assert MAPPING.tests(7, 0.1) == ["a.py::fast"]


def test_simulations_are_those_that_reach_the_guard() -> None:
    assert sorted(MAPPING.simulations(7, 60)) == ["joint:1", "joint:2"]
    assert len(MAPPING.simulations(7, 3)) == 1
    assert MAPPING.seconds(["joint:1", ":3"]) == 4.0


def test_guards_are_numbered_through_all_modules() -> None:
    found = modules()
    numbers = list(numbered(found).values())
    sizes = [len(of_module) for of_module in found.values()]

    assert numbers == [sum(sizes[:index]) for index in range(len(sizes))]
    assert {module.partition("/")[0] for module in found} == {
        "producers",
        "consumers",
        "compaction",
    }


def test_extra_tests_go_by_package_and_exist() -> None:
    """A package or a test file that moved is noticed here."""
    assert extra_tests("consumers/alerts/rule.py") == [
        "tests/e2e/test_alerts.py",
        "tests/e2e/test_commands.py",
    ]
    assert "tests/e2e/test_audit.py" in extra_tests("consumers/total_writer.py")
    assert extra_tests("ledger/keys.py") == []
    assert [one for one in EXTRA if not list((ROOT / one).glob("*.py"))] == []
    patterns = [pattern for some in EXTRA.values() for pattern in some]
    assert [one for one in patterns if not list((ROOT / "tests").glob(one))] == []
