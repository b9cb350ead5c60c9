"""The README's examples do what they say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from countledger.infra.local_stack import LocalStack

README = Path(__file__).parents[2] / "README.md"
PYTHON_BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
COMMAND_LINES = re.findall(
    r"^    (countledger (?:emit|total|entries|verify).*)$", README.read_text(), re.MULTILINE
)


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
    """The README shows Python and commands, in the form that these tests look for."""
    assert PYTHON_BLOCKS
    assert len(COMMAND_LINES) >= 5


@pytest.mark.parametrize("block", PYTHON_BLOCKS)
def test_the_python_runs(block: str, stack: LocalStack) -> None:
    """A Python example runs as it stands, its assertions included."""
    done = run([sys.executable, "-W", "error", "-c", block], stack)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "-200"


def test_the_commands_run_in_their_order(stack: LocalStack) -> None:
    """The commands of the first steps work one after the other, and count the retry once."""
    for line in COMMAND_LINES:
        words = shlex.split(line, comments=True)
        stack.pump.drain()
        done = run([sys.executable, "-m", *words], stack)

        assert done.returncode == 0, f"{line}\n{done.stderr}"
        if "a retry" in line:
            assert "duplicate" in done.stdout
        if words[1] == "total":
            assert re.search(r"likes:post-1\s+\W*\s*2\b", done.stdout), done.stdout
