"""The examples of the README, the tutorial and two guides do as they say, also when run twice."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from countledger.infra.local.stack import LocalStack
from tests.e2e.command import Command

ROOT = Path(__file__).parents[2]
FIRST_STEPS = "".join((ROOT / name).read_text() for name in ("README.md", "docs/tutorial.md"))
GUIDES = "".join((ROOT / name).read_text() for name in ("docs/strict.md", "docs/alerts.md"))
TEXT = FIRST_STEPS + GUIDES
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
# What a reader types on a stack that runs; those that make or end one have tests of their own.
RUN = "emit|total|entries|verify|strict|alert|watch|sequence|claim|set|group|schedule|compact"
COMMAND_LINES = re.findall(rf"^    (countledger (?:{RUN}) .*)$", TEXT, re.MULTILINE)


@pytest.fixture(scope="module")
def stack() -> Iterator[LocalStack]:
    """A stack on which nothing else has been counted, as a reader of the README has it."""
    with LocalStack() as running:
        yield running


def run(command: list[str], stack: LocalStack) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, **stack.environment()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_there_are_examples() -> None:
    """Python and commands are shown in the form that these tests look for."""
    assert len(PYTHON_BLOCKS) == 8
    assert len(COMMAND_LINES) >= 25


@pytest.mark.parametrize("block", PYTHON_BLOCKS)
def test_the_python_runs(block: str, stack: LocalStack) -> None:
    """A Python example runs as it is, twice, and its last line prints what its comment says."""
    promised = re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
    for _ in range(2):
        done = run([sys.executable, "-W", "error", "-c", block], stack)

        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == promised[-1]


def test_the_commands_run_in_their_order(stack: LocalStack, command: Command) -> None:
    """The commands of the first steps work one after the other, and count the retry once."""
    for line in COMMAND_LINES:
        words = shlex.split(line, comments=True)
        stack.pump.drain()
        done = command(*words[1:])

        assert done.code == 0, f"{line}\n{done.err}"
        if "a retry" in line:
            assert "duplicate" in done.out
        if words[1] == "total":
            assert re.search(r"likes:post-1\s+\W*\s*2\b", done.out), done.out
