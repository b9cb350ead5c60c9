"""Records which test evaluates which guard, and what each test took.

It is imported by the instrumented modules and, as a plugin, by pytest.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import pytest

_Value = TypeVar("_Value")
RECORD_VARIABLE: Final = "MUTATION_RECORD"
# pytest sets it for each test. Subprocesses of a test inherit it, so their guards count as well.
TEST_VARIABLE: Final = "PYTEST_CURRENT_TEST"
_seen: set[tuple[int, str]] = set()


def hit(number: int, value: _Value) -> _Value:
    """Note that the current test evaluates this guard; the value itself."""
    test = os.environ.get(TEST_VARIABLE, "")
    if (number, test) not in _seen:
        _seen.add((number, test))
        record(f"hit\t{number}\t{test.rpartition(' (')[0]}")
    return value


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a phase of a test ended, and how many seconds it took."""
    record(f"{report.outcome}\t{report.duration:.4f}\t{report.nodeid}")


def record(line: str) -> None:
    """Append a line to the file that the environment names, if it names one."""
    path = os.environ.get(RECORD_VARIABLE)
    if path is not None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)
