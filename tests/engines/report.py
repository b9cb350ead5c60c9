"""The table of a run against an endpoint: which contracts hold there, and which differ."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from tests.engines.differences import Difference

_HOLDS, _DIFFERS, _SKIPPED, _FAILS = "holds", "differs", "skipped", "fails"
_COLUMNS: Final = (_HOLDS, _DIFFERS, _SKIPPED, _FAILS)


def table(stats: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Lines of Markdown.

    Args:
        stats: the reports of a run by their outcome, as pytest keeps them for its summary.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    met: Counter[str] = Counter()
    for outcome in ("passed", "skipped", "failed", "error"):
        for report in stats.get(outcome, ()):
            if not isinstance(report, pytest.TestReport) or (
                outcome == "passed" and report.when != "call"
            ):
                continue
            differences = [
                str(value) for name, value in report.user_properties if name == "difference"
            ]
            met.update(differences)
            contract = report.nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py")
            counts[contract][_column(outcome, differences)] += 1
    yield from ("", "| contract | " + " | ".join(_COLUMNS) + " |", "|---" * 5 + "|")
    for contract, of in sorted(counts.items()):
        yield _row(f"`{contract}`", of)
    yield _row("all", sum(counts.values(), Counter()))
    yield from ("", "| difference | tests | |", "|---|---|---|")
    for name, tests in sorted(met.items()):
        yield f"| `{name}` | {tests} | {Difference[name].value} |"


def _column(outcome: str, differences: Sequence[str]) -> str:
    if outcome == "skipped":
        return _SKIPPED
    if outcome != "passed":
        return _FAILS
    return _DIFFERS if differences else _HOLDS


def _row(name: str, of: Mapping[str, int]) -> str:
    return f"| {name} | " + " | ".join(str(of.get(one, 0)) for one in _COLUMNS) + " |"
