"""The examples of the guide to groups, and the tutorial's, do what they say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from countledger.infra.cli.app import run
from countledger.infra.local.stack import LocalStack

ROOT = Path(__file__).parents[2]
GUIDE, TUTORIAL = [(ROOT / name).read_text() for name in ("docs/groups.md", "docs/tutorial.md")]
(PYTHON,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
COMMAND_LINES = re.findall(
    r"^    (countledger (?:group|set|namespace|snapshot) .*)$", GUIDE + TUTORIAL, re.MULTILINE
)


def test_the_python_runs(stack: LocalStack) -> None:
    """As it is, twice; it ends by printing what its last comment says."""
    (promised,) = re.findall(r"^print\(.*\)  # (-?\d+)", PYTHON, re.MULTILINE)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", PYTHON],
            env={**os.environ, **stack.environment()},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == promised


def test_the_commands_run_in_their_order(
    stack: LocalStack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One after the other; the retry is a duplicate."""
    for name, value in stack.environment().items():
        monkeypatch.setenv(name, value)

    assert len(COMMAND_LINES) == 14
    for line in COMMAND_LINES:
        capsys.readouterr()
        assert run(shlex.split(line, comments=True)[1:]) == 0, line
        if "a retry" in line:
            assert "duplicate" in capsys.readouterr().out
