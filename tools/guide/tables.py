"""The tables of the documents, made from what the tests expect: of strict counters, quotas, holds.

Each stands between two marks; `make docs` writes it there again.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.engines.test_costs import STRICT_COSTS
from tests.faults.matrix import (
    ENDLESS,
    ROWS,
    STRICT,
    TROUBLES,
    Cell,
    Row,
    Trouble,
    expected,
    expected_among_eight,
)
from tests.faults.operations import OPERATIONS
from tests.faults.play import Operation
from tests.unit.quotas.test_costs import QUOTA_COSTS
from tools.guide.marked import table_of

GUIDE: Final = Path(__file__).parents[2] / "docs" / "strict.md"
QUOTAS: Final = GUIDE.with_name("quotas.md")
HOLDS: Final = GUIDE.with_name("holds.md")
# The rows of the matrix as the guide names them.
_CALLS: Final = {
    "acquire (under)": "`acquire` without a key, prefer under",
    "acquire (over)": "`acquire` without a key, prefer over",
    "acquire by request_token": "`acquire` with a key, method `request_token`",
    "acquire by marker": "`acquire` with a key, method `marker`",
    "reserve": "`reserve` with a key",
    "commit": "`commit`",
    "release a reservation": "`release`",
}
_OF_HOLDS: Final = {
    "hold": "`hold` with a key",
    "confirm a hold": "`confirm`",
    "cancel a hold": "`cancel`",
}
_HIDDEN: Final = ", hidden by an SDK retry"
_RIGHT: Final = Cell("Applied")


def tables() -> dict[str, str]:
    """Every table by the name of its marks."""
    return {
        "failures": _failures([trouble for trouble in TROUBLES if not trouble.hidden]),
        "sdk": _failures([trouble for trouble in TROUBLES if trouble.hidden]),
        "costs": table_of(
            ["method", "write units", "read units"],
            (
                [f"`{method}`", f"{writes:g}", f"{reads:g}"]
                for method, (writes, reads) in STRICT_COSTS.items()
            ),
        ),
    }


def quota_tables() -> dict[str, str]:
    """Every table of the guide to quotas."""
    costs = (one.row() for one in QUOTA_COSTS)
    return {
        "failures": _of_calls(_CALLS, TROUBLES),
        "quota costs": table_of(
            ["call", "write units", "read units", "after a lost answer"], costs
        ),
    }


def hold_tables() -> dict[str, str]:
    """Every table of the guide to holds; also where every request meets the trouble."""
    return {"failures": _of_calls(_OF_HOLDS, (*TROUBLES, *ENDLESS))}


def _of_calls(named: Mapping[str, str], among: Iterable[Trouble]) -> str:
    troubles = [trouble for trouble in among if not trouble.hidden]
    calls = {str(one): one for one in OPERATIONS if str(one) in named}
    return table_of(
        ["call", *map(str, troubles)],
        (
            [text, *(_of_call(calls[name], trouble) for trouble in troubles)]
            for name, text in named.items()
        ),
    )


def _of_call(call: Operation, trouble: Trouble) -> str:
    cell = expected(str(call), call.words, trouble)
    return "✓" if cell == Cell(call.words.done) else str(cell)


def _failures(troubles: Sequence[Trouble]) -> str:
    head = ["method", *(str(trouble).removesuffix(_HIDDEN) for trouble in troubles)]
    return table_of(
        head,
        ([_name(row), *(_cell(row, trouble) for trouble in troubles)] for row in ROWS),
    )


def _name(row: Row) -> str:
    return f"`{row.method}`, prefer {row.prefer}" if row.prefer else f"`{row.method}`"


def _cell(row: Row, trouble: Trouble) -> str:
    """What is said and counted; where it matters, alone and among eight writers."""
    alone, eight = expected(str(row), STRICT, trouble), expected_among_eight(row, trouble)
    if alone == eight:
        return "✓" if alone == _RIGHT else str(alone)
    said = ["✓" if cell == _RIGHT else str(cell) for cell in (alone, eight)]
    return f"alone: {said[0]}<br>among eight: {said[1]}"
