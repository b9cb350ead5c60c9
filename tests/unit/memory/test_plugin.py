"""The fixtures of the plugin; neither they nor `countledger` load what they do not need."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import countledger
from countledger.ledger.connection import replacement
from countledger.testing import MemoryStack

# What only extras need, and no app that tests its own code may have.
_EXTRAS = (
    "aws_kinesis_agg aws_lambda_powertools google.protobuf greenlet hypercorn ministack "
    "opentelemetry orjson psutil rich typer uv yaml"
)
_WITHOUT_EXTRAS = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in {_EXTRAS.split()!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
from countledger.testing import MemoryStack

stack = MemoryStack()
stack.ledger.record("likes:a", 2)
stack.ledger.alerts.create("many", counter="likes:a", threshold=3, direction="rising", now=True)
stack.ledger.record("likes:a", 2)
assert [one["rule"] for one in stack.alerts] == ["many"], stack.failures
stack.advance(hours=30)
assert stack.compact("likes:a").error is None
print(stack.ledger.total("likes:a").value)
"""
_SESSION = """
import sys
import countledger.pytest_plugin

loaded = sorted(name for name in sys.modules if name.split(".")[0] in ("boto3", "countledger"))
print(*loaded)
"""
_TESTS = """
import countledger

def count(counter):
    countledger.record(counter, 1)

def test_default(countledger_default):
    count("likes:a")
    assert countledger_default.ledger.total("likes:a").value == 1

def test_own(countledger_stack):
    assert countledger_stack.ledger.total("likes:a").value == 0

def test_unmet(countledger_stack):
    countledger_stack.throttle()

def test_failed(countledger_stack):
    countledger_stack._functions.failures.append(countledger.errors.ServiceFailed("no answer"))
"""


def _python(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=cwd
    )


def test_a_fixture_is_an_empty_stack(countledger_stack: MemoryStack) -> None:
    assert countledger_stack.ledger.total("likes:a").value == 0
    assert replacement() is None


def test_the_default_client_leads_to_the_stack(countledger_default: MemoryStack) -> None:
    countledger.record("likes:a", 3)

    assert countledger_default.ledger.total("likes:a").value == 3


def test_a_stack_needs_no_extra() -> None:
    done = _python("-c", _WITHOUT_EXTRAS)

    assert (done.stdout, done.returncode) == ("4\n", 0), done.stderr


def test_a_session_that_does_not_use_it_loads_the_plugin_only() -> None:
    done = _python("-c", _SESSION)

    assert done.stdout.split() == ["countledger", "countledger.pytest_plugin"], done.stderr


def test_importing_the_package_does_not_load_the_stack() -> None:
    done = _python("-c", "import countledger, sys; print('countledger.testing' in sys.modules)")

    assert done.stdout == "False\n", done.stderr


def test_a_session_of_an_app_has_the_fixtures(tmp_path: Path) -> None:
    """A fault that no request met, and a delivery that failed, are errors of their test."""
    (tmp_path / "test_app.py").write_text(_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    done = _python("-m", "pytest", "-q", "-p", "countledger.pytest_plugin", cwd=tmp_path)

    assert "4 passed, 2 errors" in done.stdout, done.stdout
    assert "no request met 1 of the planned faults" in done.stdout
    assert "no answer" in done.stdout


def test_the_entry_point_has_the_name_of_its_module() -> None:
    """So that a session that loads it by `-p`, as this one does, registers it once."""
    ours = [one for one in entry_points(group="pytest11") if "countledger" in one.value]
    if not ours:
        pytest.skip("this environment was installed before the entry point: install it again")

    assert [(one.name, one.value) for one in ours] == [("countledger.pytest_plugin",) * 2]
