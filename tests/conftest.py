"""The header of every run, settings of all tests, and which tests `make test` leaves out."""

import signal
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from tests.engines.binaries import dynoxide_binary


def pytest_report_header() -> str:
    """Which engines the contract suite runs on."""
    extra = "dynoxide" if dynoxide_binary().is_file() else "(no dynoxide: `make dynoxide`)"
    return f"engines: moto, ministack, {extra}"


# How long an example takes says what else the machine is doing: performance is a benchmark.
settings.register_profile("countledger", deadline=None)
settings.load_profile("countledger")

# A job in the background ignores Ctrl-C, and what it starts inherits that, unless undone here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_TESTS: Final = Path(__file__).parent
# What `make test` leaves to `make test-all`, so that it takes minutes only. The promises of these
# tests are also covered by tests that stay: on another engine, in the simulation, in a shorter way.
_THOROUGH: Final = (
    "e2e",
    "engines/test_exact_beside_compaction.py",
    "faults/strict/test_bins.py",
    "faults/test_crash.py",
    "faults/test_killed.py",
    "regions",
    "smoke",
)
_STAYS: Final = (
    "e2e/test_cli.py",
    "e2e/test_deployed.py",
    "e2e/test_permissions.py",
    "e2e/test_readme.py",
)
_SECOND_ENGINE: Final = "moto"
# A wrong variant that only more seeds than these are sure to notice.
_SEEDS: Final = 400
# Wrong variants that are caught after many seeds only. Each rule has a test of its own as well: the
# model of compaction, the faults, or a unit test.
_CAUGHT_LATE: Final = frozenset(
    {
        "alerts: a change leaves in time",
        "alerts: batches are not halved",
        "alerts: re-arm levels",
        "await",
        "covers of the first head",
        "deletion waits for the stream",
        "due marks are set again",
        "import: sequences never go back",
        "markers and tokens of one incarnation",
        "nothing is sent after a key has expired",
        "repair on condition of the version",
        "the head is read twice",
        "transfer: refusals are confirmed",
        "verify after the stream has caught up",
        "watermarks outlive the writes that they refuse",
    }
)
# A fork that skips Python's hooks leaves the interpreter's own lock as it was: where another thread
# of the process was about to take it, the child may wait for ever, whatever our code does.
_WITHOUT_HOOKS: Final = ("libc", "without_hooks", "hooks skipped")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what only `make test-all` runs."""
    for item in items:
        name = item.path.relative_to(_TESTS).as_posix()
        parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
        again = name.startswith("engines/") and _SECOND_ENGINE in parameters
        rare = any(
            getattr(one, "within", 0) > _SEEDS
            or (hasattr(one, "within") and getattr(one, "rule", "") in _CAUGHT_LATE)
            for one in parameters
        )
        if again or rare or (name.startswith(_THOROUGH) and not name.startswith(_STAYS)):
            item.add_marker(pytest.mark.thorough)
        if any(kind in item.name for kind in _WITHOUT_HOOKS):
            item.add_marker(pytest.mark.long)
