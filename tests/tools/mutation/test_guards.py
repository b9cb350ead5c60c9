"""Every condition is found, and each mutation changes that condition alone."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from tools.mutation.guards import guards, instrumented, mutated

SOURCE = '''
"""A module."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from x import Y


class DynamoClient:
    def open(self, age: int, key: int | None) -> bool:
        if age < 18 or key is None:
            raise ValueError
        while True:
            break
        return key in [one for one in range(9) if one]


def condition(name):
    return AllOf(Absent(name), Compare("at", "<", 3))
'''


def found() -> dict[str, set[str]]:
    return {one.text: set(one.changes) for one in guards(SOURCE)}


def test_every_kind_of_condition_is_found() -> None:
    tests = {"negate", "always true", "always false"}
    operands = {"drop operand 0", "drop operand 1"}

    assert found() == {
        "age < 18 or key is None": tests | operands,
        "age < 18": {"negate", "boundary"},
        "key is None": {"negate"},
        "key in [one for one in range(9) if one]": {"negate"},
        "one": tests,
        "AllOf(Absent(name), Compare('at', '<', 3))": operands,
        "Absent(name)": {"always true"},
        "Compare('at', '<', 3)": {"always true", "boundary"},
    }


def test_a_guard_names_the_function_that_contains_it() -> None:
    assert {one.within for one in guards(SOURCE)} == {"DynamoClient.open", "condition"}


@pytest.mark.parametrize(
    ("text", "change", "result"),
    [
        ("age < 18 or key is None", "drop operand 0", "if key is None:"),
        ("age < 18 or key is None", "drop operand 1", "if age < 18:"),
        ("age < 18 or key is None", "negate", "if not (age < 18 or key is None):"),
        ("age < 18 or key is None", "always false", "if False:"),
        ("age < 18", "boundary", "if age <= 18 or key is None:"),
        ("one", "always true", "for one in range(9) if True]"),
        ("Compare('at', '<', 3)", "boundary", "AllOf(Absent(name), Compare('at', '<=', 3))"),
        (
            "AllOf(Absent(name), Compare('at', '<', 3))",
            "drop operand 0",
            "return AllOf(Compare('at', '<', 3))",
        ),
    ],
)
def test_a_mutation_changes_its_guard(text: str, change: str, result: str) -> None:
    index = [one.text for one in guards(SOURCE)].index(text)

    plain, changed = mutated(SOURCE, index, None), mutated(SOURCE, index, change)

    assert result in changed
    pairs = zip(plain.splitlines(), changed.splitlines(), strict=True)
    assert sum(old != new for old, new in pairs) == 1


def test_no_mutation_leaves_the_code_as_it_is() -> None:
    assert ast.dump(ast.parse(mutated(SOURCE, 0, None))) == ast.dump(ast.parse(SOURCE))


def test_every_mutation_of_every_guard_is_valid_and_differs() -> None:
    for index, guard in enumerate(guards(SOURCE)):
        for change in guard.changes:
            changed = mutated(SOURCE, index, change)
            compile(changed, "mutant", "exec")
            assert changed != mutated(SOURCE, index, None)


def test_an_instrumented_module_reports_each_guard_by_its_number() -> None:
    source = "def chosen(a, b):\n    return 1 if a < 2 and b else 0\n"
    reported: list[int] = []

    def hit(number: int, value: object) -> object:
        reported.append(number)
        return value

    first, _, text = instrumented(source, 40).partition("\n")
    scope: dict[str, Any] = {"_hit": hit}
    exec(text, scope)  # noqa: S102 - our own source, a few lines up

    assert first == "from tools.mutation.hits import hit as _hit"
    assert [scope["chosen"](1, True), scope["chosen"](3, True)] == [1, 0]
    assert reported == [41, 40, 41, 40]


def test_the_import_of_an_instrumented_module_follows_the_future_imports() -> None:
    """Python takes those at the top only."""
    lines = instrumented(SOURCE, 0).splitlines()

    future = lines.index("from __future__ import annotations")
    assert lines[future + 1] == "from tools.mutation.hits import hit as _hit"
