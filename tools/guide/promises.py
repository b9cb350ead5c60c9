"""The tables of docs/testing.md: which tests hold which promise, and what must be caught.

A test holds a promise whose number stands in its name: `test_p4_p5_...` holds P4 and P5.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.simulation.canaries import CANARIES
from tests.simulation.operations import OPERATIONS
from tools.guide.marked import table_of

_ROOT: Final = Path(__file__).parents[2]
TESTING: Final = _ROOT / "docs" / "testing.md"
PROMISES: Final = {
    1: "an acknowledged entry counts exactly once",
    2: "a retry is safe for the horizon",
    3: "the total is exact up to the stream's lag, and read by one GetItem",
    4: "the exact sum is exact, also beside a compaction and in every region",
    5: "compaction never changes a number",
    6: "a strict counter never passes its bounds, and a lost answer can be resolved",
    7: "every crossing of a threshold alerts, once",
    8: "bad input gets a clear error and changes nothing; a malformed record never blocks a stream",
    9: "what it costs is known",
}
_RANGE: Final = re.compile(r"^test_p(\d)_to_p(\d)_")
_LIST: Final = re.compile(r"^test_((?:p\d_)+)")


def promises_of(name: str) -> set[int]:
    """The promises that a test of that name holds."""
    if match := _RANGE.match(name):
        return set(range(int(match[1]), int(match[2]) + 1))
    match = _LIST.match(name)
    return {int(number) for number in re.findall(r"\d", match[1])} if match else set()


def tables() -> dict[str, str]:
    """Every table by the name of its marks."""
    return {
        "promises": table_of(
            ["", "promise", "held by"],
            ([f"P{number}", text, _holders(number)] for number, text in PROMISES.items()),
        ),
        "operations": table_of(
            ["operation", "where"],
            ([one.name, "the home region" if one.home else "any region"] for one in OPERATIONS),
        ),
        "canaries": table_of(
            ["rule switched off", "looked for in", "caught by seed"],
            ([one.rule, one.focus or "everything", str(one.seed)] for one in CANARIES),
        ),
    }


def _holders(number: int) -> str:
    """The files of the tests that hold a promise; those of the simulation hold nearly all."""
    return "<br>".join(f"`{path}`" for path in _files(number)) or "nothing yet"


def _files(number: int) -> Iterator[str]:
    for path in sorted((_ROOT / "tests").rglob("test_*.py")):
        if any(number in promises_of(name) for name in _functions(path)):
            yield path.relative_to(_ROOT / "tests").as_posix()


@cache
def _functions(path: Path) -> list[str]:
    """The names of the functions in a file; read once for all promises."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node.name for node in nodes if isinstance(node, ast.FunctionDef)]
